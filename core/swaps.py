"""The same tasks with other pictures: for all that is shown, or only in the calls of one tool."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal, get_args

from ..errors import ConfigError, describe_unknown
from ..images.source import Source, shuffle, wipe
from ..images.task_images import TaskImage, find_number, match_slice, open_source
from ..images.view import View
from ..records import Task
from .base import BaseMultiTurnEnv, Env, vary
from .tasks import OverviewCache

Pictures = Literal["blank", "other", "shuffled"]
PICTURES: tuple[Pictures, ...] = get_args(Pictures)


def swap_pictures(
    env: Env, pictures: Pictures, tasks: Sequence[Task], tool: str | None = None, reply: int | None = None
) -> Env:
    """Return an environment that shows other pictures; questions and right answers are those of `env`.

    Args:
        env: stays as it is.
        pictures: blank: of one gray, as large; shuffled: their own, cut into tiles in another order; other: those of
            the next of `tasks` with as many pictures and another right answer.
        tasks: those that are played.
        tool: only calls of this tool work on the other pictures: what does the answer owe to what it finds?
        reply: only those in this reply, counted from 1.

    >>> from viewbox.envs.digits import Digits
    >>> env, blank = Digits(), swap_pictures(Digits(), "blank", Digits().tasks[:2])
    >>> [len(set(one.reset(env.tasks[0], seed=0).messages[1].images[0].open().getdata())) > 1 for one in (env, blank)]
    [True, False]
    """
    if tool is not None and tool not in env.tools:
        raise ConfigError(f"--of {tool}: {describe_unknown('tool', tool, env.tools)}", key="of")
    if hasattr(env, "parts"):  # of a mixture
        own = {key: [task for task in tasks if env.for_task(task) is part] for key, part in env.parts.items()}
        parts = {key: part for key, part in env.parts.items() if tool is None or tool in part.tools}
        swapped = {key: swap_pictures(part, pictures, own[key], tool, reply) for key, part in parts.items()}
        return vary(env, parts={**env.parts, **swapped})
    others = {task.id: _find_other(env, tasks, place) for place, task in enumerate(tasks) if pictures == "other"}

    @lru_cache(maxsize=256)
    def get_images(task: Task) -> Sequence[TaskImage]:
        if pictures == "other":
            return env.images(others[task.id])
        return [{"blank": wipe, "shuffled": shuffle}[pictures](open_source(image)) for image in env.images(task)]

    if tool is None:
        overviews = OverviewCache(get_images, env.max_pixels, env.pixel_multiple)
        return vary(env, images=get_images, _overviews=overviews)

    def swap(task: Task, name: str, number: int, view: View, own: Sequence[Source]) -> View:
        place = find_number(own, view.source) if name == tool and reply in (None, number) else None
        if place is None:
            return view
        return replace(view, source=match_slice(open_source(get_images(task)[place]), view.source))

    return vary(env, swap_view=swap)


def _find_other(env: BaseMultiTurnEnv, tasks: Sequence[Task], place: int) -> Task:
    task, count = tasks[place], env.count_images(tasks[place])
    for other in (*tasks[place + 1 :], *tasks[:place]):
        if other.reference != task.reference and env.count_images(other) == count:
            return other
    allowed = f"one with as many pictures ({count}) and another right answer, among the {len(tasks)} that are played"
    raise ConfigError(f"--pictures other: {task.id}: there is no other; allowed: {allowed}", key="pictures")
