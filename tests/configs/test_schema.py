"""The YAML of a run: what it may say, how it is overridden, and errors that name file, key, value and nearest name.

One place turns pydantic's errors into sentences.
"""

from dataclasses import dataclass

import pytest
from pydantic import TypeAdapter, ValidationError

from tests.support.tables import each
from viewbox.configs import schema
from viewbox.configs.validation import describe_errors
from viewbox.configs.yaml_reader import parse_key_value, parse_key_values
from viewbox.errors import ConfigError
from viewbox.rollouts.job import read_config

PLAIN = "model: {name: m}\nenv: {name: digits}\n"
SHIPPED = ("quickstart", "tiny_warmstart", "qwen3_vl_4b_lora", "qwen3_vl_4b_qlora", "qwen2_5_vl_3b")


@pytest.fixture
def load(tmp_path):
    """Loads YAML text as the file run.yaml."""

    def run(text=PLAIN, *overrides):
        path = tmp_path / "run.yaml"
        path.write_text(text)
        return schema.load(str(path), overrides)

    return run


@pytest.fixture
def refused(load):
    """The words with which YAML text is refused."""

    def run(text=PLAIN, *overrides):
        with pytest.raises(ConfigError) as caught:
            load(text, *overrides)
        return str(caught.value)

    return run


def test_every_shipped_config_is_found_by_its_name_and_one_of_ones_own_comes_before_it(tmp_path, monkeypatch):
    for name in SHIPPED:
        config = schema.load(name)
        assert (config.env.name, config.env.eval) == ("digits", {"split": "test"})
        assert schema.load(f"{name}.yaml") == schema.load(f"configs/{name}.yaml") == config
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").write_text(PLAIN)
    assert schema.load("quickstart").model.name == "m"


OVERRIDES = [
    ("rollout.slots=7", lambda c: c.rollout.slots == 7),
    ("rollout.kv_cache_bytes=2GiB", lambda c: c.rollout.kv_cache_bytes == 2 * 2**30),
    ("rollout.kv_cache_bytes=500MB", lambda c: c.rollout.kv_cache_bytes == 500_000_000),
    ("rollout.stop=['</a>', x]", lambda c: c.rollout.stop == ("</a>", "x")),
    ("train.learning_rate=1e-4", lambda c: c.train.arguments["learning_rate"] == 1e-4),
    ("env.tools=[zoom, crop]", lambda c: c.env.settings["tools"] == ["zoom", "crop"]),
    ("env.eval={split: test, noise: 10}", lambda c: c.env.eval == {"split": "test", "noise": 10}),
    ("train.demonstrations.habits.guess=0.5", lambda c: c.train.demonstrations.habits == {"guess": 0.5}),
    ("lora.r=8", lambda c: (c.lora.r, c.lora.alpha) == (8, 32)),
    ("log.report_to=[tensorboard]", lambda c: c.log.report_to == ["tensorboard"]),
    ("rollout.timeout=null", lambda c: c.rollout.timeout is None),
]  # fmt: skip


@each("override, read", OVERRIDES)
def test_an_override_is_read_as_yaml_and_may_reach_keys_that_were_not_there(load, override, read):
    assert read(load(PLAIN, override))


def test_later_overrides_win_null_leaves_a_section_out_merges_work_and_a_config_is_frozen(load):
    text = PLAIN + "lora: {r: 4}\n"
    assert load(text, "rollout.slots=1", "rollout.slots=2").rollout.slots == 2
    assert load(text, "lora=null").lora is None
    text = "model: {name: m}\nenv: {name: digits, eval: &base {noise: 5, split: test}, more: {<<: *base, noise: 6}}\n"
    assert load(text).env.settings["more"] == {"noise": 6, "split": "test"}
    with pytest.raises(ValueError, match="frozen"):
        load().rollout.slots = 3


ONE_SOURCE = "exactly one of `episodes` and `demonstrations`"
REFUSED = [
    ("modle.name=x", "modle: unknown key 'modle'", "allowed: env, log, lora, model", "did you mean 'model'?"),
    ("rollout.slot=4", "rollout.slot: unknown key 'slot'", "did you mean 'slots'?"),
    ("model.tiny.hiden=3", "model.tiny.hiden: unknown key 'hiden'", "did you mean 'hidden'?"),
    ("rollout.slots=many", "rollout.slots = 'many'", "allowed: a whole number of at least 1"),
    ("rollout.slots=true", "rollout.slots = True", "allowed: a whole number"),
    ("rollout.slots='7'", "rollout.slots = '7'", "allowed: a whole number"),
    ("rollout.temperature=-1", "rollout.temperature = -1", "allowed: a number of at least 0"),
    ("rollout.top_p=0", "rollout.top_p = 0", "allowed: a number above 0 and of at most 1"),
    ("rollout.stop=x", "rollout.stop = 'x'", "allowed: a list of text"),
    ("rollout.stop=['']", "rollout.stop.0 = ''", "allowed: text that is not empty"),
    ("rollout.kv_cache_bytes=2 boxes", "rollout.kv_cache_bytes = '2 boxes'", "text such as 2GiB or 500MB"),
    ("rollout=3", "rollout = 3", "allowed: a mapping with the keys temperature, top_p"),
    ("train.method=ppo", "train.method = 'ppo'", "'grpo' or 'sft'"), ("env=null", "env = None"),
    ("train.demonstrations.habits.guess=often", "train.demonstrations.habits.guess = 'often'", "number"),
    ("model.tiny.hidden=32", "model: given: `name` and `tiny`; allowed: exactly one of `name` and `tiny`"),
    ("model.name=null", "model: given: neither; allowed: exactly one of `name` and `tiny`"),
    ("train.method=sft", ONE_SOURCE), ("train.method=sft train.episodes=x train.demonstrations.count=1", ONE_SOURCE),
]  # fmt: skip


def test_an_error_names_the_file_the_key_the_value_and_what_is_allowed_and_the_line_or_the_override(refused):
    for override, *words in REFUSED:
        said = refused(PLAIN, *(override.split() if " train." in override else [override]))
        assert all(word in said for word in ("run.yaml, ", *words)), (override, said)
    text = PLAIN + "rollout:\n  temperature: 1.0\n  slots: many\n"
    assert "run.yaml, line 5: rollout.slots = 'many'" in refused(text)
    assert "run.yaml, override 'rollout.slots=few': rollout.slots = 'few'" in refused(text, "rollout.slots=few")
    assert "run.yaml, override 'rollout={slot: 1}': rollout.slot: " in refused(text, "rollout={slot: 1}")


def test_an_error_keeps_its_key_and_its_class_when_its_line_is_added():
    config = schema.load("quickstart")
    with pytest.raises(ConfigError, match=r"quickstart\.yaml, line \d+: wrong") as caught, schema.locate_errors(config):
        raise ConfigError("wrong", key="rollout.slots")
    assert caught.value.key == "rollout.slots"


RESTRICTED = "model: {name: m}\nenv: {name: digits, data: {restricted: true, evaluation_only: its licence}}\n"
MIXED = "model: {name: m}\nenv: {name: mixture, environments: {a: {name: vqa, data: {restricted: true}}, digits: {}}}\n"
TAKES_BACK = (
    "env.data.restricted=false", "env.data.restricted=null", "env.data.evaluation_only=I may",
    "env.data={source: a.csv}", "env.data=null",
)  # fmt: skip


def test_an_override_can_restrict_data_and_not_take_back_what_the_file_says(load, refused, tmp_path):
    config = load(PLAIN, "env.data.restricted=true", "env.data.evaluation_only=a reason")
    assert config.env.settings["data"] == {"restricted": True, "evaluation_only": "a reason"}
    assert load(RESTRICTED, "env.data.restricted=true", "env.data.split=test").env.settings["data"]["restricted"]
    for override in TAKES_BACK:
        words = refused(RESTRICTED, override)
        assert override.split("=")[0] in words
        assert "allowed: to leave it so" in words
    for override in ("env.environments.a.data.restricted=false", "env.environments.a={name: vqa}"):
        assert "env.environments.a.data.restricted" in refused(MIXED, override)
    (tmp_path / "run.yaml").write_text(RESTRICTED)
    with pytest.raises(ConfigError, match=r"restricted = .*allowed: to leave it so"):  # of a rollout
        read_config(str(tmp_path / "run.yaml"), overrides=["env.data.restricted=false"])


LOADED = "dtype: float32, attention: eager, max_pixels: 4096, freeze: vision"


@each("section, revision", [("name: old, revision: v1", None), ("name: new, revision: v1", "v1"), ("tiny: {}", None)])
def test_another_model_is_loaded_as_the_config_says(tmp_path, section, revision):
    path = tmp_path / "run.yaml"
    path.write_text(f"model: {{{section}, {LOADED}}}\nenv: {{name: digits}}\n")
    model = read_config(str(path), model="new", overrides=["model.attention=sdpa"])[0].model
    assert (model.name, model.tiny, model.revision) == ("new", None, revision)
    assert (model.dtype, model.attention, model.max_pixels, model.freeze) == ("float32", "sdpa", 4096, "vision")


# ---------------------------------------------------------------------- pydantic's errors
@dataclass(frozen=True)
class Point:
    x: float
    y: float


DESCRIBED = [
    (Point, {"x": 1, "y": "up"}, "y = 'up'; allowed: a number"), (Point, {"x": 1}, "y: is missing; allowed: a number"),
    (dict[str, Point], {"a": {"x": 1, "y": None}}, "a.y = None; allowed: a number"),
    (list[Point], [{"x": 1, "y": "up"}], "0.y = 'up'; allowed: a number"), (int, "x", "= 'x'; allowed: a whole number"),
]  # fmt: skip


@each("expected, value, said", DESCRIBED)
def test_every_kind_of_annotation_is_described_at_its_key(expected, value, said):
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(expected).validate_python(value)
    (problem,) = describe_errors(caught.value, expected, value)
    assert str(problem).startswith(said)


def test_a_key_and_a_value_are_read_in_one_way_and_what_is_none_is_refused_with_the_text():
    assert parse_key_value("noise=1e-4") == ("noise", 1e-4)
    assert parse_key_value("text=a=b") == ("text", "a=b")
    assert parse_key_value("none=") == ("none", None)
    assert parse_key_values(["a.b=1", "a.c=[x, 2]", "d=5e3"]) == {"a": {"b": 1, "c": ["x", 2]}, "d": 5000.0}
    for text in ["a", "=1", "a.=1", ".a=1", " =1", "a..b=1"]:
        with pytest.raises(ConfigError, match=r"write key\.path=value") as caught:
            parse_key_values([text], "--set")
        assert repr(text) in str(caught.value)
    with pytest.raises(ConfigError, match=r"--set 'a\.b=2': 'a' is a value; allowed: a section"):
        parse_key_values(["a=1", "a.b=2"], "--set")
