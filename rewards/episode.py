"""Rewards of a whole episode: whether the replies followed the format, and how tools were used."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from ..errors import ConfigError
from ..records import Episode
from ..utils.values import to_finite_float
from .declare import Name, Names, RewardName, UnitInterval, register_reward

NumCalls = Annotated[int, Field(ge=0)]
PENALTIES = MappingProxyType({"salvaged": 0.5, "repaired": 0.5, "ignored": 0.5, "forced_final": 0.25})


@register_reward("format")
class FormatReward:
    """1 for an answer in the requested format, less penalties: max(0, 1 - Σ penalties - `malformed` · n).

    `penalties` gives the cost of each flag of an episode: "salvaged" (the answer was taken from a reply that was cut
    off or held something else too), "repaired" (its JSON was broken and was repaired), "ignored" (a reply held a key or
    an object that nothing reads), "forced_final" (it asked to continue when it had to be final). n is the number of
    malformed replies. Without an answer the reward is 0. It does not measure whether the answer is right: give it a
    small weight, or let the other components need it (`Component(…, needs={"format": 0.5})`).

    Range: [0, 1].

    >>> from types import SimpleNamespace as Episode
    >>> FormatReward().of_episode(Episode(answer={"label": "cyst"}, flags={"repaired"}, info={"malformed": 1}))
    0.25
    """

    penalties: Annotated[Mapping[Name, UnitInterval], Field(description="what each flag of an episode costs")] = field(
        default_factory=lambda: dict(PENALTIES)
    )
    malformed: Annotated[UnitInterval, Field(description="what each malformed reply costs")] = 0.25
    name: RewardName = "format"

    def of_episode(self, episode: Episode) -> float:
        if getattr(episode, "answer", None) is None:
            return 0.0
        return max(0.0, 1.0 - sum(self._list_penalties(episode).values()))

    def explain_episode(self, episode: Episode) -> str:
        """Return why the episode got its score, in a sentence."""
        if getattr(episode, "answer", None) is None:
            return f"no answer; end reason: {getattr(episode, 'end_reason', 'unknown')}"
        penalties = self._list_penalties(episode)
        return "; ".join(f"{name}: -{cost:g}" for name, cost in penalties.items()) or "the answer has the right format"

    def _list_penalties(self, episode: Episode) -> dict[str, float]:
        flags = getattr(episode, "flags", None) or ()
        costs = {name: cost for name, cost in self.penalties.items() if name in flags and cost}
        info = getattr(episode, "info", None)
        count = to_finite_float(info.get("malformed")) if isinstance(info, Mapping) else None
        if count and count > 0 and self.malformed:
            costs[f"{count:g} malformed"] = count * self.malformed
        return costs


@register_reward("tool_use")
class ToolUseReward:
    """1 between `at_least` and `at_most` successful tool calls, n / at_least below, at_most / n above.

    Below `at_least`, n is the number of *different* successful calls: those that differ in their tool or in an argument
    after defaults are filled in. Above `at_most`, n is the number of all successful calls. Failed calls never count.
    `tools` names the tools that count (None: all). An episode without an answer scores 0.

    More calls than `at_least` pay nothing more. Even so, a bonus that wrong answers also get teaches the model to call
    tools for the bonus. Let it need a right answer: `Component(ToolUseReward(at_least=1), 0.1, needs={"label": 1.0})`.

    Range: [0, 1].

    >>> from types import SimpleNamespace as Some
    >>> call = Some(id="a", name="zoom", arguments={"factor": 2})
    >>> looks = [Some(tool_calls=[call], tool_results=[]),
    ...          Some(tool_calls=[], tool_results=[Some(tool_name="zoom", call_id="a", success=True)])]
    >>> episode = Some(turns=looks * 3, answer={"label": "cyst"})
    >>> ToolUseReward(at_least=2).of_episode(episode), ToolUseReward(at_most=2).of_episode(episode)
    (0.5, 0.6666666666666666)
    """

    at_least: Annotated[
        NumCalls | None, Field(description="number of different successful calls that earns the full score")
    ] = None
    at_most: Annotated[NumCalls | None, Field(description="with more successful calls the score falls")] = None
    tools: Annotated[Names | None, Field(description="names of the tools whose calls count; default: all")] = None
    name: RewardName = "tool_use"

    def __post_init__(self) -> None:
        if self.at_least is None and self.at_most is None:
            raise ConfigError("neither at_least nor at_most is given; allowed: one of them, or both")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ConfigError(f"at_least = {self.at_least} is above at_most = {self.at_most}")

    def of_episode(self, episode: Episode) -> float:
        if getattr(episode, "answer", None) is None:
            return 0.0
        num_calls, num_different = self._count_calls(episode)
        if self.at_least and num_different < self.at_least:
            return num_different / self.at_least
        return self.at_most / num_calls if self.at_most is not None and num_calls > self.at_most else 1.0

    def explain_episode(self, episode: Episode) -> str:
        """Return why the episode got its score, in a sentence."""
        if getattr(episode, "answer", None) is None:
            return "there is no answer"
        num_calls, num_different = self._count_calls(episode)
        limits = [f"at least {self.at_least}"] if self.at_least is not None else []
        limits += [f"at most {self.at_most}"] if self.at_most is not None else []
        return f"successful tool calls: {num_calls} ({num_different} different); required: {' and '.join(limits)}"

    def _count_calls(self, episode: Episode) -> tuple[int, int]:
        """Return the number of successful calls, and of different ones among them."""
        calls = [call for call in _iter_successful_calls(episode) if self.tools is None or call[0] in self.tools]
        return len(calls), len(set(calls))


def _iter_successful_calls(episode: Episode) -> Iterator[tuple[str, str]]:
    """(name, arguments) of every call that succeeded; an id may be used again in a later turn."""
    calls: dict[Any, Any] = {}
    for turn in getattr(episode, "turns", None) or ():
        calls.update({call.id: call for call in turn.tool_calls})
        for result in turn.tool_results:
            if result.success:
                arguments = getattr(result, "arguments", None)
                if arguments is None and result.call_id in calls:
                    arguments = calls[result.call_id].arguments
                yield result.tool_name, normalize_arguments(arguments)


def normalize_arguments(arguments: Any) -> str:
    """Arguments as one text that does not depend on their order and spacing, on 2 or 2.0, or on a null."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return str(arguments)
    try:
        return json.dumps(_simplify(arguments), sort_keys=True, default=str)
    except (RecursionError, TypeError, ValueError):  # nested too deep, or keys that JSON cannot hold
        return repr(arguments)[:1000]


def _simplify(value: Any) -> Any:
    """Numbers as floats of six places, mappings without their nulls."""
    if isinstance(value, Mapping):
        return {str(key): _simplify(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_simplify(item) for item in value]
    number = to_finite_float(value)
    return value if number is None else round(number, 6) + 0.0  # -0.0 is 0
