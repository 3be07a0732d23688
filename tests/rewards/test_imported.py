"""A reward by import path: every form that is allowed, and every mistake named before the first episode."""

import functools
import sys
from types import SimpleNamespace

import pytest

from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.rewards import CombinedReward, IoUReward, build, to_combined
from viewbox.rewards.declare import load_reward

SOURCE = """
from dataclasses import dataclass
from neighbor import LIMIT

def half(answer, reference):
    return LIMIT

def lenient(answer, reference, *, slack=1, **more):
    return 1.0

def short(episode, longest=3):
    return float(episode.num_turns <= longest)

def one(answer):
    return 1.0

def none():
    return 1.0

def three(answer, reference, extra):
    return 1.0

def keyword(answer, reference, *, extra):
    return 1.0

def two_of_episode(episode, other):
    return 1.0

async def late(answer, reference):
    return 1.0

def generator(answer, reference):
    yield 1.0

def broken(answer, reference):
    raise ValueError("no")

def nan(answer, reference):
    return float("nan")

@dataclass(frozen=True)
class Made:
    name: str = "made"
    def __call__(self, answer, reference):
        return 0.25

class Nameless:
    def of_episode(self, episode):
        return 0.75

class Needs:
    def __init__(self, field):
        pass

class BadEpisode:
    def of_episode(self):
        return 1.0

made = Made("ready")
quick = lambda answer, reference: 0.125
number = 7
"""
EPISODE = SimpleNamespace(num_turns=2)


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A folder with the module `own_rewards`, which is the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    (tmp_path / "neighbor.py").write_text("LIMIT = 0.5\n")
    (tmp_path / "own_rewards.py").write_text(SOURCE)
    yield tmp_path
    for name in ("neighbor", "own_rewards"):
        sys.modules.pop(name, None)


@each("module", ["own_rewards", "own_rewards.py", "./own_rewards.py"])
@each(
    ("name", "called", "value"),
    [
        ("half", "half", 0.5), ("lenient", "lenient", 1.0), ("short", "short", 1.0), ("Made", "made", 0.25),
        ("made", "ready", 0.25), ("Nameless", "Nameless", 0.75), ("quick", "quick", 0.125),
    ],
)  # fmt: skip
def test_every_form_is_a_reward_with_a_name(source, module, name, called, value):
    reward = load_reward(f"{module}:{name}")
    assert reward.name == called
    assert to_combined(reward).score({}, {}, EPISODE) == (value, {called: value})


@each("name", ["half", "short", "Made", "Nameless"])
def test_a_name_can_be_given(source, name):
    assert to_combined(load_reward(f"own_rewards:{name}", "mine")).score({}, {}, EPISODE)[1].keys() == {"mine"}


def test_the_rewards_of_the_package_can_be_named_too():
    assert load_reward("viewbox.rewards:IoUReward") == IoUReward()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("own_rewards", r"allowed: package\.module:Name or path/to/file\.py:Name"),
        ("own_rewards:", r"allowed: package\.module:Name"),
        ("own_reward:half", "No module named 'own_reward'; allowed: a module"),
        ("absent.py:half", "absent.py: no such file; allowed"),
        ("own_rewards:hlf", "unknown name 'hlf'.*did you mean 'half'"),
        ("own_rewards:number", "is a int; allowed: a function of"),
        ("own_rewards:none", r"takes \(\), not \(answer, reference\)"),
        ("own_rewards:one", r"takes \(answer\), not \(answer, reference\)"),
        ("own_rewards:three", r"takes \(answer, reference, extra\), not \(answer, reference\)"),
        ("own_rewards:keyword", r"takes \(answer, reference, \*, extra\)"),
        ("own_rewards:two_of_episode", r"takes \(episode, other\), not \(episode\)"),
        ("own_rewards:BadEpisode", r"takes \(\), not \(episode\)"),
        ("own_rewards:Needs", "cannot be made without arguments: TypeError: .*'field'"),
        ("own_rewards:late", "is asynchronous or a generator"),
        ("own_rewards:generator", "is asynchronous or a generator"),
        ("builtins:max", "its arguments cannot be read"),
    ],
)
def test_a_mistake_says_what_was_given_and_what_is_allowed(source, given, words):
    with pytest.raises(ConfigError, match=words) as caught:
        load_reward(given)
    assert repr(given) in str(caught.value)


def test_of_a_wrapped_function_what_is_called_says_its_arguments():
    def three(answer, reference, extra):
        return extra

    given = functools.wraps(three)(lambda answer, reference: three(answer, reference, 0.5))
    assert to_combined(given).score({}, {})[0] == 0.5
    passes_on = functools.wraps(three)(lambda *args: three(*args))
    with pytest.raises(ConfigError, match=r"takes \(answer, reference, extra\), not"):
        to_combined(passes_on)


@each(
    ("text", "words"),
    [("def f(:", "SyntaxError"), ("1 / 0", "ZeroDivisionError"), ("import nowhere_at_all", "nowhere")],
)
def test_a_module_that_fails_when_imported_is_named_with_its_error(source, text, words):
    (source / "failing.py").write_text(text)
    with pytest.raises(ConfigError, match=f"cannot be imported: .*{words}"):
        load_reward("failing:f")


def test_yaml_names_a_reward_by_its_path(source):
    spec = {
        "type": "combined",
        "components": {
            "own": {"type": "python", "function": "own_rewards:half", "weight": 0.5},
            "short": {"type": "python", "function": "own_rewards:short", "name": "brief", "weight": 0.5},
        },
    }
    reward = build(spec)
    assert isinstance(reward, CombinedReward)
    assert reward.score({}, {}, EPISODE) == (0.75, {"own": 0.5, "short": 1.0})


def test_yaml_that_names_no_reward_is_refused(source):
    with pytest.raises(ConfigError, match=r"reward\.function: is missing"):
        build({"type": "python"})
    with pytest.raises(ConfigError, match="did you mean 'half'"):
        build({"type": "python", "function": "own_rewards:hlf"})
