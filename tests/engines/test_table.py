"""An engine is added in one place: a module of the table, found by an entry point. It then plays and trains."""

import sys

import pytest

from viewbox import registry
from viewbox.configs.schema import parse
from viewbox.engines.table import get_engine
from viewbox.errors import ConfigError
from viewbox.rollouts.store.reader import load

TOY = '''
from pydantic import Field
from viewbox.configs.sections import RolloutSection
from viewbox.engines.scripted import ScriptedGenerator

checked = []

class Settings(RolloutSection):
    """Says one sentence."""

    says: str = Field(default="hello", description="what is said")

sends_weights = False

def check(config, envs):
    checked.append((config.rollout.says, [env.name for env in envs]))

def build(settings, tokens, model, *, model_name="", vision_cache=None):
    assert settings.slots and model is not None
    return ScriptedGenerator(tokens, lambda conversation: settings.says)
'''
SAYS = '{"label": "one", "bbox": [0, 0, 9, 9]}'


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The module of an installed package `toy`, which adds the engine `parrot`."""
    (tmp_path / "toy_engine.py").write_text(TOY)
    info = tmp_path / "toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[viewbox.engines]\nparrot = toy_engine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._read_entry_points.cache_clear()
    monkeypatch.chdir(tmp_path)
    yield get_engine("parrot")
    sys.modules.pop("toy_engine", None)
    registry._read_entry_points.cache_clear()


def test_an_engine_of_another_package_plays_and_samples_the_episodes_of_a_training_run(toy, viewbox, tmp_path):
    given = ("--config", "quickstart", "--held-out", "--model", "package:tiny_viewer", "rollout.engine=parrot")
    code, _, err = viewbox("rollout", *given, f"rollout.says={SAYS!r}", "--tasks", 3, "--out", "out")
    assert code == 0, err
    episodes = list(load(tmp_path / "out" / "episodes"))
    assert [episode.answer["label"] for episode in episodes] == ["one"] * 3
    given = ("model.name=package:tiny_viewer", "rollout.engine=parrot", f"rollout.says={SAYS!r}", "log.name=run")
    toy.checked.clear()
    small = ("train.max_steps=1", "train.per_device_train_batch_size=4", "train.num_generations=2", "log.eval_tasks=2")
    code, _, err = viewbox("train", "quickstart", *given, *small)
    assert code == 0, err
    assert toy.checked == [(SAYS, ["digits", "digits"])]
    episodes = list(load(tmp_path / "runs" / "run" / "episodes"))
    assert episodes
    assert {t.content for e in episodes for t in e.turns if t.role == "assistant"} == {SAYS}


def test_its_settings_are_checked_and_a_module_that_is_no_engine_is_named_with_what_it_lacks(toy, monkeypatch):
    rollout = {"engine": "parrot", "says": "x", "top_k": 3}
    config = parse({"model": {"name": "m"}, "env": {"name": "digits"}, "rollout": rollout})
    assert config.model_dump(exclude_unset=True)["rollout"] == rollout
    for wrong, says in (({"says": 3}, r"rollout\.says = 3; allowed: text"), ({"say": "x"}, "did you mean 'says'")):
        with pytest.raises(ConfigError, match=says):
            parse({"model": {"name": "m"}, "env": {"name": "digits"}, "rollout": {"engine": "parrot"} | wrong})
    with pytest.raises(ConfigError, match="says = 'x' is read with engine: parrot only; the engine is 'hf'"):
        parse({"model": {"name": "m"}, "env": {"name": "digits"}, "rollout": {"says": "x"}})
    monkeypatch.delattr(sys.modules["toy_engine"], "check")
    with pytest.raises(ConfigError, match=r"rollout\.engine = parrot: toy_engine has no check; needed: Settings, "):
        get_engine("parrot")
    with pytest.raises(ConfigError, match=r"unknown engine 'parot'; allowed: hf, parrot, vllm \(did you mean 'parrot'"):
        get_engine("parot")
