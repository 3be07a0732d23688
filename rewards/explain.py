"""Why an answer got its score: every component at any depth, its score, whether its needs were met, and a reason.

`viewbox reward try` prints it (`cli/reward.py`); a notebook can call `explain_score`, too. `check_rewards` is the check
that every environment should pass on its own tasks: a gold answer scores 1.0, a missing answer 0.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from itertools import islice
from typing import Any

from ..errors import Unmeasurable
from ..records import Episode
from ..utils.concurrency import contain_exit
from ..utils.values import reaches
from .combined import CombinedReward, find_unmet_need, to_combined
from .declare import REWARD_TYPES, get_reward_name
from .fields import Answer, Reference
from .remote import iter_rewards


@dataclass(frozen=True)
class ComponentScore:
    name: str  # "outer.inner" if it is inside another component
    weight: float
    score: float | None  # None if it does not apply
    closed: bool  # whether an unmet need kept it from being evaluated
    why: str


@dataclass(frozen=True)
class ExplainedScore:
    """A reward's score of one answer, by component."""

    reward: str
    total: float | None  # None if no component applies
    components: tuple[ComponentScore, ...]  # each before those inside it
    problems: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def explain_score(
    reward: object, answer: Answer, reference: Reference, episode: Episode | None = None
) -> ExplainedScore:
    """Score an answer and explain every component. Never raises.
    Without `episode`, components that read one do not apply.

    >>> from viewbox.rewards import Component, ExactMatchReward, IoUReward
    >>> box = Component(IoUReward("bbox"), 0.5, needs={"label": 1.0})
    >>> reward = CombinedReward({"label": (ExactMatchReward("label"), 0.5), "box": box})
    >>> gold = {"label": "seven", "bbox": [0, 0, 1, 1]}
    >>> explained = explain_score(reward, {"label": "six", "bbox": [0, 0, 1, 1]}, gold)
    >>> explained.total, [(part.name, part.score, part.closed) for part in explained.components]
    (0.0, [('label', 0.0, False), ('box', 0.0, True)])
    >>> explained.components[1].why
    'counts 0: label is 0, needed: 1'
    """
    combined = to_combined(reward)
    total, scores, faults = combined.score_with_faults(answer, reference, episode)
    problems = tuple(f"reward component {name!r} {fault}" for name, fault in faults.items())
    parts = tuple(_explain_parts(combined, answer, reference, episode, scores))
    return ExplainedScore(combined.name, total, parts, problems)


def describe_reward(reward: Any) -> str:
    """Return what a reward counts, in one line: each component with its weight, and the settings that are no defaults.

    >>> from viewbox.rewards import Component, ExactMatchReward, IoUReward
    >>> box = Component(IoUReward("bbox", threshold=0.5), 0.75, needs={"label": 1.0})
    >>> describe_reward(CombinedReward({"label": (ExactMatchReward("label"), 0.25), "box": box}))
    "0.25 label (exact_match: field 'label') + 0.75 box if label >= 1 (iou: field 'bbox', threshold 0.5)"
    """
    if isinstance(reward, CombinedReward):
        return " + ".join(
            f"{part.weight:.3g} {name}{''.join(f' if {need} >= {least:g}' for need, least in part.needs.items())} "
            f"({describe_reward(part.reward)})"
            for name, part in reward.components.items()
        )
    kind = next((kind for kind, cls in REWARD_TYPES.items() if cls is type(reward)), get_reward_name(reward))
    settings = []
    for field in fields(reward) if kind in REWARD_TYPES else ():
        value = getattr(reward, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if field.name != "name" and (field.name == "field" or (value and value != default)):
            settings.append(f"{field.name} {value!r:.80}")
    return f"{kind}: {', '.join(settings)}" if settings else kind


def _explain_parts(
    reward: CombinedReward,
    answer: Answer,
    reference: Reference,
    episode: Episode | None,
    scores: Mapping[str, float | None],
    prefix: str = "",
    closed_by: str = "",
) -> Iterator[ComponentScore]:
    """Yield the components in their order, each before those inside it; `closed_by` is an outer one that is closed."""
    siblings = {name: scores[f"{prefix}{name}"] for name in reward.components}
    for name, component in reward.components.items():
        full, need = f"{prefix}{name}", find_unmet_need(component, siblings)
        if closed_by:
            why = f"not evaluated: the needs of {closed_by} are unmet"
        elif need is None:
            why = explain_reward(component.reward, answer, reference, episode)
        elif (value := siblings[need]) is None:
            why = f"does not apply, since {need} does not"
        else:
            why = f"counts 0: {need} is {value:.3g}, needed: {component.needs[need]:g}"
        yield ComponentScore(full, component.weight, scores[full], bool(closed_by or need), why)
        if isinstance(component.reward, CombinedReward):
            outer = closed_by or (full if need else "")
            yield from _explain_parts(component.reward, answer, reference, episode, scores, f"{full}.", outer)


def explain_reward(reward: Any, answer: Answer, reference: Reference, episode: Episode | None = None) -> str:
    """Return one or two sentences: from the reward's own `explain` or `explain_episode`, else its score. Never raises.

    >>> from viewbox.rewards import ExactMatchReward
    >>> explain_reward(ExactMatchReward("label"), {"label": "No tumour"}, {"label": "tumour"})
    "label: 'No tumour' is not 'tumour'"
    >>> explain_reward(lambda answer, reference: 0.5, {}, {})
    'scores 0.5'
    """
    try:
        with contain_exit():
            if isinstance(reward, CombinedReward):
                total, _ = reward.score(answer, reference, episode)
                return "does not apply" if total is None else f"weighted mean of its components: {total:.3g}"
            of_episode = getattr(reward, "of_episode", None)
            if of_episode is not None and episode is None:
                return "does not apply: it reads a whole episode"
            whole = [*iter_rewards(reward)][-1]  # inside what gives an imported one its name
            explanation = getattr(whole, "explain" if of_episode is None else "explain_episode", None)
            if explanation is not None:
                return str(explanation(answer, reference) if of_episode is None else explanation(episode))
            score = reward(answer, reference) if of_episode is None else of_episode(episode)
            return "does not apply" if score is None else f"scores {score!r:.80}"
    except Unmeasurable as error:
        return f"cannot be measured: {error}"
    except Exception as error:  # a user's reward may fail, and this says so
        return f"failed: {type(error).__name__}: {error}"


def check_rewards(env: Any, num_tasks: int = 20) -> list[str]:
    """Check the reward of an environment on its first `num_tasks` tasks; return a sentence for each problem.
    The gold answer is `env.perfect_answer(task)` if the environment has that method (boxes as fractions, nothing
    rounded), else the reference itself. It must score 1.0, in total and in every component that applies.
    `None`, an empty object and the gold answer with all fields emptied must score 0. Components that read an episode
    do not apply, because no episode is played.

    >>> from types import SimpleNamespace as Env
    >>> from viewbox.records import Task
    >>> from viewbox.rewards import ExactMatchReward, to_combined
    >>> task = Task("t1", reference={"label": "cyst"})
    >>> check_rewards(Env(tasks=[task], reward=to_combined(ExactMatchReward("label"))))
    []
    >>> check_rewards(Env(tasks=[task], reward=to_combined(ExactMatchReward("lable"))))
    ['task t1: gold scores 0.0 (exact_match: 0.0); expected 1.0']
    """
    problems = []
    for task in islice(iter(env.tasks), num_tasks):
        perfect_answer = getattr(env, "perfect_answer", None)
        gold = task.reference if perfect_answer is None else perfect_answer(task)
        total, scores = env.reward.score(gold, task.reference)
        if total is None or not all(reaches(value, 1.0) for value in (total, *scores.values()) if value is not None):
            listed = ", ".join(f"{name}: {value}" for name, value in scores.items())
            problems.append(f"task {task.id}: gold scores {total} ({listed}); expected 1.0")
        for answer in (None, {}, dict.fromkeys(gold), dict.fromkeys(gold, "")):
            score, _ = env.reward.score(answer, task.reference)
            if score not in (None, 0.0):
                problems.append(f"task {task.id}: the answer {answer} scores {score}; expected 0")
    return problems
