"""Scoring, summarizing or viewing somebody's run imports no code that its own files name."""

import contextlib
import importlib
import json
import shutil
import sys

import pytest
import yaml

import viewbox as package
from tests.support.forged_runs import forge_run, has_run, make_line
from tests.support.tables import each
from viewbox import envs, plugins
from viewbox.errors import ConfigError
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.scoring.trust import find_run_of

GOOD = {"type": "exact_match", "field": "label"}


def python(function="gift/helper.py:score", **more):
    return {"type": "python", "function": function, **more}


def combined(weight=0.5, **part):
    return {"type": "combined", "components": {"a": {**GOOD, "weight": 1 - weight}, "b": {**part, "weight": weight}}}


REWARDS = {
    "a file": python(),
    "a module": python("gift.helper:score"),
    "an episode's function": python("gift/helper.py:of_episode"),
    "a class": python("gift.helper:R"),
    "an absolute file": python("{folder}/helper.py:score"),
    "a dotted name": python("gift.helper:R.__call__"),
    "a name of its own": python(name="harmless"),
    "a code of the standard library": python("os:system"),
    "a part": combined(**python()),
    "a part of a part": combined(**combined(**python())),
    "a part with weight 0": combined(0.0, **python()),
    "a part that is needed": {
        "type": "combined",
        "components": {"a": {**GOOD, "weight": 1.0, "needs": {"b": 0.5}}, "b": {**python(), "weight": 0.0}},
    },
    "who is right": {"type": "brier", "of": python()},
    "who is right in a part": combined(type="brier", of=combined(**python())),
    "who is right twice": {"type": "brier", "of": {"type": "brier", "of": python()}},
}
ENVIRONMENTS = {
    "a module": {"name": "gift.helper:E"},
    "a file": {"name": "gift/helper.py:E"},
    "an absolute file": {"name": "{folder}/helper.py:E"},
    "with settings": {"name": "gift.helper:E", "max_turns": 3},
    "a dotted name": {"name": "gift.helper:E.mro"},
    "a path out": {"name": "../gift/helper.py:E"},
    "a list": {"name": ["gift.helper:E"]},
    "a mapping": {"name": {"digits": "gift.helper:E"}},
    "a number": {"name": 7},
    "spaces": {"name": " gift.helper:E "},
    "the held-out part": {"name": "gift.helper:E", "eval": {"name": "gift.helper:E"}},
    "a registered name and code": {"name": "digits:gift.helper:E"},
    "another case": {"name": "Gift.helper:E"},
}
SETTINGS = {
    "tools": ["gift.helper:score"], "max_calls": {"gift.helper:score": 1}, "coordinates": "gift.helper:score",
    "reply_format": "gift.helper:score", "history": "gift.helper:E", "reward": "gift.helper:R",
    "metrics": {"x": "gift.helper:score"}, "prompts": "gift/helper.py:E", "answer": "gift.helper:E",
    "images": "gift/helper.py", "split": "gift.helper:E", "on_answer": "gift.helper:E",
    "settings": {"name": "gift.helper:E"}, "__class__": "gift.helper:E", "_toolbox": {"zoom": "gift.helper:score"},
}  # fmt: skip


@pytest.fixture
def gift(tmp_path, monkeypatch):
    """Makes a run in ./gift, whose folder can be imported from the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])

    def make(lines=None, config=None, **settings):
        forget()
        shutil.rmtree(tmp_path / "gift", ignore_errors=True)
        text = None if config is None else yaml.safe_dump(config).replace("{folder}", str(tmp_path / "gift"))
        return forge_run(tmp_path / "gift", lines, text, code=True, **settings)

    def forget():
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "gift" or str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
                del sys.modules[name]
        importlib.invalidate_caches()

    yield make
    forget()


def unsafe(episodes=2, **fields):
    return [make_line(number, **fields) for number in range(episodes)]


# ---------------------------------------------------------------------- rewards
@each("reward", REWARDS)
def test_a_reward_in_its_config_runs_no_code(gift, viewbox, reward):
    run = gift(config={"env": {"name": "digits"}, "reward": reward})
    status, out, err = viewbox("score", "gift")
    assert not has_run(run)
    assert (status, out) == (2, "")
    assert "would import and run" in err
    assert "--trust" in err
    assert not (run / "episodes" / "scores").exists()


@each("name", ["a file", "a part of a part", "who is right"])
def test_trusted_it_runs(gift, viewbox, name):
    run = gift(config={"env": {"name": "digits"}, "reward": REWARDS[name]})
    assert viewbox("score", "gift", "--trust")[0] == 0
    assert has_run(run)


@each("name", ["a file", "a part", "who is right"])
@each("place", ["reward.yaml", "config.yaml", "episodes/reward.yml", "deep/er/reward.yaml"])
def test_a_yaml_file_in_the_run_is_the_runs_own(gift, viewbox, place, name):
    run = gift(config={"env": {"name": "digits"}})
    (run / place).parent.mkdir(parents=True, exist_ok=True)
    (run / place).write_text(yaml.safe_dump({"env": {"name": "digits"}, "reward": REWARDS[name]}))
    for command in (
        ("score", "gift", "--reward", f"gift/{place}"),
        ("score", "gift/episodes", "--reward", run / place),
        ("reward", "try", f"gift/{place}", "--answer", "{}", "--reference", "{}"),
    ):
        status, _, err = viewbox(*command)
        assert (status, "--trust" in err) == (2, True)
    assert not has_run(run)


def test_from_inside_the_run_its_files_are_still_its_own(gift, viewbox, monkeypatch):
    run = gift(config={"reward": python("helper.py:score")})
    monkeypatch.chdir(run)
    for command in (("score", "."), ("score", "episodes"), ("score", ".", "--reward", "config.yaml")):
        assert viewbox(*command)[0] == 2
    assert not has_run(run)


def test_a_name_on_the_command_line_is_the_users_own(gift, viewbox):
    run = gift(config={"env": {"name": "digits"}})
    assert viewbox("score", "gift", "--reward", "gift/helper.py:score")[0] == 0
    assert has_run(run)


def test_so_is_a_yaml_file_elsewhere(gift, viewbox, tmp_path):
    run = gift()
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(REWARDS["a part"]))
    assert viewbox("score", "gift", "--reward", "mine.yaml")[0] == 0
    assert has_run(run)


def test_a_file_of_a_run_is_found_from_any_depth(tmp_path):
    run = forge_run(tmp_path / "run")
    assert find_run_of(run / "a" / "b" / "reward.yaml") == run
    assert find_run_of(tmp_path / "reward.yaml") is None
    assert find_run_of(tmp_path / "reward.yaml", tmp_path) == tmp_path


def test_a_plug_in_of_the_process_is_not_for_a_run(gift, viewbox, monkeypatch):
    run = gift(config={"reward": {"type": "mine"}})
    monkeypatch.setitem(plugins.REWARDS, "mine", "gift.helper")
    status, _, err = viewbox("score", "gift")
    assert (status, has_run(run)) == (2, False)
    assert "gift.helper" in err


# ---------------------------------------------------------------------- environments
@each("env", ENVIRONMENTS)
def test_an_environment_in_its_config_runs_no_code(gift, viewbox, tmp_path, env):
    run = gift(config={"env": env})
    (tmp_path / "strict.yaml").write_text(yaml.safe_dump(GOOD))
    status, _, err = viewbox("score", "gift")
    assert (status, has_run(run)) == (2, False)
    assert "env.name" in err
    viewbox("score", "gift", "--reward", "strict.yaml")
    viewbox("score", "gift", "--reward", "viewbox.rewards:ExactMatchReward")
    viewbox("score", "gift/episodes")
    assert not has_run(run)


SPECIALISTS = {
    "a function": {"look": {"kind": "function", "function": "gift.helper:score"}},
    "a file": {"look": {"kind": "function", "function": "gift/helper.py:score"}},
    "a program": {"look": {"kind": "mcp", "command": ["python", "gift/helper.py"], "tools": {"more": {}}}},
    "a program, its tools under names of their own": {
        "x": {
            "kind": "mcp",
            "command": ["python", "gift/helper.py"],
            "prefix": "",
            "tools": {"look": {}, "look_more": {}},
        }
    },
    "an address": {"look": {"kind": "http", "url": "http://127.0.0.1:9/look", "api_key_env": "OPENAI_API_KEY"}},
    "a kind that is code": {"look": {"kind": "gift.helper:E"}},
    "no mapping": {"look": "gift.helper:score"},
    "a list": ["gift.helper:score"],
}


@each("flags", [(), ("--trust",)])
@each("place", ["environment", "part", "mixture"])
@each("specialists", SPECIALISTS)
def test_its_specialists_are_not_made_even_if_it_is_trusted(gift, viewbox, specialists, place, flags):
    asked = {"specialists": specialists}
    if isinstance(specialists, dict):
        asked |= {"tools": ["zoom", "look", "look_more"], "max_calls": {"look": 2, "zoom": 1}}
    env = {
        "environment": {"name": "digits", **asked},
        "part": {"name": "mixture", "environments": {"digits": asked}},
        "mixture": {"name": "mixture", **asked, "environments": {"digits": {"max_calls": {"zoom": 1}}}},
    }[place]
    lines = unsafe(environment="digits", task={"id": "t1", "metadata": {"environment": "digits"}})
    run = gift(lines, config={"env": env})
    status, _, err = viewbox("score", "gift", *flags)
    assert (status, err, has_run(run)) == (0, "", False)


def test_with_a_reward_of_ones_own_the_scores_are_there_and_the_metrics_say_why_not(gift, viewbox, tmp_path):
    gift(config={"env": {"name": "gift.helper:E"}})
    (tmp_path / "strict.yaml").write_text(yaml.safe_dump(GOOD))
    status, out, err = viewbox("score", "gift", "--reward", "strict.yaml")
    assert (status, err) == (0, "")
    assert "no metrics of the environment 'gift.helper:E'" in out
    assert "--trust" in out


@each("name", ["gift.helper:E", "gift/helper.py:E", "../gift/helper.py:E", "os:system", ":", "a:", ":b"])
@each("command", ["score", "score --reward", "summarize", "load", "picture", "score_run", "try"])
def test_an_environment_in_its_episodes_runs_no_code(gift, viewbox, name, command):
    run = gift(unsafe(environment=name))
    if command == "score":
        status, _, err = viewbox("score", "gift")
        assert (status, "--trust" in err) == (2, True)
    elif command == "score --reward":
        assert viewbox("score", "gift", "--reward", "viewbox.rewards:ExactMatchReward")[0] == 0
    elif command == "summarize":
        found = package.summarize(package.load("gift"))
        assert "--trust" in found.problems[0]
        assert "trust=True" in str(found)
    elif command == "load":
        assert len(list(package.load("gift"))) == 2
    elif command == "picture":
        assert viewbox("view", "gift", "--out", "a.html")[0] == 0
    elif command == "score_run":
        with pytest.raises(ConfigError, match="trust=True"):
            score_run("gift")
    else:
        command = ("viewbox.rewards:ExactMatchReward", "--episode", "gift#1")
        assert viewbox("reward", "try", *command)[0] == 0
    assert not has_run(run)


def test_trusted_it_is_made(gift, viewbox):
    run = gift(unsafe(environment="gift.helper:E"))
    assert viewbox("score", "gift", "--trust")[0] == 0
    assert has_run(run)


def test_summarize_takes_a_trusted_run_too(gift):
    run = gift(unsafe(environment="gift.helper:E"))
    assert package.summarize(package.load("gift"), trust=True).problems == ()
    assert has_run(run)


def test_one_episode_that_names_code_costs_itself(gift, viewbox):
    run = gift([make_line(0), make_line(1, environment="gift.helper:E"), make_line(2)])
    status, out, _ = viewbox("score", "gift")
    assert (status, has_run(run)) == (1, False)
    assert "2 episodes of 2 tasks" in out
    assert "line 2: the episode of task 't1': env.name = 'gift.helper:E'" in out


@each("setting", [*SETTINGS])
def test_settings_of_a_registered_environment_name_no_code(gift, viewbox, setting):
    run = gift(config={"env": {"name": "digits", setting: SETTINGS[setting]}})
    status, _, err = viewbox("score", "gift")
    assert (status, has_run(run)) == (2, False)
    assert "viewbox failed" not in err


class Reads(envs.load_class("digits")):
    """A registered environment with settings that name files, addresses and tools."""

    name = "reads"
    folder: str = "safe"
    users: dict[str, str] = {}  # noqa: RUF012
    files: tuple[str, ...] = ()
    limit: int = 3

    def __init__(self, **given):
        super().__init__(**given)
        if self.folder != "safe" or self.users or self.files:
            raise AssertionError("a stranger's setting was used")


READS = {
    "folder": "/etc/passwd",
    "users": {"simulator": "http://elsewhere.example"},
    "files": ["a.yaml"],
}


@each("setting", [*READS])
def test_text_in_the_settings_of_a_registered_environment_may_name_anything(gift, viewbox, monkeypatch, setting):
    monkeypatch.setitem(plugins.ENVIRONMENTS, "reads", f"{__name__}:Reads")
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    gift(config={"env": {"name": "reads", setting: READS[setting]}})
    status, _, err = viewbox("score", "gift")
    assert status == 2
    assert f"env.{setting} = " in err
    assert "--trust" in err


def test_its_numbers_and_named_choices_may_be_set(gift, viewbox, monkeypatch):
    monkeypatch.setitem(plugins.ENVIRONMENTS, "reads", f"{__name__}:Reads")
    gift(config={"env": {"name": "reads", "limit": 5, "split": "test", "tools": ["zoom"], "max_turns": 2}})
    assert viewbox("score", "gift")[0] == 0


def test_a_registered_environment_is_not_looked_for_in_the_current_folder(gift, viewbox, tmp_path, monkeypatch):
    gift(config={"env": {"name": "digits"}})
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    assert viewbox("score", "gift")[0] == 0
    assert str(tmp_path) not in sys.path


@each(
    "source",
    [
        "{{ 9**(9**9) }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{",
        "{{ x }}",
    ],
)
@pytest.mark.timeout(120)
def test_its_templates_are_not_rendered(gift, viewbox, source):
    gift(config={"env": {"name": "digits", "templates": {"system": source, "no such": source}}})
    assert viewbox("score", "gift")[0] == 0


@each("env", [{"name": "nowhere"}, {"name": ""}, {}, "digits", ["digits"], None, {"name": None}])
def test_an_odd_section_is_an_error_in_words(gift, env):
    gift(config={"env": env})
    with contextlib.suppress(ConfigError):  # any other error fails the test
        score_run("gift")


@each("value", ["!!set {a, 1}", "!!binary eA==", "!!timestamp 2001-01-01", ".inf", "[{a: .nan}]"])
def test_a_value_that_json_does_not_have_is_an_error_in_words(gift, viewbox, tmp_path, value):
    gift(config={})
    (tmp_path / "gift" / "config.yaml").write_text(f"env: {{name: digits, eval: {value}}}")
    status, _, err = viewbox("score", "gift")
    assert status == 2
    assert "config.yaml, line 1" in err


@each("value", ["2001-01-01", "{2001-01-01: 1, 1.5: 2, null: 3, true: 4}", "[yes, 1:30]", "0x1F"])
def test_what_the_config_holds_besides_can_be_written_down(gift, viewbox, tmp_path, value):
    gift(config={})
    (tmp_path / "gift" / "config.yaml").write_text(f"env: {{name: digits, eval: {value}}}\nother: {value}")
    assert viewbox("score", "gift")[0] == 0
    json.loads(viewbox("score", "gift", "--format", "json", "--replace")[1], parse_constant=pytest.fail)
