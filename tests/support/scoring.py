"""What tests of rewards share: a score, a refusal, parts that give a value, and episodes that call tools."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from viewbox.errors import ConfigError, Unmeasurable
from viewbox.rewards import CombinedReward


def measure(reward, answer, reference):
    """Return the score, or None if the reward says that no answer can meet the reference."""
    try:
        return reward(answer, reference)
    except Unmeasurable:
        return None


def spread(reward, expected, *pairs):
    """Rows of a table of scores: one reward and one score for many pairs of answer and gold."""
    return [(reward, said, gold, expected) for said, gold in pairs]


def refuse(words, make, **options):
    """What is made with these options is refused with words that match."""
    with pytest.raises(ConfigError, match=words):
        make(**options)


@dataclass(frozen=True)
class Gives:
    """A reward that gives its value, or raises it."""

    value: Any
    name: str = "gives"

    def __call__(self, answer, reference):
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


def combined(*pairs):
    """A combination of (value, weight)."""
    return CombinedReward({f"c{i}": (Gives(value), weight) for i, (value, weight) in enumerate(pairs)})


def call(name="zoom", success=True, _given=None, **arguments):
    """One turn that calls, and its result; ids come again in every turn. `_given` stands for odd arguments."""
    asked = SimpleNamespace(id="a", name=name, arguments=arguments if _given is None else _given)
    result = SimpleNamespace(tool_name=name, call_id="a", success=success)
    return [
        SimpleNamespace(tool_calls=(asked,), tool_results=()),
        SimpleNamespace(tool_calls=(), tool_results=(result,)),
    ]


def played(*calls, answer="cyst"):
    return SimpleNamespace(turns=[turn for one in calls for turn in one], answer=answer and {"label": answer})
