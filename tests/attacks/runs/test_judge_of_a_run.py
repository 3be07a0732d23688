"""A judge that somebody's run names is not asked, gets no key of others, and writes nothing elsewhere."""

import json

import pytest
import yaml

from tests.support.forged_runs import forge_run
from tests.support.servers import make_completion, serve
from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.rewards import build
from viewbox.rollouts.judge.client import find_cache_folder
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.scoring.saved_run import SavedRun, build_reward, find_reward

LABEL = {"type": "exact_match", "field": "label"}
SECRETS = ["GITHUB_TOKEN", "AWS_API_KEY", "HOME", "AWS_JUDGE_KEY"]  # all of them are in ../doors/test_hosts.py


def judge(url="http://127.0.0.1:9/v1", **more):
    return {"type": "judge", "field": "label", "endpoint": url, "model": "m", **more}


def part(spec, weight=0.5, **more):
    components = {"label": {**LABEL, "weight": 1 - weight}, "j": {**spec, "weight": weight}, **more}
    return {"type": "combined", "components": components}


def need(spec):
    return part(spec, 0.0, label={**LABEL, "weight": 1.0, "needs": {"j": 0.5}})


ASKED = [lambda spec: spec, part, lambda spec: part(part(spec))]
WEIGHTLESS = [lambda spec: part(spec, 0.0), need]
PLACES = [
    *ASKED, *WEIGHTLESS, lambda spec: {"type": "brier", "of": spec},
    lambda spec: part({"type": "brier", "of": part(spec)}),
]  # fmt: skip


@pytest.fixture
def server():
    with serve(lambda body, number: make_completion(json.dumps({"score": 0.5}))) as running:
        yield running


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path):
    for name in ("GITHUB_TOKEN", "JUDGE_KEY", "MY_API_KEY"):
        monkeypatch.setenv(name, f"a-secret-of-{name}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.chdir(tmp_path)


def forge(tmp_path, reward, **env):
    return forge_run(tmp_path / "gift", config={"env": {"name": "digits", **env}, "reward": reward})


# ---------------------------------------------------------------------- asking
@each("place", PLACES)
@each("variable", [None, "GITHUB_TOKEN", "JUDGE_KEY"])
def test_it_is_not_asked_and_its_address_is_shown(tmp_path, server, viewbox, place, variable):
    forge(tmp_path, place(judge(server.url, **({"api_key_env": variable} if variable else {}))))
    status, out, err = viewbox("score", "gift")
    assert (status, out, server.requests) == (2, "", [])
    assert all(words in err for words in (server.url, "--ask-judge", variable or "without a key"))
    assert "a-secret" not in err


@each("place", ["reward.yaml", "config.yaml", "episodes/j.yaml"])
def test_nor_is_one_in_another_file_of_the_run(tmp_path, server, viewbox, place):
    run = forge(tmp_path, LABEL)
    (run / place).write_text(yaml.safe_dump({"env": {"name": "digits"}, "reward": judge(server.url)}))
    for command in (
        ("score", "gift", "--reward", f"gift/{place}"),
        ("reward", "try", f"gift/{place}", "--answer", '{"label": "a"}', "--reference", '{"label": "a"}'),
    ):
        status, _, err = viewbox(*command)
        assert (status, "--ask-judge" in err, server.requests) == (2, True, [])
    for look in (lambda: find_reward(f"gift/{place}"), lambda: SavedRun("gift", run, f"gift/{place}").source):
        with pytest.raises(ConfigError, match="--ask-judge"):
            look()


@each("place", ASKED)
def test_with_the_flag_and_the_argument_it_is_asked(tmp_path, server, viewbox, place):
    asked = len(server.requests)
    forge(tmp_path, place(judge(server.url, api_key_env="JUDGE_KEY")))
    assert viewbox("score", "gift", "--ask-judge")[0] == 0
    assert len(server.requests) > asked
    assert score_run("gift", ask_judge=True, name="own").counts["judge/calls"] == 1  # two equal requests


@each("place", [
    *WEIGHTLESS, lambda spec: part(part(spec, 1.0), 0.0), lambda spec: part(part(spec, 0.0), 1.0),
])  # fmt: skip
def test_of_weight_0_it_is_not_asked_even_then(tmp_path, server, viewbox, place):
    forge(tmp_path, place(judge(server.url)))
    status, _, err = viewbox("score", "gift", "--ask-judge")
    assert (status, server.requests) == (2, [])
    assert place not in WEIGHTLESS or "has the weight 0" in err


def test_a_judge_of_the_users_own_is_asked(tmp_path, server, viewbox):
    forge(tmp_path, judge("http://127.0.0.1:9/v1"))
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(judge(server.url)))
    assert viewbox("score", "gift", "--reward", "mine.yaml")[0] == 0
    assert server.requests


# ---------------------------------------------------------------------- keys
@each("variable", SECRETS)
@each("owner", ["the run's", "the user's"])
def test_only_a_variable_made_for_a_judge_is_read(monkeypatch, server, owner, variable):
    monkeypatch.setenv(variable, "a-secret-value")
    spec = judge(server.url, api_key_env=variable)
    with pytest.raises(ConfigError, match="api_key_env") as caught:
        build(spec) if owner == "the user's" else build_reward(spec, "config.yaml", ask_judge=True)
    assert "a-secret-value" not in str(caught.value)
    assert server.requests == []


def test_no_variable_is_read_before_the_user_agrees(monkeypatch):
    read = []
    monkeypatch.setattr("os.environ.get", lambda name, *default: read.append(name))
    with pytest.raises(ConfigError, match="would send the answers"):
        build_reward(judge(api_key_env="MY_API_KEY"), "config.yaml")
    assert read == []


# ---------------------------------------------------------------------- caches
@each("cache", ["/any/where", "../elsewhere", "a/../../..", "", " ", ".", "a/..", "a\0b", "~/x/../../.."])
def test_its_cache_stays_in_the_users_cache_folder(tmp_path, server, cache):
    before = sorted(tmp_path.rglob("*"))
    for ask_judge in (False, True):
        with pytest.raises(ConfigError):
            build_reward(judge(server.url, cache=cache), "config.yaml", ask_judge=ask_judge)
    if cache != "~/x/../../..":
        with pytest.raises(ConfigError, match="cache"):
            build(judge(server.url, cache=cache))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_name_is_a_folder_in_there_and_a_link_that_leads_out_is_refused(tmp_path, server, viewbox):
    forge(tmp_path, judge(server.url, cache="runs/judge"))
    assert viewbox("score", "gift", "--ask-judge")[0] == 0
    assert (tmp_path / "caches" / "viewbox" / "judge" / "runs" / "judge" / "judge.sqlite").is_file()
    assert not (tmp_path / "runs").exists()
    (tmp_path / "caches" / "viewbox" / "judge" / "out").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="cache"):
        find_cache_folder("out/deeper")


@each("given", ["relative", ""])
def test_a_program_may_name_any_folder_and_a_relative_cache_home_is_ignored(monkeypatch, tmp_path, given):
    assert find_cache_folder(tmp_path) == tmp_path
    assert find_cache_folder(None) is None
    monkeypatch.setenv("XDG_CACHE_HOME", given)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_cache_folder("a").is_relative_to(tmp_path)
