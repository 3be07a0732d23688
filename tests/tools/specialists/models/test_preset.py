"""`configs/chest_xray.yaml`: it builds without a model, and tiny models of the same types play its episodes."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.support import datasets
from tests.support.tiny_specialists import save_gemma3, save_grounding_dino, save_sam, save_vit
from viewbox import make
from viewbox.cli.data import open_data_envs
from viewbox.configs import schema
from viewbox.core.base import get_offered_tools
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.envs.chest_xray.env import ChestXray
from viewbox.tools.specialists.models.model import ModelSpecialist

ROOT = Path(__file__).resolve().parents[4]
CONFIG = ROOT / "configs" / "chest_xray.yaml"
SPECS = yaml.safe_load(CONFIG.read_text())["env"]["specialists"]
PAGE = (ROOT / "docs" / "specialists.md").read_text()
TINY = {  # a model of the type that the public one has
    "lxyuan/vit-xray-pneumonia-classification": lambda folder: save_vit(folder, labels=["NORMAL", "PNEUMONIA"]),
    "IDEA-Research/grounding-dino-tiny": save_grounding_dino,
    "facebook/sam-vit-base": save_sam,
    "google/medgemma-4b-it": save_gemma3,
}
ARGUMENTS = {
    "classify_pneumonia": {},
    "ground_phrase": {"phrase": "left opacity"},
    "outline": {"box": [200, 200, 700, 800]},
    "ask_radiologist": {"question": "is it left"},
    "write_report": {},
}


@pytest.fixture
def slake(tmp_path):
    return str(datasets.build("slake", tmp_path / "slake"))


def test_the_environment_is_built_and_its_prompts_are_written_without_a_model(slake):
    env = open_data_envs(str(CONFIG), [], slake)[0]
    assert isinstance(env, ChestXray)
    assert set(SPECS) <= set(get_offered_tools(env, env.tasks[0]))
    schemas = {one["function"]["name"]: one["function"] for one in env.tool_schemas}
    for name in SPECS:
        assert set(schemas[name]["parameters"]["properties"]) >= {"image", *ARGUMENTS[name]}
        assert env.toolbox[name].function.server.runner is None  # nothing was loaded
    for task in env.tasks:
        system, user = env.reset(task, seed=0).messages[:2]
        assert task.prompt["question"] in user.text
        assert system.text
    held_out = open_data_envs(str(CONFIG), [], slake)[1]
    assert held_out.data.split == "test"


def test_tiny_models_of_the_same_types_answer_every_call_of_an_episode(tmp_path, slake):
    folders = {name: save(tmp_path / name.replace("/", "-")) for name, save in TINY.items()}
    here = {"revision": None, "device": "cpu", "timeout": 60.0}
    specs = {name: {**spec, "model": folders[spec["model"]], **here} for name, spec in SPECS.items()}
    env = open_data_envs(str(CONFIG), [f"env.specialists={json.dumps(specs)}"], slake)[0]
    env.prepare()
    servers = {name: env.toolbox[name].function.server for name in SPECS}
    assert servers["ask_radiologist"] is servers["write_report"]
    calls = [{"name": name, "arguments": {"image": "image_1", **given}} for name, given in ARGUMENTS.items()]
    reply = "".join(f"<tool_call>{json.dumps(call)}</tool_call>" for call in calls)
    task = env.tasks[0]
    episode = env.play(task, ScriptedPolicy([reply, env.write_answer(task)]))
    results = episode.turns[2].tool_results
    assert [(result.tool_name, result.error) for result in results] == [(name, None) for name in ARGUMENTS]
    assert set(results[0].facts) == {"NORMAL", "PNEUMONIA"}
    assert all(result.text for result in results)
    assert episode.scores.total == 1.0
    env.release()


def test_every_checkpoint_stands_in_the_table_needs_no_code_of_its_own_and_says_how_large_it_is():
    env = make("chest_xray", specialists=SPECS)
    for name, spec in env.specialists.items():
        assert isinstance(spec, ModelSpecialist)
        assert spec.memory is not None, name
        assert spec.offload, name
        assert spec.timeout * 3 <= schema.load(str(CONFIG)).env.settings["tool_timeout"]
        model = SPECS[name]["model"]
        [row] = [line for line in PAGE.splitlines() if line.startswith("|") and f"`{model}`" in line]
        assert f"`{SPECS[name]['kind']}`" in row
        license = re.search(r"Apache-2\.0|Health AI Developer Foundations", row)
        assert license, row
        assert license[0] in CONFIG.read_text()
        assert f"https://huggingface.co/{model}" in row


def test_memory_counts_the_specialists_or_says_what_is_missing(viewbox, tmp_path, tiny_folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    tiny = f"model.name={tiny_folder}"  # the config's own model takes ten seconds, and says the same of specialists
    status, _, err = viewbox("config", "memory", CONFIG, tiny, "--device-memory", "80GiB")
    assert status == 2
    assert "data.source = 'data/SLAKE/train.json': there is no folder 'data/SLAKE'" in err
    drawn = (tiny, "env.data.source=null", "env.eval.split=test", "--device-memory", "80GiB", "--json")
    status, out, err = viewbox("config", "memory", CONFIG, *drawn)
    assert status == 0, err
    phases = json.loads(out)["phases"]
    assert phases["generation"]["parts"]["specialists"] == (400 + 800 + 400 + 9 * 1024) * 2**20
    assert "specialists" not in phases["update"]["parts"]
    assert json.loads(out)["fits"]
