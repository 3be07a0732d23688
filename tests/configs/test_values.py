"""The values of a config: what YAML writes, numbers that are finite, paths in full, seeds that every library takes.

Right values of plain scalars are those of yaml.org/spec/1.2.2, section 10.3.2, written by hand.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import yaml

import viewbox as package
from tests.support.tables import each
from viewbox.configs import schema
from viewbox.configs.sections import SamplingParams
from viewbox.configs.yaml_reader import parse, parse_key_values, write
from viewbox.core.portable import check_portable
from viewbox.envs.from_config import build_envs
from viewbox.errors import ConfigError
from viewbox.publish.package import PackagePlan, _build_header
from viewbox.rewards import CombinedReward, ExactMatchReward, build
from viewbox.training.trainer_args import build_trainer_arguments
from viewbox.utils.files import expand_path

RAW = {"model": {"name": "m"}, "env": {"name": "digits"}}
SCALARS = {  # as they are written: what they are
    "010": 10, "0o10": 8, "0x1F": 31, "08": 8, "+1": 1, "-1": -1, "0": 0, "1e-4": 1e-4, "1.": 1.0, ".5": 0.5,
    "-.5e+2": -50.0, "5e3": 5000.0, "1.0e-05": 1e-5, "true": True, "True": True, "TRUE": True, "false": False,
    "False": False, "FALSE": False, "null": None, "Null": None, "NULL": None, "~": None, "": None, "'010'": "010",
    "'no'": "no",
    **{text: text for text in ("1:30", "1:30:00", "off", "on", "On", "yes", "Yes", "no", "NO", "y", "n", "1_000",
        "1,000", "2026-11-25", "2026-11-25 10:00:00", "0b11", "0o8", "+0x1F", "tRUE", "nULL", "nan", "inf", "1e", "e5",
        ".", "+", "=", "1.5.2", "685_230.15", "190:20:30", "0x", "1e5x")},
}  # fmt: skip
NAMES = ["1e5", "61e9540", "58899e0", "0o10", "010", "0x1F", "no", "off", "y", "1:30", "1_000", "2026-11-25", "null",
         "~", "", "<<", "=", ".inf", "true", "1.", "+1", "a: b", "é"]  # fmt: skip


@each("text", SCALARS.keys())
def test_a_plain_scalar_is_what_the_core_schema_says(text):
    found = parse(f"a: {text}", "x.yaml")[0]["a"]
    assert (type(found), found) == (type(SCALARS[text]), SCALARS[text])


def test_an_override_and_a_setting_are_read_by_the_same_schema():
    assert schema.load("quickstart", ["train.seed=010"]).train.seed == 10
    assert schema.load("quickstart", ["train.seed=4294967295"]).train.seed == 2**32 - 1
    assert parse_key_values(["a=0x1F", "b=1:30", "c=off"]) == {"a": 31, "b": "1:30", "c": "off"}
    for value in ("58899e0", "1234567"):  # a commit
        with pytest.raises(ConfigError, match=r"model\.revision = .*allowed: text \(write a number in quotes\)"):
            schema.load("quickstart", [f"model.revision={value}"])
    assert schema.load("quickstart", ["model.revision='58899e0'"]).model.revision == "58899e0"


def test_what_is_written_is_read_back_as_it_was_a_text_by_either_version_of_yaml():
    for name in NAMES:
        written = write({"a": name, "b": [name]})
        assert parse(written, "x.yaml")[0] == yaml.safe_load(written) == {"a": name, "b": [name]}
    for number in (1e-5, 1e22, 5e-324, 0.1, -0.0, 10**20, True, None):
        assert parse(write([number]), "x.yaml")[0] == [number]
    plan = PackagePlan("a", "a", "1.0", "MIT", {}, front_matter=True)  # a language that YAML 1.1 reads as false
    header, _ = _build_header(plan, "---\nlanguage: [en, no]\nreleased: 2026-11-25\n---\n# A\n")
    assert yaml.safe_load(header.strip("-\n"))["language"] == ["en", "no"]


SWITCHES = {
    "train.bf16=yes": "true or false or null (did you mean true?)",
    "train.use_cpu=off": "true or false (did you mean false?)",
    "train.logging_first_step=On": "true or false (did you mean true?)",
    "train.gradient_checkpointing_kwargs={use_reentrant: no}": "true or false (did you mean false?)",
}


@each("override, allowed", SWITCHES.items())
def test_a_switch_of_yaml_1_1_is_refused_with_the_word_that_is_meant(override, allowed):
    with pytest.raises(ConfigError) as caught:
        build_trainer_arguments(schema.load("quickstart", [override]), "runs")
    assert str(caught.value).startswith(override.partition("=")[0])
    assert str(caught.value).endswith(f"; allowed: {allowed}")


# ---------------------------------------------------------------------- finite
COMPONENT = "reward={type: combined, components: {a: {type: exact_match, field: label, weight: .nan}}}"
NOT_FINITE = {  # an override: the key that is named
    "train.beta=.nan": "train.beta", "train.learning_rate=.NaN": "train.learning_rate",
    "train.adam_beta1=-.inf": "train.adam_beta1",
    "train.lr_scheduler_kwargs={min_lr: .nan}": "train.lr_scheduler_kwargs.min_lr",
    "train.demonstrations={habits: {guess: .inf}}": "train.demonstrations.habits.guess",
    "train.seed=.inf": "train.seed", "rollout.temperature=.inf": "rollout.temperature", "env.noise=.inf": "env.noise",
    "env.eval={noise: .nan}": "env.eval.noise", "env.data={columns: {a: {value: .nan}}}": "env.data.columns.a.value",
    "lora={dropout: .nan}": "lora.dropout", "log.eval_temperature=.Inf": "log.eval_temperature",
    "model.max_pixels=+.INF": "model.max_pixels", COMPONENT: "reward.components.a.weight",
}  # fmt: skip


@each("override, key", NOT_FINITE.items())
def test_a_number_that_is_not_finite_is_refused_with_its_key(override, key):
    with pytest.raises(ConfigError, match=r"override '.*allowed: a finite number") as caught:
        schema.load("quickstart", [override])
    assert caught.value.key == key
    assert f": {key} = " in str(caught.value)


SECTIONS = [
    {"train": {"adam_betas": (0.9, math.nan)}}, {"train": {"beta": np.float32("nan")}},
    {"rollout": {"temperature": math.inf}}, {"reward": {"type": "x", "weights": [-math.inf]}},
]  # fmt: skip


def test_in_a_file_it_is_refused_with_its_line_and_in_values_of_python_too(tmp_path):
    (tmp_path / "run.yaml").write_text("model: {name: m}\nenv: {name: digits}\ntrain:\n  beta: .nan\n")
    with pytest.raises(ConfigError, match=r"run\.yaml, line 4: train\.beta = nan; allowed: a finite number"):
        schema.load(str(tmp_path / "run.yaml"))
    for section in SECTIONS:
        with pytest.raises(ConfigError, match="allowed: a finite number"):
            schema.parse(RAW | section)


PYTHON = {
    "a setting": lambda: package.make("digits", noise=math.nan),
    "a nested setting": lambda: package.make("vqa", data={"columns": {"a": {"value": math.inf}}}),
    "text that pydantic reads as a number": lambda: package.make("digits", tool_timeout="inf"),
    "of an inner section": lambda: package.make("vqa", data={"difficulty": {"column": "c", "range": [0, "inf"]}}),
    "a window": lambda: package.make("digits", windows={"a": {"center": "nan", "width": 1}}),
    "a specialist": lambda: package.make("digits", specialists={"s": {"kind": "http", "url": "u", "timeout": "inf"}}),
    "a weight in a mapping": lambda: build({"type": "combined", "components": {"a": {"type": "exact_match",
        "field": "a", "weight": math.nan}}}),
    "a weight": lambda: CombinedReward({"a": (ExactMatchReward("a"), math.inf)}),
    "a tolerance": lambda: ExactMatchReward("a", tolerance=math.inf),
    "an option --set": lambda: parse_key_values(["noise=.nan"], "--set"),
    "sampling": lambda: SamplingParams(temperature=math.inf),
}  # fmt: skip


@each("call", PYTHON)
def test_what_is_made_in_python_has_finite_numbers(call):
    with pytest.raises(ValueError, match="finite number"):
        call()


COMMANDS = {
    "rollout --config quickstart --temperature nan": "rollout.temperature",
    "rollout --config quickstart endpoint.extra.top_a=.nan": "endpoint.extra.top_a = nan; allowed: a finite number",
    "data show quickstart env.noise=.inf": "env.noise = inf; allowed: a finite number",
    "export runs/x --to dpo --out o --gap nan": "--gap",
    "tools try x.png zoom factor=.nan": "factor = nan; allowed: a finite number",
    "reward try reward.yaml --answer {} --reference {}": "reward.yaml, line 1: tolerance = nan",
    "train quickstart train.beta=.nan --dry-run": "train.beta = nan; allowed: a finite number",
    "train quickstart train.seed=4294967296 --dry-run": "a whole number of at least 0 and of at most 4294967295",
    "train quickstart log.dir=${NOT_SET}/runs --dry-run": "log.dir = '${NOT_SET}/runs': the environment variable "
    "'NOT_SET' is not set",
    "train quickstart --resume=${NOT_SET}/x": "--resume: the environment variable 'NOT_SET' is not set",
    "rollout --config quickstart --out=${NOT_SET}/x": "--out: the environment variable 'NOT_SET' is not set",
}


@each("command, words", {line: (line, words) for line, words in COMMANDS.items()})
def test_a_command_refuses_the_value_with_status_2(tmp_path, viewbox, monkeypatch, command, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reward.yaml").write_text("{type: exact_match, field: a, tolerance: .nan}")
    status, out, err = viewbox(*command.split())
    assert status == 2
    assert words in " ".join((out + err).split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reward.yaml"]


# ---------------------------------------------------------------------- paths
CONFIG_PATHS = ["model.name", "log.dir", "log.name", "log.export", "train.episodes"]
SETTINGS = {  # where a path stands: the environment, and the key in it
    "data.source": "vqa", "data.source.test": "vqa", "data.images": "vqa", "data.difficulty.rewards": "vqa",
    "catalogue": "software_adviser", "specialists.s.snapshot": "digits", "specialists.s.cache": "digits",
    "specialists.s.model": "digits",
}  # fmt: skip
BESIDE = {"data.difficulty.rewards": {"range": [0, 1]}, "specialists.s.model": {"kind": "detection"}}
BESIDE |= {f"specialists.s.{name}": {"kind": "literature"} for name in ("snapshot", "cache")}


def make_with(key, path):
    """Return what an environment has at a key that was given a path."""
    *parents, last = key.split(".")
    settings = {**BESIDE.get(key, {}), last: path}
    for parent in reversed(parents):
        settings = {parent: settings}
    found = package.make(SETTINGS[key], **settings)
    for name in key.split("."):
        found = found[name] if isinstance(found, Mapping) else getattr(found, name)
    return found


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DATA", str(tmp_path / "home" / "data"))
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefgh12345678")
    monkeypatch.delenv("NOT_SET", raising=False)
    return tmp_path / "home"


@each("key", CONFIG_PATHS)
def test_a_path_of_a_config_is_read_in_full(home, key):
    section, name = key.split(".")
    for text, full in {"~/a": home / "a", "$DATA/a": home / "data" / "a", "${DATA}": home / "data"}.items():
        config = schema.load("quickstart", [f"{key}={text}"])
        assert getattr(getattr(config, section), name) == str(full)
    with pytest.raises(
        ConfigError, match=r"'\$\{NOT_SET\}/a': the environment variable 'NOT_SET' is not set"
    ) as caught:
        schema.load("quickstart", [f"{key}=${{NOT_SET}}/a"])
    assert caught.value.key == key


@each("key", SETTINGS.keys())
def test_a_path_of_an_environment_is_read_in_full(home, key):
    for text, full in {"~/a": home / "a", "${DATA}/a": home / "data" / "a"}.items():
        assert make_with(key, text) == str(full)
    with pytest.raises(ConfigError, match="the environment variable 'NOT_SET' is not set") as caught:
        make_with(key, "${NOT_SET}/a")
    assert caught.value.key == key


@each("text", ["${NOT_SET}/a", "$NOT_SET", "${EMPTY}/a", "${HF_TOKEN}", "owner/$HF_TOKEN", "~nobody-of-this-name/a",
               "${oc.env:HOME}/a", "${HOME:-x}/a"])  # fmt: skip
def test_a_path_that_cannot_be_completed_is_refused(home, text):
    with pytest.raises(ConfigError, match="allowed: ") as caught:
        schema.load("quickstart", [f"model.name={text}"])
    assert caught.value.key == "model.name"
    assert "hf_abc" not in str(caught.value)


@each(
    "name", ["Qwen/Qwen3-VL-4B-Instruct", "package:tiny_viewer", "runs/a~1", "a/~b", "./~a", "C:\\a", "price$", "a b"]
)
def test_another_name_stays_as_it_is(name):
    assert expand_path(name) == name


def test_code_by_path_is_found_in_the_home_folder(home):
    (home / "mine.py").write_text(
        "from viewbox.envs.digits import Digits\nclass Mine(Digits): pass\ndef half(answer, reference): return 0.5\n"
    )
    raw = {**RAW, "env": {"name": "~/mine.py:Mine"}, "reward": {"type": "python", "function": "${HOME}/mine.py:half"}}
    env = build_envs(schema.parse(raw), {})[0]
    assert type(env).__name__ == "Mine"
    assert env.reward.score({}, {})[0] == 0.5
    for section, key in (
        ({"env": {"name": "$NOT_SET/mine.py:Mine"}}, "env.name"),
        ({"reward": {"type": "python", "function": "$NOT_SET/mine.py:half"}}, "reward"),
    ):
        with pytest.raises(ConfigError, match="variable 'NOT_SET' is not set") as caught:
            build_envs(schema.parse(RAW | section), {})
        assert caught.value.key == key


def test_an_option_behind_an_equals_sign_and_the_program_of_a_server_are_of_the_home_folder(
    home, viewbox, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    given = {"kind": "mcp", "command": ["~/bin/server", "$1", "~"], "tools": {"look": {}}}
    env = package.make("digits", specialists={"s": given})
    assert env.specialists["s"].command == (str(home / "bin" / "server"), "$1", "~")
    assert viewbox("view", "quickstart", "--tasks=1", "--out=~/tasks.html")[0] == 0
    assert (home / "tasks.html").is_file()
    assert not Path("~").exists()


@each("text", ["$DATA/a.csv", "${DATA}/a.csv"])
def test_a_package_holds_no_path_of_this_machine(text):
    with pytest.raises(ConfigError, match="is a path of this machine"):
        check_portable({"catalogue": text}, "env")
