"""Combines rewards into a weighted mean that keeps the score of every component. No component can make it fail."""

import logging
import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import Annotated, Any

from pydantic import Field

from ..errors import ConfigError, Unmeasurable, describe_unknown
from ..records import Episode, Scores
from ..utils.terminal import describe_error, make_line
from ..utils.values import reaches, to_finite_float, to_number
from .declare import Component, Name, RewardName, create_validated, get_reward_name, register_reward
from .fields import Answer, Reference, get_field
from .remote import is_blocking, iter_rewards

log = logging.getLogger(__name__)
Scored = tuple[float | None, dict[str, float | None]]  # the total, and the score of each component by name
Hook = Callable[[Episode], Any] | None
MAX_REASON = 500  # characters kept of why a component failed


def _is_own(reward: object) -> bool:
    return type(reward).__module__.startswith(__name__.removesuffix("rewards.combined"))


@register_reward("combined")
class CombinedReward:
    """The weighted mean of named rewards: Σ w_i r_i / Σ w_i over the components that apply (are not `None`).

    A component is (reward, weight) or a `Component`, which may need others: one with {"label": 1.0} counts 0.0, and is
    not evaluated, unless `label` scores 1.0 (for example, a bonus for tools that only right answers earn). Weights are
    >= 0 and sum to 1 (±1e-6). A component that raises (`Unmeasurable`: no answer can meet the reference), or returns
    anything but `None` or a number in [0, 1], fails: its score is `None`, and if it has a weight, so is the result:
    averaging the others would change the scale. Each failing component is logged once. The components of a nested
    combined reward are listed as "outer.inner".

    Range: [0, 1], or `None`.

    >>> from viewbox.rewards import ExactMatchReward, IoUReward
    >>> reward = CombinedReward({"label": (ExactMatchReward("label"), 0.25), "box": (IoUReward("bbox"), 0.75)})
    >>> gold = {"label": "seven", "bbox": [0, 0, 0.5, 0.5]}
    >>> reward.score({"label": "seven", "bbox": [0, 0, 1, 0.5]}, gold)
    (0.625, {'label': 1.0, 'box': 0.5})
    >>> reward(gold, gold)
    1.0
    >>> box = Component(IoUReward("bbox"), 0.75, needs={"label": 1.0})
    >>> CombinedReward({"label": (ExactMatchReward("label"), 0.25), "box": box}).score({**gold, "label": "six"}, gold)
    (0.0, {'label': 0.0, 'box': 0.0})
    """

    # (reward, weight) becomes a `Component`
    components: Annotated[Mapping[Name, Any], Field(description="rewards by name, each with a `weight`")]
    name: RewardName = "combined"

    def __post_init__(self) -> None:
        components = {name: _to_component(name, value) for name, value in self.components.items()}
        object.__setattr__(self, "components", components)
        _check_weights(components)
        _ = self._steps  # raises if needs are unknown or cyclic

    @cached_property
    def _steps(self) -> tuple[tuple[str, Component, Hook, Hook], ...]:
        """The components with their names, each after those it needs, its `of_episode` and its `of_turns`."""
        parts = [(name, self.components[name]) for name in _sort_by_needs(self.components)]
        owners = [[*iter_rewards(part.reward)][-1] for _, part in parts]  # inside what gives an imported one its name
        return tuple(
            (name, part, getattr(part.reward, "of_episode", None), getattr(owner, "of_turns", None))
            for (name, part), owner in zip(parts, owners, strict=True)
        )

    @cached_property
    def _is_in_order(self) -> bool:
        return [name for name, *_ in self._steps] == list(self.components)

    @cached_property
    def is_blocking(self) -> bool:
        """Whether a reward inside waits for a network; then it must not be called on an event loop."""
        return is_blocking(self)

    @cached_property
    def _compares(self) -> bool:
        """Whether a component of viewbox compares a field of the answer with the reference: then a task that has none,
        such as a person's own, has no score. What an author's reward does with its field is its own."""
        return any(
            reward._compares if isinstance(reward, CombinedReward) else hasattr(reward, "field") and _is_own(reward)
            for reward in [component.reward for component in self.components.values()]
        )

    @cached_property
    def _logged(self) -> set[str]:
        return set()

    def __call__(self, answer: Answer, reference: Reference) -> float | None:
        return self.score(answer, reference)[0]

    def score(self, answer: Answer, reference: Reference, episode: Episode | None = None) -> Scored:
        """Return the total and every component's score by name; without `episode`, an `EpisodeReward` does not
        apply."""
        return self._score(answer, reference, episode, {}, [])

    def score_with_faults(
        self, answer: Answer, reference: Reference, episode: Episode | None = None
    ) -> tuple[float | None, dict[str, float | None], dict[str, str]]:
        """Return what `score` returns, and why components failed, by name."""
        faults: dict[str, str] = {}
        return *self._score(answer, reference, episode, faults, []), faults

    def score_episode(self, episode: Episode) -> Scores:
        """Return the scores of a finished episode, which components failed, and what each reply earned; an episode that
        a fault ended has no score. What no component places in time (`of_turns`), the last reply earns.

        >>> from viewbox.records import Task
        >>> reward = to_combined(lambda answer, reference: 7)
        >>> reward.score_episode(Episode(Task("a"))).faults["<lambda>"]
        'returned 7; allowed: None or a number in [0, 1]'
        >>> reward.score_episode(Episode(Task("a"), end_reason="error")).total is None
        True
        """
        if episode.is_fault:
            return Scores(None, dict.fromkeys(list_component_names(self)))
        faults, turns = dict[str, str](), list[float]()
        total, scores = self._score(episode.answer, episode.task.reference, episode, faults, turns)
        if turns and total is not None:
            turns[-1] = total - sum(turns[:-1])
        return Scores(total, scores, faults, tuple(turns))

    def _score(
        self, answer: Answer, reference: Reference, episode: Episode | None, faults: dict[str, str], turns: list[float]
    ) -> Scored:
        """Return what `score` returns; the components that fail are entered in `faults`, and in `turns` what each reply
        earned, as far as components say."""
        if not reference and self._compares:
            return None, dict.fromkeys(list_component_names(self))
        inside: dict[str, dict[str, float | None]] = {}  # of each nested component, the scores of its own
        scores: dict[str, float | None] = {}
        earned: list[float] = []
        total = weights = 0.0
        for name, component, of_episode, of_turns in self._steps:
            reward: Any = component.reward
            value: Any = None
            placed: list[float] = []
            if component.needs and (need := find_unmet_need(component, scores)) is not None:
                value = None if scores[need] is None else 0.0
                inside[name] = dict.fromkeys(list_component_names(reward))
                if need in faults:
                    faults[name] = f"{need}, which it needs, failed"
            elif isinstance(reward, CombinedReward):
                inner_faults: dict[str, str] = {}
                value, inside[name] = reward._score(answer, reference, episode, inner_faults, placed)
                if inner_faults and value is None:
                    faults[name] = f"{next(iter(inner_faults))}, which is inside it, failed"
                faults.update({f"{name}.{key}": reason for key, reason in inner_faults.items()})
            else:
                try:
                    if of_episode is None:
                        value = reward(answer, reference)
                    elif episode is not None:
                        value = of_episode(episode)
                    if of_turns is not None and episode is not None and value is not None:
                        score, value, by_turn = value, None, of_turns(episode)  # it fails if this does
                        placed = [] if by_turn is None else _read_turns(by_turn, episode.num_turns)
                        value = score
                except KeyboardInterrupt:
                    raise
                except Unmeasurable as error:
                    self._report_fault(faults, name, make_line(f"cannot be measured: {error}", MAX_REASON))
                except BaseException as error:  # a user's reward must not end a training run, not even with sys.exit
                    self._report_fault(faults, name, f"raised {describe_error(error, MAX_REASON)}")
                if not (type(value) is float and 0.0 <= value <= 1.0):  # most are
                    value = self._check_score(faults, name, value)
            scores[name] = value
            if value is not None:
                total += value * component.weight
                weights += component.weight
                if placed:
                    pairs = zip(earned or [0.0] * len(placed), placed, strict=True)
                    earned = [before + component.weight * turn for before, turn in pairs]
        if inside or not self._is_in_order:  # listed in the order of the components
            nested = {name: [(f"{name}.{key}", score) for key, score in inside[name].items()] for name in inside}
            listed = ((name, scores[name]) for name in self.components)
            scores = dict(pair for outer in listed for pair in (outer, *nested.get(outer[0], ())))
        if faults and any(self.components[name].weight > 0 for name in faults if name in self.components):
            return None, scores
        turns += [turn / weights for turn in earned] if weights else []
        return (min(1.0, total / weights) if weights else None), scores

    def _check_score(self, faults: dict[str, str], name: str, score: Any) -> float | None:
        if score is None:
            return None
        plain = to_number(score)
        number = float(plain) if isinstance(plain, bool) else to_finite_float(plain)
        if number is None or not (reaches(number, 0.0) and reaches(1.0, number)):
            self._report_fault(faults, name, f"returned {_shorten(score)}; allowed: None or a number in [0, 1]")
            return None
        return min(1.0, max(0.0, number))

    def _report_fault(self, faults: dict[str, str], name: str, problem: str) -> None:
        faults[name] = problem
        if name not in self._logged:
            self._logged.add(name)
            log.warning("reward component %r %s; such an episode has no score (logged once)", name, problem)


def _read_turns(given: Any, count: int) -> list[float]:
    """Return what each of `count` replies earned of a score in [0, 1]; raise `ValueError` if `of_turns` says no such
    thing."""
    is_ordered = not isinstance(given, bytes | bytearray | Mapping | Set)
    turns = [to_finite_float(turn) for turn in islice(given, count + 1)] if is_ordered else []
    earned = [turn for turn in turns if turn is not None and reaches(1.0, abs(turn))]
    if not is_ordered or not len(earned) == len(turns) == count:
        raise ValueError(f"of_turns returned {_shorten(given)}; allowed: None, or a number in [-1, 1] for each reply")
    return earned


def _shorten(score: object) -> str:
    try:
        return make_line(f"{score!r:.80}", MAX_REASON)
    except Exception:
        return f"a {type(score).__name__}"


def find_unmet_need(component: Component, scores: Mapping[str, float | None]) -> str | None:
    """Return the first needed component that does not apply or scores too low; None if all needs are met."""
    for name, least in component.needs.items():
        value = scores[name]
        if value is None or not reaches(value, least):
            return name
    return None


def list_component_names(reward: object) -> list[str]:
    """Return the names of a combined reward's components, each before those inside it; empty for any other reward."""
    if not isinstance(reward, CombinedReward):
        return []
    return [
        full
        for name, component in reward.components.items()
        for full in (name, *(f"{name}.{inner}" for inner in list_component_names(component.reward)))
    ]


def _to_component(name: str, value: Any) -> Component:
    if isinstance(value, Component):
        return value
    path = f"components.{name}"
    if not isinstance(value, tuple) or len(value) != 2:
        raise ConfigError(f"{path} = {value!r:.80}; allowed: (reward, weight) or a Component", key=path)
    return create_validated(Component, {"reward": value[0], "weight": value[1]}, path, strict=True)


def _check_weights(components: Mapping[str, Component]) -> None:
    total = math.fsum(component.weight for component in components.values())
    if abs(total - 1) > 1e-6:
        listed = ", ".join(f"{name}: {component.weight:g}" for name, component in components.items())
        text = f"weights sum to {total:.6g} ({listed or 'no components'}); allowed: a sum of 1"
        raise ConfigError(f"components: {text}", key="components")


def _sort_by_needs(components: Mapping[str, Component]) -> list[str]:
    """Return the names, each after those it needs; raise `ConfigError` for unknown names and cycles."""
    for name, component in components.items():
        for other in component.needs:
            if other not in components:
                key = f"components.{name}.needs"
                raise ConfigError(f"{key}: {describe_unknown('component', other, components)}", key=key)
    if not any(component.needs for component in components.values()):
        return list(components)
    graph = {name: component.needs.keys() for name, component in components.items()}
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        cycle = " → ".join(reversed(error.args[1]))
        raise ConfigError(f"components: needs form a cycle: {cycle}", key="components") from error


def to_combined(reward: object) -> CombinedReward:
    """Wrap any reward, an object or a plain function, in a `CombinedReward`, so that its errors cannot end a run.

    >>> def always(answer, reference):
    ...     return 1.0
    >>> to_combined(always).score(None, {})
    (1.0, {'always': 1.0})
    """
    if isinstance(reward, CombinedReward):
        return reward
    name = get_reward_name(reward)
    return CombinedReward({name: (reward, 1.0)}, name=name)


@dataclass(frozen=True)
class IfGold:
    """Another reward, or None if the reference lacks `field`. A combined reward then counts the other components.

    >>> from viewbox.rewards import TokenF1Reward
    >>> reward = IfGold(TokenF1Reward("impression"), "impression")
    >>> reward({"impression": "normal"}, {}) is None, reward({"impression": "normal"}, {"impression": "normal"})
    (True, 1.0)
    """

    reward: Callable[[Answer, Reference], float | None]
    field: str

    @property
    def name(self) -> str:
        return str(getattr(self.reward, "name", "if_gold"))

    def __call__(self, answer: Answer, reference: Reference) -> float | None:
        return None if get_field(reference, self.field) is None else self.reward(answer, reference)

    def explain(self, answer: Answer, reference: Reference) -> str:
        if get_field(reference, self.field) is None:
            return f"the task has no {self.field}"
        explain = getattr(self.reward, "explain", None)
        return str(explain(answer, reference)) if explain else ""
