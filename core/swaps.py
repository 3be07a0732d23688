"""The same tasks with other pictures: blank ones, or those of another task, for all that is shown or for one tool."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from ..errors import ConfigError, describe_unknown
from ..images.source import Source, wipe
from ..images.task_images import TaskImage, find_number, match_slice, open_source
from ..images.view import View
from ..records import Task
from .base import Env, vary
from .tasks import OverviewCache

Pictures = Literal["real", "blank", "other"]


def swap_pictures(env: Env, pictures: Pictures, tasks: Sequence[Task], tool: str | None = None) -> Env:
    """Return an environment that shows blank pictures, or those of another task; questions and answers are those of
    `env`.

    Args:
        env: stays as it is.
        pictures: blank: of one gray, as large; other: of the next of `tasks` with as many pictures.
        tasks: those that are played.
        tool: only calls of this tool work on the other pictures: what does the answer owe to what it finds?

    >>> from viewbox.envs.digits import Digits
    >>> env, blank = Digits(), swap_pictures(Digits(), "blank", Digits().tasks[:2])
    >>> [len(set(one.reset(env.tasks[0], seed=0).messages[1].images[0].open().getdata())) > 1 for one in (env, blank)]
    [True, False]
    """
    if hasattr(env, "parts"):  # of a mixture
        return vary(env, parts={key: swap_pictures(part, pictures, tasks, tool) for key, part in env.parts.items()})
    if tool is not None and tool not in env.tools:
        raise ConfigError(f"--of {tool}: {describe_unknown('tool', tool, env.tools)}", key="of")
    number = {task.id: place for place, task in enumerate(tasks)}

    @lru_cache(maxsize=256)
    def get_images(task: Task) -> Sequence[TaskImage]:
        own = env.images(task)
        if pictures == "blank":
            return [wipe(open_source(image)) for image in own]
        for step in range(1, len(tasks)):
            other = tasks[(number[task.id] + step) % len(tasks)]
            if env.for_task(other) is env and env.count_images(other) == len(own):
                return env.images(other)
        raise ConfigError(f"pictures = other: no other of {len(tasks)} tasks has {len(own)} pictures", key="pictures")

    if tool is None:
        overviews = OverviewCache(get_images, env.max_pixels, env.pixel_multiple)
        return vary(env, images=get_images, _overviews=overviews)

    def swap(task: Task, name: str, view: View, own: Sequence[Source]) -> View:
        place = find_number(own, view.source) if name == tool else None
        if place is None:
            return view
        return replace(view, source=match_slice(open_source(get_images(task)[place]), view.source))

    return vary(env, swap_view=swap)
