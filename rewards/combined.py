"""Several rewards as one: a weighted mean that keeps its parts, and that no part can break."""

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from viewbox.errors import ConfigError, describe_unknown
from viewbox.rewards.base import EpisodeReward, Reward, finite

log = logging.getLogger(__name__)
_refused: ContextVar[list[str] | None] = ContextVar("refused", default=None)


@contextmanager
def refusals() -> Iterator[list[str]]:
    """What any reward did wrong inside the block, every time in words; the log says it once.

    >>> with refusals() as refused:
    ...     guarded(lambda answer, reference: 7).score(None, {})
    (0.0, {'<lambda>': 0.0})
    >>> refused
    ["reward component '<lambda>' returned 7; allowed: None or a number in [0, 1]"]
    """
    refused: list[str] = []
    token = _refused.set(refused)
    try:
        yield refused
    finally:
        _refused.reset(token)


@dataclass(frozen=True)
class Part:
    """A component: its reward, its weight, and by name what other components must reach for it to count.

    Below that the part counts 0.0; where the other one does not apply (`None`), neither does the part.

    >>> from viewbox.rewards import ToolUseReward
    >>> Part(ToolUseReward(at_least=1), 0.1, needs={"label": 1.0}).needs
    {'label': 1.0}
    """

    reward: Reward | EpisodeReward
    weight: float
    needs: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CombinedReward:
    """The weighted mean of named rewards: Σ w_i r_i / Σ w_i over the components that apply (are not `None`).

    A component is (reward, weight) or a `Part`, which may need others: {"label": 1.0} counts 0.0 unless `label`
    scores 1.0 (a bonus for tools, say, that an answer has to earn). What a part needs is compared after its own
    needs; needs in a circle are refused. A part that is out is not asked at all.

    Weights are >= 0 and sum to 1 (±1e-6). `None` if no component with a weight applies. A component that raises, or
    returns anything but `None` or a number in [0, 1], counts 0.0 and is logged once. The parts of a combined
    component are listed too, as "outer.inner".

    Range: [0, 1], or `None`.

    >>> from viewbox.rewards import ExactMatchReward, IoUReward
    >>> reward = CombinedReward({"label": (ExactMatchReward("label"), 0.25), "box": (IoUReward("bbox"), 0.75)})
    >>> gold = {"label": "seven", "bbox": [0, 0, 0.5, 0.5]}
    >>> reward.score({"label": "seven", "bbox": [0, 0, 1, 0.5]}, gold)
    (0.625, {'label': 1.0, 'box': 0.5})
    >>> reward(gold, gold)
    1.0
    >>> box = Part(IoUReward("bbox"), 0.75, needs={"label": 1.0})
    >>> CombinedReward({"label": (ExactMatchReward("label"), 0.25), "box": box}).score({**gold, "label": "six"}, gold)
    (0.0, {'label': 0.0, 'box': 0.0})
    """

    components: Mapping[str, Any]  # given: Part or (reward, weight); kept: Part
    name: str = "combined"
    _order: tuple[tuple[str, Part], ...] = field(init=False, repr=False, compare=False, default=())
    _gated: bool = field(init=False, repr=False, compare=False, default=False)
    _logged: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = {name: one if isinstance(one, Part) else Part(*one) for name, one in self.components.items()}
        object.__setattr__(self, "components", parts)
        _check_weights(parts)
        object.__setattr__(self, "_order", tuple((name, parts[name]) for name in _in_order(parts)))
        object.__setattr__(self, "_gated", any(part.needs for part in parts.values()))

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
        return self.score(answer, reference)[0]

    def score(
        self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any], episode: Any = None
    ) -> tuple[float | None, dict[str, float | None]]:
        """The total and every component by name; an `EpisodeReward` does not apply where no `episode` is given."""
        parts: dict[str, float | None] = {}
        total = weights = 0.0
        for name, part in self._order:
            if part.needs and (missing := unmet(part, parts)) is not None:
                value = None if parts[missing] is None else 0.0
                inner = part_names(part.reward)
                parts[name] = value
                parts.update({f"{name}.{one}": None for one in inner})
            else:
                value = self._ask(name, part.reward, answer, reference, episode, parts)
            if value is not None and part.weight > 0:
                total += value * part.weight
                weights += part.weight
        if self._gated:
            parts = {name: parts[name] for name in part_names(self)}
        return (min(1.0, total / weights) if weights else None), parts

    def _ask(
        self,
        name: str,
        reward: Any,
        answer: Mapping[str, Any] | None,
        reference: Mapping[str, Any],
        episode: Any,
        parts: dict[str, float | None],
    ) -> float | None:
        """The checked value of one component; it and its inner parts are entered in `parts`."""
        inner: dict[str, float | None] | None = None
        try:
            if isinstance(reward, CombinedReward):
                given, inner = reward.score(answer, reference, episode)
            elif (of_episode := getattr(reward, "of_episode", None)) is not None:  # asking the protocol is slow
                given = None if episode is None else of_episode(episode)
            else:
                given = reward(answer, reference)
        except Exception as error:  # a reward written elsewhere must not end a training run
            value: float | None = self._refuse(name, f"raised {type(error).__name__}: {error}")
        else:
            value = given if type(given) is float and 0.0 <= given <= 1.0 else self._checked(name, given)
        parts[name] = value
        if inner:
            parts.update({f"{name}.{part}": score for part, score in inner.items()})
        return value

    def _checked(self, name: str, given: Any) -> float | None:
        if given is None:
            return None
        number = float(given) if isinstance(given, bool) else finite(given)
        if number is None or not -1e-9 <= number <= 1 + 1e-9:
            return self._refuse(name, f"returned {given!r:.80}; allowed: None or a number in [0, 1]")
        return min(1.0, max(0.0, number))

    def _refuse(self, name: str, why: str) -> float:
        refused = _refused.get()
        if refused is not None:
            refused.append(f"reward component {name!r} {why}")
        if name not in self._logged:
            self._logged.add(name)
            log.warning("reward component %r %s; it counts 0.0 (said once)", name, why)
        return 0.0


def unmet(part: Part, scores: Mapping[str, float | None]) -> str | None:
    """The first component that a part needs and that does not apply or is below what is needed; None: all are there."""
    for name, least in part.needs.items():
        value = scores[name]
        if value is None or value < least - 1e-9:
            return name
    return None


def part_names(reward: Any) -> list[str]:
    """The names of a combined reward's components, each before those inside it; none for any other reward."""
    if not isinstance(reward, CombinedReward):
        return []
    return [
        full
        for name, part in reward.components.items()
        for full in (name, *(f"{name}.{inner}" for inner in part_names(part.reward)))
    ]


def _check_weights(parts: Mapping[str, Part]) -> None:
    for name, part in parts.items():
        number = finite(part.weight)
        if number is None or number < 0:
            raise ConfigError(f"weight of {name!r} is {part.weight!r}; allowed: a finite number >= 0")
    total = math.fsum(part.weight for part in parts.values())
    if abs(total - 1) > 1e-6:
        given = ", ".join(f"{name}: {part.weight:g}" for name, part in parts.items())
        raise ConfigError(f"weights sum to {total:.6g} ({given or 'no components'}); allowed: a sum of 1")


def _in_order(parts: Mapping[str, Part]) -> list[str]:
    """The names, each after those it needs; raises `ConfigError` for a name that is not there and for a circle."""
    for name, part in parts.items():
        for other, least in part.needs.items():
            if other not in parts:
                raise ConfigError(f"needs of {name!r}: {describe_unknown('component', str(other), parts)}")
            number = finite(least)
            if number is None or not 0 < number <= 1:
                raise ConfigError(f"needs of {name!r}: {other} is {least!r}; allowed: a number in (0, 1]")
    if not any(part.needs for part in parts.values()):
        return list(parts)
    try:
        return list(TopologicalSorter({name: part.needs.keys() for name, part in parts.items()}).static_order())
    except CycleError as error:
        raise ConfigError(f"needs go in a circle: {' → '.join(reversed(error.args[1]))}") from error


def guarded(reward: Any) -> CombinedReward:
    """Any reward (an object, or a plain function) as a combined one, so that nothing it does can end a run.

    >>> def always(answer, reference):
    ...     return 1.0
    >>> guarded(always).score(None, {})
    (1.0, {'always': 1.0})
    """
    if isinstance(reward, CombinedReward):
        return reward
    name = getattr(reward, "name", None) or getattr(reward, "__name__", type(reward).__name__)
    return CombinedReward({str(name): (reward, 1.0)}, name=str(name))
