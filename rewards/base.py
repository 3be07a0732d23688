"""What a reward is, and how rewards read an answer.

Answers come from a model and are not trusted: reading a field or a number never raises. A field that is missing, or is
not a number, is `None`.
"""

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Protocol, runtime_checkable

from viewbox.records import Episode


@runtime_checkable
class Reward(Protocol):
    """A pure function of the final answer and the task's reference.

    The score is finite and in [0, 1]; `None` means that the reward does not apply to this task. A reward never raises.

    >>> from viewbox.rewards import ExactMatchReward
    >>> isinstance(ExactMatchReward(), Reward)
    True
    """

    @property
    def name(self) -> str: ...

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None: ...


@runtime_checkable
class EpisodeReward(Protocol):
    """A pure function of a whole episode, for what an answer alone cannot show (format, use of tools).

    The score is finite and in [0, 1]; `None` means that the reward does not apply to this episode.

    >>> class Short:
    ...     name = "short"
    ...     def of_episode(self, episode):
    ...         return 1.0 if episode.num_turns <= 3 else 0.0
    >>> isinstance(Short(), EpisodeReward)
    True
    """

    @property
    def name(self) -> str: ...

    def of_episode(self, episode: Episode) -> float | None: ...


AnyReward = Reward | EpisodeReward


def get_field(mapping: Any, field: str) -> Any:
    """The value at `field`, whose dots step into inner mappings; `None` if there is no value.

    >>> get_field({"finding": {"label": "nodule"}}, "finding.label")
    'nodule'
    >>> get_field({"finding": "nodule"}, "finding.label") is None
    True
    """
    if type(mapping) is dict and "." not in field:  # the common case
        return mapping.get(field)
    value = mapping
    for part in field.split("."):
        if not isinstance(value, (dict, Mapping)) or part not in value:
            return None
        value = value[part]
    return value


def to_finite_float(value: Any) -> float | None:
    """`value` as a finite float; `None` for bools, strings, NaN, infinities and anything else that is not a number.

    >>> [to_finite_float(value) for value in (3, "3", True, float("nan"), 10**400)]
    [3.0, None, None, None, None]
    """
    if type(value) is float:  # the common case; isinstance with an abstract class is slow
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    if isinstance(value, Integral) and int(value).bit_length() > 1023:  # float() would overflow
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def to_items(value: Any, max_items: int | None = None) -> Sequence[Any] | None:
    """The first `max_items` items of a list; a scalar counts as a list of one item. `None` for anything else.

    >>> to_items(["a", "b"]), to_items("a"), to_items(None), to_items([]), to_items({"a": 1})
    (['a', 'b'], ['a'], None, [], None)
    """
    if isinstance(value, list | tuple):
        return value if max_items is None else value[:max_items]
    if isinstance(value, set | frozenset):
        return list(value)
    return [value] if isinstance(value, str | int | float) and value != "" else None
