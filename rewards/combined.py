"""Combines rewards into a weighted mean that keeps the score of every component. No component can make it fail."""

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any

from pydantic import Field, SkipValidation

from viewbox.errors import ConfigError, describe_unknown
from viewbox.records import Episode
from viewbox.rewards.base import AnyReward, get_reward_name
from viewbox.rewards.declare import (
    Name,
    NonNegative,
    RewardName,
    Threshold,
    create_validated,
    register_reward,
    validated_dataclass,
)
from viewbox.rewards.fields import to_finite_float

log = logging.getLogger(__name__)
_problems: ContextVar[list[str] | None] = ContextVar("problems", default=None)


@contextmanager
def collect_problems() -> Iterator[list[str]]:
    """Collect what rewards do wrong inside the block, every time; the log mentions each component once.

    >>> with collect_problems() as problems:
    ...     to_combined(lambda answer, reference: 7).score(None, {})
    (0.0, {'<lambda>': 0.0})
    >>> problems
    ["reward component '<lambda>' returned 7; allowed: None or a number in [0, 1]"]
    """
    problems: list[str] = []
    token = _problems.set(problems)
    try:
        yield problems
    finally:
        _problems.reset(token)


@validated_dataclass
class Component:
    """A part of a combined reward: a reward, its weight, and the scores it needs from other components.

    If a score is below what is needed, this component counts 0.0. If the other component does not apply (`None`),
    neither does this one.

    >>> from viewbox.rewards import ToolUseReward
    >>> Component(ToolUseReward(at_least=1), 0.1, needs={"label": 1.0}).needs
    {'label': 1.0}
    """

    reward: SkipValidation[AnyReward]
    weight: Annotated[NonNegative, Field(description="its share of the combined reward; all weights sum to 1")]
    needs: Annotated[
        Mapping[Name, Threshold],
        Field(description="least scores of other components, such as `{label: 1.0}`; if one is lower, this counts 0"),
    ] = field(default_factory=dict)


@register_reward("combined")
class CombinedReward:
    """The weighted mean of named rewards: Σ w_i r_i / Σ w_i over the components that apply (are not `None`).

    A component is (reward, weight) or a `Component`, which may need others: one with {"label": 1.0} counts 0.0 unless
    `label` scores 1.0 (for example, a bonus for tools that only right answers earn). A component is evaluated after
    those it needs. Cyclic needs are rejected. A component whose needs are unmet is not evaluated.

    Weights are >= 0 and sum to 1 (±1e-6). The result is `None` if no component with a weight applies. A component that
    raises, or returns anything but `None` or a number in [0, 1], counts 0.0 and is logged once. The components of a
    nested combined reward are listed as "outer.inner".

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
        _ = self._order  # raises if needs are unknown or cyclic

    @cached_property
    def _order(self) -> tuple[tuple[str, float, Component, bool], ...]:
        """Name, weight, component and whether it reads an answer and has no inner ones; each after those it needs."""
        order = ((name, self.components[name]) for name in _sort_by_needs(self.components))
        return tuple((name, part.weight, part, _is_plain(part.reward)) for name, part in order)

    @cached_property
    def _has_needs(self) -> bool:
        return any(component.needs for component in self.components.values())

    @cached_property
    def _logged(self) -> set[str]:
        return set()

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
        return self.score(answer, reference)[0]

    def score(
        self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any], episode: Episode | None = None
    ) -> tuple[float | None, dict[str, float | None]]:
        """The total and every component's score by name; without `episode`, an `EpisodeReward` does not apply."""
        scores: dict[str, float | None] = {}
        total = weights = 0.0
        for name, weight, component, is_plain in self._order:
            if component.needs and (need := find_unmet_need(component, scores)) is not None:
                value = None if scores[need] is None else 0.0
                scores[name] = value
                scores.update({f"{name}.{inner}": None for inner in list_component_names(component.reward)})
            elif is_plain:
                value = scores[name] = self._evaluate(name, component.reward, answer, reference)
            else:
                value = self._evaluate_other(name, component.reward, answer, reference, episode, scores)
            if value is not None and weight > 0:
                total += value * weight
                weights += weight
        if self._has_needs:
            scores = {name: scores[name] for name in list_component_names(self)}
        return (min(1.0, total / weights) if weights else None), scores

    def _evaluate(self, name: str, reward: Any, *arguments: Any) -> float | None:
        """The checked score that a reward, or its `of_episode`, gives."""
        try:
            score: Any = reward(*arguments)
        except Exception as error:  # a user's reward must not end a training run
            return self._report_problem(name, f"raised {type(error).__name__}: {error}")
        value: float | None = score if type(score) is float and 0.0 <= score <= 1.0 else self._check_score(name, score)
        return value

    def _evaluate_other(
        self,
        name: str,
        reward: Any,
        answer: Mapping[str, Any] | None,
        reference: Mapping[str, Any],
        episode: Episode | None,
        scores: dict[str, float | None],
    ) -> float | None:
        """The score of a combined reward or one of an episode; it and its inner components are entered in `scores`."""
        if isinstance(reward, CombinedReward):
            inner: dict[str, float | None] = {}

            def score_inner() -> float | None:
                total, scores_inside = reward.score(answer, reference, episode)
                inner.update(scores_inside)
                return total

            value = scores[name] = self._evaluate(name, score_inner)
            scores.update({f"{name}.{key}": score for key, score in inner.items()})
        else:
            value = scores[name] = None if episode is None else self._evaluate(name, reward.of_episode, episode)
        return value

    def _check_score(self, name: str, score: Any) -> float | None:
        if score is None:
            return None
        number = float(score) if isinstance(score, bool) else to_finite_float(score)
        if number is None or not -1e-9 <= number <= 1 + 1e-9:
            return self._report_problem(name, f"returned {score!r:.80}; allowed: None or a number in [0, 1]")
        return min(1.0, max(0.0, number))

    def _report_problem(self, name: str, problem: str) -> float:
        problems = _problems.get()
        if problems is not None:
            problems.append(f"reward component {name!r} {problem}")
        if name not in self._logged:
            self._logged.add(name)
            log.warning("reward component %r %s; it counts 0.0 (logged once)", name, problem)
        return 0.0


def _is_plain(reward: object) -> bool:
    return not isinstance(reward, CombinedReward) and getattr(reward, "of_episode", None) is None


def find_unmet_need(component: Component, scores: Mapping[str, float | None]) -> str | None:
    """The first needed component that does not apply or scores too low; None if all needs are met."""
    for name, least in component.needs.items():
        value = scores[name]
        if value is None or value < least - 1e-9:
            return name
    return None


def list_component_names(reward: object) -> list[str]:
    """The names of a combined reward's components, each before those inside it; empty for any other reward."""
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
        raise ConfigError(f"{path} = {value!r:.80}; allowed: (reward, weight) or a Component", key=path, given=value)
    component: Component = create_validated(Component, {"reward": value[0], "weight": value[1]}, path, strict=True)
    return component


def _check_weights(components: Mapping[str, Component]) -> None:
    total = math.fsum(component.weight for component in components.values())
    if abs(total - 1) > 1e-6:
        listed = ", ".join(f"{name}: {component.weight:g}" for name, component in components.items())
        text = f"weights sum to {total:.6g} ({listed or 'no components'}); allowed: a sum of 1"
        raise ConfigError(f"components: {text}", key="components")


def _sort_by_needs(components: Mapping[str, Component]) -> list[str]:
    """The names, each after those it needs; raises `ConfigError` for unknown names and cycles."""
    for name, component in components.items():
        for other in component.needs:
            if other not in components:
                key = f"components.{name}.needs"
                raise ConfigError(f"{key}: {describe_unknown('component', other, components)}", key=key, given=other)
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
