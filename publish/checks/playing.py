"""Rows about playing: an episode ends in its limits, and the reward tells right from wrong."""

import sys
import time
from collections.abc import Mapping
from typing import Any

from .opening import NUM_TASKS, list_tasks, script_policy, write_gold
from .rows import Failed, check, shorten

# The lowest score of the right answer in a component. An IoU, and a reward of one's own where answers have boxes, may
# be lower: rounding a small box to whole pixels or to thousandths changes it much. The exact answer scores 1.0 below.
MIN_GOLD, MIN_GOLD_BOX = 0.999, 0.5


@check(
    "episode",
    needs=("environment",),
    inside=True,
    mend="make images and tools cheaper; load what is large once, in `prepare`",
)
def check_episode(env: Any, project: Mapping[str, Any]) -> str:
    """An episode ends in its time and memory, with the right answer and with a model that writes nothing of use."""
    import resource

    task, limit = list_tasks(env)[0], project["episode_seconds"]
    ends, slowest = [], 0.0
    for replies in ([*env.oracle(task), write_gold(env, task)], []):
        started = time.monotonic()
        ends.append(env.play(task, script_policy(replies)).end_reason)
        slowest = max(slowest, time.monotonic() - started)
    if slowest > limit:
        raise Failed(f"an episode takes {slowest:.1f} s; allowed: {limit:g} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return f"at most {slowest:.2f} s and {peak / 2**20:.0f} MiB; ends: {', '.join(ends)}"


@check(
    "gold answer",
    needs=("episode", "schemas"),
    inside=True,
    mend="check what `gold_answer(task)` returns, and the coordinates of answer and reference",
)
def check_gold(env: Any, project: Mapping[str, Any]) -> str:
    """The right answer, played, scores 1.0 in every component that reads the answer (0.5 where a box is rounded)."""
    from viewbox import rewards
    from viewbox.errors import ConfigError

    built_in = {getattr(rewards, name) for name in rewards.__all__} - {rewards.IoUReward}
    totals, low = [], []
    for task in list_tasks(env):
        try:
            answer = env.write_answer(task)
        except ConfigError as error:
            raise Failed(str(error)) from error
        episode = env.play(task, script_policy([*env.oracle(task), answer]))
        if episode.scores.total is None:
            raise Failed(f"task {task.id}: no score: {episode.explain_missing_score()}")
        totals.append(episode.scores.total)
        played = env.for_task(task)
        for name, part in played.reward.components.items():
            has_boxes = isinstance(part.reward, rewards.IoUReward) or played.boxes or played.boxes_3d
            least = MIN_GOLD_BOX if has_boxes and built_in.isdisjoint(type(part.reward).__mro__) else MIN_GOLD
            score = episode.scores.components.get(name)
            if part.weight > 0 and getattr(part.reward, "of_episode", None) is None and score is not None:
                low += [f"task {task.id}: {name} {score:.3f} ({episode.end_reason})"] if score < least else []
    if low:
        raise Failed(f"the right answer scores too little: {shorten(low)}")
    return f"{sum(totals) / len(totals):.2f} in the mean of {len(totals)} played tasks"


@check(
    "wrong answers",
    needs=("gold answer",),
    inside=True,
    mend="compare the answer with task.reference; a reward that reads neither gives everyone the same",
)
def check_wrong(env: Any, project: Mapping[str, Any]) -> str:
    """Answers in which everything is changed, and no answer, score less than the right one."""
    from viewbox.records import Episode

    problems, count = [], 0
    for task in list_tasks(env):
        reward = env.for_task(task).reward
        right = env.read_answer(env.write_answer(task), task)
        if right is None:
            raise Failed(f"task {task.id}: its own right answer is not accepted", "check `validate_answer`")
        best = _get_total(reward.score(right, task.reference))
        if best is None:  # the reward reads the whole episode
            best = env.play(task, script_policy([*env.oracle(task), env.write_answer(task)])).scores.total or 0.0
        answers: list[Mapping[str, Any]] = [_change(right), {}]
        for wrong in answers:
            count += 1
            total = _get_total(reward.score(wrong, task.reference))
            if total is not None and total >= best:
                problems.append(f"task {task.id}: {wrong} scores {total:.2f}, the right answer {best:.2f}")
        silent = env.score(Episode(task, end_reason="max_turns", truncated=True)).total
        count += 1
        if silent is not None and silent >= best:
            problems.append(f"task {task.id}: no answer scores {silent:.2f}, the right answer {best:.2f}")
    if problems:
        raise Failed(shorten(problems))
    return f"{count} wrong or missing answers score less"


@check(
    "check_rewards",
    needs=("gold answer",),
    inside=True,
    mend="viewbox.rewards.explain.check_rewards(env) says the same in a test; `perfect_answer(task)` returns the right "
    "answer if it is not the reference itself",
)
def check_reward(env: Any, project: Mapping[str, Any]) -> str:
    """`check_rewards` finds nothing: the exact gold answer scores 1.0, empty answers score 0."""
    from viewbox.rewards.explain import check_rewards

    problems = check_rewards(env, num_tasks=NUM_TASKS)
    if problems:
        raise Failed(shorten(problems))
    return "gold answers score 1.0, empty ones 0"


def _get_total(scored: tuple[float | None, Any]) -> float | None:
    return scored[0]


def _change(value: Any) -> Any:
    """An answer with every value changed; its form stays.

    >>> _change({"label": "cyst", "count": 3, "sure": True, "box": [0.5, 0.5, 1.0, 1.0]})
    {'label': 'not cyst', 'count': 1007, 'sure': False, 'box': [0.0, 0.0, 0.01, 0.01]}
    """
    if isinstance(value, Mapping):
        return {key: _change(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        if len(value) == 4 and all(isinstance(one, float) for one in value):
            return [0.0, 0.0, 0.01, 0.01] if value[2] > 0.1 else [0.98, 0.98, 0.99, 0.99]
        return [_change(one) for one in value]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return 2 * value + 1001
    if isinstance(value, float):
        return (value + 0.5) % 1.0 if 0 <= value <= 1 else -value - 1001.0
    return f"not {value}" if isinstance(value, str) else value
