"""A run never names code: scoring, comparing, summarizing or viewing it imports nothing that its own files name."""

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
from viewbox import envs, registry
from viewbox.errors import ConfigError
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.scoring.saved_run import find_run_of

GOOD = {"type": "exact_match", "field": "label"}
STRICT = "viewbox.rewards:ExactMatchReward"
REFUSED = "allowed in a run's own files"


def python(function="gift/helper.py:score", **more):
    return {"type": "python", "function": function, **more}


def combined(weight=0.5, **part):
    return {"type": "combined", "components": {"a": {**GOOD, "weight": 1 - weight}, "b": {**part, "weight": weight}}}


REWARDS = [
    python(), python("gift.helper:R"), python("{folder}/helper.py:score"), python(name="harmless"), python("os:system"),
    combined(**combined(**python())), combined(0.0, **python()),
    {"type": "combined", "components": {
        "a": {**GOOD, "weight": 1.0, "needs": {"b": 0.5}}, "b": {**python(), "weight": 0.0}}},
    combined(type="brier", of=combined(**python())), {"type": "mine"},
]  # fmt: skip
NO_REWARDS = ["gift.helper:score", "gift/helper.py:score", "gift/reward.yaml", ["gift.helper:R"], 7]
NAMES = [
    "gift.helper:E", "gift/helper.py:E", "{folder}/helper.py:E", "gift.helper:E.mro", "../gift/helper.py:E",
    " gift.helper:E ", "digits:gift.helper:E", "gift.helper", "os:system", ":", "mine", "nowhere", "",
]  # fmt: skip
ENVIRONMENTS = [
    *({"name": name} for name in [*NAMES, ["gift.helper:E"], 7, None]),
    {"name": "gift.helper:E", "max_turns": 3}, {"name": "gift.helper:E", "eval": {"name": "gift.helper:E"}},
    {"name": "mixture", "environments": {"gift.helper:E": {}}},
    {"name": "mixture", "environments": {"digits": {}, "b": {"name": "gift/helper.py:E"}}},
    {"name": "mixture", "environments": {"a": {"name": "mixture", "environments": {"gift.helper:E": {}}}}},
]  # fmt: skip
SETTINGS = {
    "coordinates": "gift.helper:score", "reply_format": "gift.helper:score", "reward": "gift.helper:R",
    "metrics": {"x": "gift.helper:score"}, "prompts": "gift/helper.py:E", "answer": "gift.helper:E",
    "images": "gift/helper.py", "split": "gift.helper:E", "on_answer": "gift.helper:E",
    "settings": {"name": "gift.helper:E"}, "__class__": "gift.helper:E", "_toolbox": {"zoom": "gift.helper:score"},
}  # fmt: skip
NOT_SCORED = {
    "tools": ["gift.helper:score"], "max_calls": {"gift.helper:score": 1}, "history": "gift.helper:E",
    "windows": {"gift.helper:E": {}}, "thinking": "gift.helper:E", "data": {"source": "gift.helper:E"},
}  # fmt: skip


@pytest.fixture
def gift(tmp_path, monkeypatch):
    """Makes a run in ./gift, whose folder can be imported from the current one; it names plug-ins of the process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setitem(registry.REWARDS, "mine", "gift.helper")
    monkeypatch.setattr(registry, "_read_entry_points", lambda group: {"mine": "gift.helper:E"})

    def make(config=None, lines=None):
        forget()
        shutil.rmtree(tmp_path / "gift", ignore_errors=True)
        text = None if config is None else yaml.safe_dump(config).replace("{folder}", str(tmp_path / "gift"))
        return forge_run(tmp_path / "gift", lines, text, code=True)

    def forget():
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "gift" or str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
                del sys.modules[name]
        importlib.invalidate_caches()

    yield make
    forget()


def look(viewbox, run):
    """Do with a run whatever else reads it."""
    for command in (
        ("score", run, "--reward", STRICT), ("score", run / "episodes"), ("compare", run, run, "--reward", STRICT),
        ("reward", "try", STRICT, "--episode", f"{run}#1"), ("view", run, "--out", "page"), ("runs", "list", run),
    ):  # fmt: skip
        viewbox(*command)
    str(package.summarize(package.load(run)))
    assert not has_run(run)


# ---------------------------------------------------------------------- rewards
@each("reward", [*REWARDS, *NO_REWARDS])
def test_a_reward_in_its_config_runs_no_code(gift, viewbox, reward):
    run = gift({"env": {"name": "digits"}, "reward": reward})
    status, out, err = viewbox("score", "gift")
    assert (status, out, has_run(run)) == (2, "", False)
    assert reward in NO_REWARDS or (REFUSED in err and "--reward" in err)
    assert not (run / "episodes" / "scores").exists()


@each("reward", [REWARDS[0], REWARDS[5], *REWARDS[-2:], *NO_REWARDS[:2]])
def test_nor_does_one_of_a_part_of_a_mixture_or_in_another_yaml_file_of_the_run(gift, viewbox, reward):
    run = gift({"env": {"name": "mixture", "environments": {"digits": {"reward": reward}}}})
    for place in ("reward.yaml", "episodes/reward.yml", "deep/er/reward.yaml"):
        (run / place).parent.mkdir(parents=True, exist_ok=True)
        (run / place).write_text(yaml.safe_dump({"env": {"name": "digits"}, "reward": reward}))
    for command in (
        ("score", "gift"), ("score", "gift", "--env", "mixture"), ("score", "gift", "--reward", "gift/reward.yaml"),
        ("score", "gift/episodes", "--reward", run / "episodes/reward.yml"),
        ("compare", "gift", "gift", "--reward", "gift/deep/er/reward.yaml"),
        ("reward", "try", "gift/reward.yaml", "--answer", "{}", "--reference", "{}"),
    ):  # fmt: skip
        assert viewbox(*command)[0] == 2
    assert not has_run(run)


def test_from_inside_the_run_its_files_are_still_its_own(gift, viewbox, monkeypatch):
    run = gift({"reward": python("helper.py:score")})
    monkeypatch.chdir(run)
    for command in (("score", "."), ("score", "episodes"), ("score", ".", "--reward", "config.yaml")):
        assert viewbox(*command)[0] == 2
    assert not has_run(run)
    (run / "config.yaml").write_text("env: {name: digits}")
    assert "config.yaml: has no section `reward`" in viewbox("score", ".", "--reward", "config.yaml")[2]
    assert find_run_of(run / "a" / "b" / "reward.yaml") == run
    assert find_run_of(run.parent / "reward.yaml") is None
    assert find_run_of(run.parent / "reward.yaml", run.parent) == run.parent


@each("given", [
    ("--reward", "gift/helper.py:score"), ("--reward", "mine.yaml"), ("--env", "gift.helper:E"), ("--env", "env.yaml"),
])  # fmt: skip
def test_what_is_named_on_the_command_line_or_in_a_file_elsewhere_is_the_users_own(gift, viewbox, tmp_path, given):
    run = gift({"env": {"name": "gift.helper:E"}}, [make_line(environment="gift")])
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(REWARDS[5]))
    (tmp_path / "env.yaml").write_text(yaml.safe_dump({"model": {"name": "m"}, "env": {"name": "gift.helper:E"}}))
    assert viewbox("score", "gift", *given)[0] == 0
    assert has_run(run)


# ---------------------------------------------------------------------- environments
@each("env", ENVIRONMENTS)
def test_an_environment_in_its_config_runs_no_code(gift, viewbox, env):
    run = gift({"env": env})
    status, _, err = viewbox("score", "gift")
    assert (status, has_run(run)) == (2, False)
    assert "env.name" in err or "env.environments = " in err
    if env in [ENVIRONMENTS[0], ENVIRONMENTS[-3]]:
        look(viewbox, run)


@each("name", NAMES)
def test_nor_does_one_in_its_episodes(gift, viewbox, name):
    run = gift(None, [make_line(number, environment=name) for number in range(2)])
    status, _, err = viewbox("score", "gift")
    assert (status, has_run(run), REFUSED in err, "--env" in err) == (2, False, True, True)
    if name in NAMES[:3]:
        look(viewbox, run)


def test_an_episode_that_names_code_costs_itself_and_the_metrics_say_why(gift, viewbox):
    run = gift(None, [make_line(0), make_line(1, environment="gift.helper:E"), make_line(2)])
    status, out, _ = viewbox("score", "gift")
    assert (status, has_run(run)) == (1, False)
    assert "2 episodes of 2 tasks" in out
    assert "line 2: the episode of task 't1': env.name = 'gift.helper:E'" in out
    status, out, err = viewbox("score", "gift", "--reward", STRICT)
    assert (status, err) == (0, "")
    assert "no metrics of the environment 'gift.helper:E': env.name" in out
    assert REFUSED in package.summarize(package.load("gift")).problems[0]
    assert package.summarize(package.load("gift"), "gift.helper:E").problems == ()
    assert has_run(run)


# ---------------------------------------------------------------------- settings
def place(name, **settings):
    """Settings of an environment alone, of it as a part of a mixture, and of the mixture."""
    part = {"name": "mixture", "environments": {"a": {"name": name, **settings}}}
    return ({"name": name, **settings}, part, {"name": "mixture", "environments": {name: {}}, **settings})


@each("key, value", [*SETTINGS.items(), *NOT_SCORED.items()])
def test_settings_of_an_environment_of_viewbox_name_no_code(gift, viewbox, key, value):
    for env in place("digits", **{key: value}):
        run = gift({"env": env})
        status, _, err = viewbox("score", "gift")
        assert key in NOT_SCORED or status == 2
        assert ("viewbox failed" in err, has_run(run)) == (False, False)


class Reads(envs.load_class("digits")):
    """An environment of viewbox with settings that name files, addresses and tools."""

    name = "reads"
    folder: str = "safe"
    users: dict[str, str] = {}  # noqa: RUF012
    files: tuple[str, ...] = ()
    limit: int = 3

    def __init__(self, **given):
        super().__init__(**given)
        if self.folder != "safe" or self.users or self.files:
            raise AssertionError("a stranger's setting was used")


READS = {"folder": "/etc/passwd", "users": {"simulator": "http://elsewhere.example"}, "files": ["a.yaml"]}


@each("key, value", READS.items())
def test_text_in_settings_may_name_anything(gift, viewbox, monkeypatch, key, value):
    monkeypatch.setitem(registry.ENVIRONMENTS, "reads", f"{__name__}:Reads")
    for env in place("reads", **{key: value}):
        gift({"env": env})
        status, _, err = viewbox("score", "gift")
        assert (status, f"env.{key} = " in err, "--env" in err) == (2, True, True)
    gift({"env": {"name": "reads", "limit": 5, "split": "test", "tools": ["zoom"], "max_turns": 2}})
    assert viewbox("score", "gift")[0] == 0


@each("specialists", [
    {"look": {"kind": "function", "function": "gift.helper:score"}},
    {"look": {"kind": "mcp", "command": ["python", "gift/helper.py"], "tools": {"more": {}}}},
    {"x": {"kind": "mcp", "command": ["python", "gift/helper.py"], "prefix": "", "tools": {"look": {}}}},
    {"look": {"kind": "http", "url": "http://127.0.0.1:9/look", "api_key_env": "OPENAI_API_KEY"}},
    {"look": {"kind": "gift.helper:E"}}, {"look": "gift.helper:score"}, ["gift.helper:score"],
])  # fmt: skip
def test_its_specialists_are_not_made(gift, viewbox, specialists):
    asked = {"specialists": specialists, "tools": ["zoom", "look", "look_more"], "max_calls": {"look": 2, "zoom": 1}}
    lines = [make_line(environment="digits", task={"id": "t1", "metadata": {"environment": "digits"}})]
    for env in (
        {"name": "digits", **asked},
        {"name": "mixture", "environments": {"digits": asked}},
        {"name": "mixture", **asked, "environments": {"digits": {"max_calls": {"zoom": 1}}}},
    ):
        run = gift({"env": env}, lines)
        for given in ((), ("--env", env["name"])):
            assert viewbox("score", "gift", *given)[::2] == (0, "")
        assert not has_run(run)


@each("source", ["{{ 9**(9**9) }}", "{{", "{{ x }}"])
@pytest.mark.timeout(120)
def test_its_templates_are_not_rendered(gift, viewbox, source):
    gift({"env": {"name": "digits", "templates": {"system": source, "no such": source}}})
    assert viewbox("score", "gift")[0] == 0


def test_an_environment_of_viewbox_is_not_looked_for_in_the_current_folder(gift, viewbox, tmp_path, monkeypatch):
    gift({"env": {"name": "digits"}})
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    assert viewbox("score", "gift")[0] == 0
    assert str(tmp_path) not in sys.path


@each("env", [{}, "digits", ["digits"], None])
def test_an_odd_section_is_an_error_in_words(gift, env):
    gift({"env": env})
    with contextlib.suppress(ConfigError):  # any other error fails the test
        score_run("gift")


@each("value", ["!!set {a, 1}", ".inf", "[{a: .nan}]"])
def test_a_value_that_json_does_not_have_is_an_error_in_words(gift, viewbox, tmp_path, value):
    gift({})
    (tmp_path / "gift" / "config.yaml").write_text(f"env: {{name: digits, eval: {value}}}")
    status, _, err = viewbox("score", "gift")
    assert status == 2
    assert "config.yaml, line 1" in err


@each("value", ["2001-01-01", "{2001-01-01: 1, 1.5: 2, null: 3, true: 4}", "[yes, 1:30]", "0x1F"])
def test_what_the_config_holds_besides_can_be_written_down(gift, viewbox, tmp_path, value):
    gift({})
    (tmp_path / "gift" / "config.yaml").write_text(f"env: {{name: digits, eval: {value}}}\nother: {value}")
    assert viewbox("score", "gift")[0] == 0
    json.loads(viewbox("score", "gift", "--format", "json", "--replace")[1], parse_constant=pytest.fail)
