"""Several rewards as one: a weighted mean that keeps its parts, and that no part can break."""

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from viewbox.errors import ConfigError
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
class CombinedReward:
    """The weighted mean of named rewards: Σ w_i r_i / Σ w_i over the components that apply (are not `None`).

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
    """

    components: Mapping[str, tuple[Reward | EpisodeReward, float]]
    name: str = "combined"
    _logged: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", dict(self.components))
        for name, (_, weight) in self.components.items():
            number = finite(weight)
            if number is None or number < 0:
                raise ConfigError(f"weight of {name!r} is {weight!r}; allowed: a finite number >= 0")
        total = math.fsum(weight for _, weight in self.components.values())
        if abs(total - 1) > 1e-6:
            given = ", ".join(f"{name}: {weight:g}" for name, (_, weight) in self.components.items())
            raise ConfigError(f"weights sum to {total:.6g} ({given or 'no components'}); allowed: a sum of 1")

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
        return self.score(answer, reference)[0]

    def score(
        self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any], episode: Any = None
    ) -> tuple[float | None, dict[str, float | None]]:
        """The total and every component by name; an `EpisodeReward` does not apply where no `episode` is given."""
        parts: dict[str, float | None] = {}
        applying: list[tuple[float, float]] = []
        for name, (reward, weight) in self.components.items():
            inner: dict[str, float | None] = {}
            try:
                if isinstance(reward, CombinedReward):
                    given, inner = reward.score(answer, reference, episode)
                elif (of_episode := getattr(reward, "of_episode", None)) is not None:  # asking the protocol is slow
                    given = None if episode is None else of_episode(episode)
                else:
                    given = reward(answer, reference)  # type: ignore[operator]
            except Exception as error:  # a reward written elsewhere must not end a training run
                value: float | None = self._refuse(name, f"raised {type(error).__name__}: {error}")
            else:
                value = self._checked(name, given)
            parts[name] = value
            parts.update({f"{name}.{part}": score for part, score in inner.items()})
            if value is not None and weight > 0:
                applying.append((value, weight))
        if not applying:
            return None, parts
        weights = math.fsum(weight for _, weight in applying)
        return min(1.0, math.fsum(value * weight for value, weight in applying) / weights), parts

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
