"""What the right answers of some tasks score by the environment's own reward: a reward that pays them badly is wrong.

The answers are written and read as a model's would be. No model, judge or server is asked.
"""

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ..core.answers import check_answer
from ..core.base import BaseMultiTurnEnv, vary
from ..core.loop import get_final_value
from ..core.tasks import to_sequence
from ..errors import ToolError, ViewboxError, suggest_nearest
from ..images.coordinates import needs_size
from ..records import Episode, Scores, Task
from ..rewards import EvidenceReward, ExactMatchReward, IoUReward, LabelSetF1Reward, TokenF1Reward, ToolUseReward
from ..rewards.combined import CombinedReward, to_combined
from ..rewards.explain import explain_reward
from ..rewards.fields import get_field, read_boxes, to_items
from ..rewards.remote import find_remote_address, is_blocking
from ..rewards.token_f1 import ShortAnswerReward
from ..utils.concurrency import contain_exit
from ..utils.terminal import describe_error, make_line
from ..utils.values import read_number
from .data.env import DataEnv
from .mixture import Mixture

NUM_TASKS = 20
LEAST = 0.95  # a right answer that scores less is warned of
CHANCE = 0.01  # with which boxes that lie anywhere would all fit a smaller unit
NOT_OPENED = "cannot be opened"
NO_ANSWER = "have no right answer that can be written"
_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")
Means = Mapping[str, float | None]  # by component; None if it applies to no task
OF_TEXT = (ExactMatchReward, TokenF1Reward, LabelSetF1Reward, ShortAnswerReward)


@dataclass(frozen=True)
class RightAnswers:
    """What the right answers of an environment score."""

    environment: str  # its name; of a mixture, the key of the part
    tasks: int
    played: int
    total: float | None  # the mean reward; None if nothing could be scored
    components: Means  # the mean of each; None if it applies to no task
    remarks: tuple[str, ...]  # what was left out, and why
    warnings: tuple[str, ...]  # what is probably wrong
    unopened: int = 0  # tasks that cannot be opened

    def describe(self) -> str:
        """Return the scores in one line.

        >>> RightAnswers("grounding", 266, 20, 0.861, {"boxes": 0.861, "answer": None}, (), ()).describe()
        'grounding: reward 0.861, the mean of 20 of 266 tasks (boxes 0.861, answer does not apply)'
        """
        parts = ", ".join(f"{name} {_write_score(value)}" for name, value in self.components.items())
        mean = f"reward {_write_score(self.total)}, the mean of {self.played} of {self.tasks} tasks ({parts})"
        scored = mean if self.played and parts else "no right answer is scored"
        return "; ".join([f"{self.environment}: {scored}", *self.remarks])


class _Played(NamedTuple):
    """One right answer: its scores, what it scores before it is written, and the size of its view."""

    episode: Episode
    exact: Scores
    view: tuple[int, int]

    @property
    def scores(self) -> Scores:
        return self.episode.scores or Scores(None)


def score_right_answers(env: BaseMultiTurnEnv, count: int = NUM_TASKS) -> list[RightAnswers]:
    """Score the right answers of `count` tasks, drawn from all; of a mixture, of each of its environments."""
    return [_score_part(part, count) for part in (env.parts.values() if isinstance(env, Mixture) else [env])]


def _score_part(env: BaseMultiTurnEnv, count: int) -> RightAnswers:
    tasks = to_sequence(env.tasks, env.name)
    drawn = [tasks[number] for number in sorted(random.Random(0).sample(range(len(tasks)), min(count, len(tasks))))]
    left_out: dict[str, str] = {}
    reward = _leave_out(env.reward, left_out)
    played, lows = list[_Played](), list[float]()
    problems: dict[str, list[str]] = {}  # what a task lacks -> the tasks
    boxes: set[tuple[tuple[float, ...], tuple[int, int]]] = set()
    silent = vary(env, reward=reward or to_combined(lambda answer, reference: None))
    for task in drawn:
        stage = [NOT_OPENED]
        try:
            with contain_exit():
                state = env.reset(task, seed=0)
                size = (state.images[0].width, state.images[0].height) if state.images else (1, 1)
                if isinstance(env, DataEnv) and env.data.unit:
                    pixels = (item.pixels if item.volume is None else item.volume.voxels for item in state.images)
                    lows += [float(np.min(item)) for item in pixels]
                boxes |= {(tuple(box), size) for box in _find_boxes(task.reference) if state.images}
                episode = _play(env, silent, task, stage)
                perfect = getattr(env, "perfect_answer", None)
                answer = task.reference if perfect is None else perfect(task)  # its boxes are not rounded
                exact = silent.reward.score_episode(msgspec.structs.replace(episode, answer=answer))
                played.append(_Played(episode, exact, state.view.size if state.view else (1, 1)))
        except Exception as error:  # an author's code may raise anything, and one task says nothing of the others
            why = str(error) if isinstance(error, ViewboxError) else describe_error(error, 200)
            problems.setdefault(stage[-1], []).append(f"{task.id}: {why}")
    said = {stage: f"{len(some)} of {len(drawn)} tasks {stage}, such as {some[0]}" for stage, some in problems.items()}
    remarks = [f"{name} is left out: {why}" for name, why in left_out.items()]
    remarks += [said.pop(NO_ANSWER)] if NO_ANSWER in said else []
    warnings, means = list(said.values()), _compute_means(item.scores for item in played)
    if reward is None:
        means = {}
    elif played:
        warnings += _list_low(env, reward, played, means, _compute_means(item.exact for item in played))
    warnings += _list_commas(env, reward, drawn)
    if lows and min(lows) >= 0:
        problem = f"no value of {len(lows)} pictures is below 0, and air has -1000 HU"
        warnings.append(f"data.unit = HU: {problem}; is it a CT, without its rescaling?")
    if isinstance(env, DataEnv) and (doubt := describe_doubtful_unit(env.data.boxes.unit, boxes)):
        warnings.insert(0, f"data.boxes.unit = {env.data.boxes.unit}: {doubt}")
    total = means.pop("", None)
    lines = tuple(make_line(f"{env.name}: {line}", 600) for line in warnings)
    unopened = len(problems.get(NOT_OPENED, ()))
    return RightAnswers(env.name, len(tasks), len(played), total, means, tuple(remarks), lines, unopened)


def _play(env: BaseMultiTurnEnv, silent: BaseMultiTurnEnv, task: Task, stage: list[str]) -> Episode:
    """Play the right answer of a task by the reward of `silent`. The last of `stage` says what fails, if it does."""
    stage.append(NO_ANSWER)
    text = _write_answer(env, task)
    stage.append("have a right answer that the environment refuses")
    _, problem = check_answer(env, get_final_value(env, text) or {}, task)
    if problem is not None:
        raise ToolError(problem)
    stage.append("have a right answer that cannot be played")
    replies = [*env.oracle(task), text]
    replies = replies[-1:] if len(replies) > env.max_turns else replies
    return silent.play(task, lambda messages: replies[sum(message.role == "assistant" for message in messages)])


def _leave_out(reward: CombinedReward, left_out: dict[str, str], prefix: str = "") -> CombinedReward | None:
    """Return the reward without the components that would ask somebody or want looks; why is entered in `left_out`."""
    left = {}
    for name, component in reward.components.items():
        inner: Any = component.reward
        if isinstance(inner, CombinedReward):
            inner = _leave_out(inner, left_out, f"{prefix}{name}.")
        elif find_remote_address(inner) is not None or is_blocking(inner):
            left_out[f"{prefix}{name}"], inner = "it would ask a judge or a server", None
        elif isinstance(inner, ToolUseReward | EvidenceReward):
            left_out[f"{prefix}{name}"], inner = "it pays for looks", None
        if inner is not None:
            left[name] = replace(component, reward=inner)
    total = sum(component.weight for component in left.values())
    for name, component in left.items():
        needs = {need: least for need, least in component.needs.items() if need in left}
        left[name] = replace(component, weight=component.weight / total if total else 1 / len(left), needs=needs)
    return CombinedReward(left, name=reward.name) if left else None


def _write_answer(env: BaseMultiTurnEnv, task: Task) -> str:
    texts = [value for value in task.reference.values() if isinstance(value, str)]
    if env.answer is None and len(texts) == 1 and not hasattr(env, "gold_answer"):
        return texts[0]
    return env.write_answer(task)


def _compute_means(scores: Iterable[Scores]) -> dict[str, float | None]:
    values: dict[str, list[float]] = {}
    for score in scores:
        for name, value in {"": score.total, **score.components}.items():
            values.setdefault(name, []).extend([] if value is None else [value])
    return {name: fmean(numbers) if numbers else None for name, numbers in values.items()}


def _list_low(
    env: BaseMultiTurnEnv, reward: CombinedReward, played: Sequence[_Played], means: Means, exact: Means
) -> Iterator[str]:
    """Yield a sentence for each component that pays the right answers badly, or fails."""
    for name, inner in _walk(reward, means):
        faults = [play.scores.faults[name] for play in played if name in play.scores.faults]
        mean, key = means.get(name), f"reward component {name!r}"
        if faults:
            reasons = "; ".join(filter(None, (faults[0], _explain_fields(inner, played))))
            yield f"{key} fails for {len(faults)} of {len(played)} right answers: {reasons}"
        elif mean is not None and mean < LEAST:
            scored = [play for play in played if play.scores.components.get(name) is not None]
            worst = min(scored, key=lambda play: play.scores.components[name] or 0.0)
            why = _explain_fields(inner, played) or _explain_writing(env, worst, exact.get(name), mean)
            why = why or f"task {worst.episode.task.id}: " + explain_reward(
                inner, worst.episode.answer, worst.episode.task.reference, worst.episode
            )
            if getattr(inner, "of_episode", None) is not None:
                why = f"it reads the episode, which is the answer after env.oracle(task); {why}"
            yield f"{key} gives the right answers {mean:.3f}: {why}"
    if means.get("") is None and not any(play.scores.faults for play in played):
        yield "the reward applies to none of the right answers, so that no episode would have a score"


def _walk(reward: CombinedReward, means: Means, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the components with a weight, at any depth, that are no combined rewards, by the names of their scores."""
    for name, component in reward.components.items():
        needed = [means.get(f"{prefix}{need}") for need in component.needs]
        if component.weight == 0 or any(mean is not None and mean < LEAST for mean in needed):
            continue  # a closed component is the fault of the one it needs
        if isinstance(component.reward, CombinedReward):
            yield from _walk(component.reward, means, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", component.reward


def _explain_fields(reward: Any, played: Sequence[_Played]) -> str | None:
    """Return what a reward reads that is not there, or that it cannot compare; None if nothing is found."""
    field, reward = getattr(reward, "field", None), getattr(reward, "reward", reward)  # `IfGold` holds another
    reference_field = getattr(reward, "reference_field", None)
    name = reference_field or getattr(reward, "field", field)
    if not isinstance(name, str):
        return None
    golds = [gold for play in played if (gold := get_field(play.episode.task.reference, name)) is not None]
    if not golds:
        known = dict.fromkeys(key for play in played for key in play.episode.task.reference)
        key = "field" if reference_field is None else "reference_field"
        return f"no task has {key} = {name!r}; the references have {', '.join(known)}{suggest_nearest(name, known)}"
    kind, has_boxes = getattr(reward, "name", type(reward).__name__), any(True for _ in _find_boxes(golds))
    if isinstance(reward, OF_TEXT) and has_boxes:
        return f"{kind} compares texts, and {name!r} holds boxes; `iou` compares boxes"
    if isinstance(reward, IoUReward) and not has_boxes:
        return f"{kind} compares boxes, and {name!r} holds none"
    if isinstance(reward, IoUReward) and all(read_boxes(gold, "xyxy", reward.box_key) is None for gold in golds):
        return f"{kind} finds no box in {name!r}, which holds {make_line(repr(golds[0]), 80)}; see box_key"
    return None


def _explain_writing(env: BaseMultiTurnEnv, play: _Played, exact: float | None, mean: float) -> str | None:
    """Return that writing loses what the reward pays for; None if the answer scores no better before it is written."""
    if exact is None or exact < LEAST:
        return None
    rounding = f"env.coordinates = {env.coordinates} rounds boxes"
    if needs_size(env.coordinates):
        rounding += f" to whole pixels of a view of {play.view[0]} x {play.view[1]}"
        rounding += "; allowed: coordinates: unit or per_mille, or larger images"
    return f"before they are written they score {exact:.3f}; {rounding}"


def _list_commas(env: BaseMultiTurnEnv, reward: CombinedReward | None, tasks: Sequence[Task]) -> Iterator[str]:
    """Yield that numbers with a decimal comma stay texts, if numbers near them should be right."""
    parts = [] if reward is None else [inner for _, inner in _walk(reward, {})]
    if not any(getattr(inner, "tolerance", None) for inner in (env, *parts)):
        return
    texts = [text for task in tasks for value in task.reference.values() for text in to_items(value) or ()]
    unread = [text for text in texts if isinstance(text, str) and _COMMA.fullmatch(text) and read_number(text) is None]
    if unread:
        problem = f"{len(unread)} right answers such as {unread[0]!r} are texts, to which no `tolerance` applies"
        yield f"{problem}; data.cells.decimal: ',' reads numbers of CSV and TSV so; elsewhere write 1.5"


def _find_boxes(value: Any) -> Iterator[Sequence[float]]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _find_boxes(item)
    elif isinstance(value, list | tuple):
        if len(value) in (4, 6) and all(isinstance(side, float) for side in value):
            yield value
        else:
            for item in value:
                yield from _find_boxes(item)


def describe_doubtful_unit(unit: str, boxes: Iterable[tuple[Sequence[float], tuple[int, int]]]) -> str | None:
    """Return why `data.boxes.unit` is probably another one; None if nothing says so. If all boxes (with the size of
    their image) also fit a smaller unit, they lie in one corner: by chance with the product of the shares of that
    corner.

    >>> describe_doubtful_unit("per_mille", [((0.01, 0.02, 0.05, 0.04), (64, 48))])
    'all boxes (1) lie in the top left 0.05 x 0.04 of their images, and would also fit as pixel; is it the right unit?'
    """
    flat = [(box, size) for box, size in boxes if len(box) == 4]
    ends = np.array([box[2:] for box, _ in flat])
    for other in ("unit", "pixel", "per_mille"):
        shares = np.array([np.divide(_get_scale(other, size), _get_scale(unit, size)) for _, size in flat])
        if flat and (ends <= shares).all() and shares.clip(max=1).prod() < CHANCE:
            corner = " x ".join(f"{side:.2g}" for side in ends.max(axis=0))
            where = f"all boxes ({len(flat)}) lie in the top left {corner} of their images"
            return f"{where}, and would also fit as {other}; is it the right unit?"
    return None


def _get_scale(unit: str, size: tuple[int, int]) -> tuple[int, int]:
    return {"unit": (1, 1), "per_mille": (1000, 1000)}.get(unit, size)


def _write_score(value: float | None) -> str:
    return "does not apply" if value is None else f"{value:.3f}"
