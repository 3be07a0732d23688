"""How large a target must be shown to be read: the same tasks, with the one target of each shown at several scales.

A script makes the first reply: zooms that show the target whole, in the middle, at so many pixels for one of the image.
Then the model goes on, and every call of its own is refused. So it answers from that picture, in the format that it
knows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..core.base import Env, vary
from ..core.contract import EpisodeState, StepResult
from ..core.messages import write_call
from ..engines.generator import Conversation
from ..engines.scripted import ScriptedGenerator
from ..errors import ConfigError
from ..images.coordinates import Coordinates, from_unit
from ..images.shown import ShownView
from ..images.view import View
from ..records import Episode, Reply, RunConfig, Task, ToolCall
from ..rewards.looks import read_looks
from ..rewards.marks import Mark, place_on
from .job import RolloutJob
from .scoring import MIN_TASKS
from .scoring.table import Interval, Table
from .store.reader import load

SCALES = (0.25, 0.5, 0.75, 0.875, 1.0, 2.0)
NEAR = 1.05  # times a scale is that scale: the sides of a picture are whole numbers
MAX_FACTOR, MAX_ZOOMS = 4.0, 3  # of a call; in the reply
Zooms = list[dict[str, Any]]  # the arguments of the calls


class Opening(NamedTuple):
    """The view at the start of a task, its only target, and what the model's processor makes smaller."""

    view: View
    mark: Mark
    shrunk: float
    coordinates: Coordinates

    def write_zooms(self, scale: float) -> Zooms | None:
        """Return the zooms that show the target whole at a scale; None if it is larger at the start, or none do."""
        view, zooms = self.view, Zooms()
        while not zooms or self._measure(view) * NEAR < scale:
            drawn = place_on(self.mark, ShownView.of(view, 0))
            if drawn is None or self._measure(view) > scale * NEAR or len(zooms) == MAX_ZOOMS:
                return None
            (left, top), (right, bottom) = drawn.corners[0], drawn.corners[2]
            center, low, factor = ((left + right) / 2, (top + bottom) / 2), 1.0, MAX_FACTOR
            for _ in range(20):  # the sides of the picture may grow with the factor
                middle = (low + factor) / 2
                is_enough = self._measure(view.zoom(middle, center)) >= scale
                low, factor = (low, middle) if is_enough else (middle, factor)
            factor = round(factor, 2)
            written = int(factor) if factor.is_integer() else factor
            zooms.append({"factor": written, "center": list(from_unit(center, self.coordinates, view.size))})
            view = view.zoom(factor, center)
        drawn = place_on(self.mark, ShownView.of(view, 0))
        return None if drawn is None or drawn.is_clipped else zooms

    def _measure(self, view: View) -> float:
        return self.shrunk * (ShownView.of(view, 0).measure_scale(*view.size) or 0.0)


def find_opening(env: Env, task: Task, config: RunConfig) -> Opening | None:
    """Return how a task starts; None if it has not one target that is a box of its first image, or no `zoom`."""
    played = env.for_task(task)
    state = played.reset(task, seed=0)
    targets = read_looks(played.build_episode(state, config, scored=False)).targets
    if len(targets) != 1 or state.view is None or "zoom" not in state.tools or played.max_turns < 2:
        return None
    mark, look = targets[0].region.mark, targets[0].sights[0].look
    if mark is None or look.image != 0:
        return None
    whole = look.view.measure_scale(look.ref.width, look.ref.height) or look.scale
    return Opening(state.view, mark, look.scale / whole, played.coordinates)


def show_targets(job: RolloutJob) -> dict[str, RolloutJob]:
    """Return the job with the targets at each scale, of the tasks in which they can be shown so. Raise `ConfigError` if
    there is none."""
    openings = [find_opening(job.env, task, job.generator.run_config) for task in job.tasks]
    env, ways = _end_looks(job.env), dict[str, RolloutJob]()
    for scale in SCALES:
        looks = {n: zooms for n, opening in enumerate(openings) if opening and (zooms := opening.write_zooms(scale))}
        build = partial(_build_generator, job, {job.tasks[number].id: zooms for number, zooms in looks.items()})
        player, record = replace(job.player, build_generator=build), {**job.record, "scale": scale}
        if looks:
            ways[f"at_{scale:g}"] = replace(job, env=env, player=player, record=record, only=[*looks])
    if not ways:
        allowed = "tasks with one target that is a box of the first image, and the tool zoom"
        raise ConfigError(f"--acuity: {job.env.name}: no target can be shown; allowed: {allowed}", key="acuity")
    return ways


def _build_generator(job: RolloutJob, looks: Mapping[str, Zooms]) -> ScriptedGenerator:
    """Return the generator of a job whose first reply to each task are its zooms."""
    model = job.player.build_generator()
    tokens = getattr(model, "tokens", None)

    def write_look(conversation: Conversation) -> str | Reply | None:
        if conversation.task is None or any(message.role == "assistant" for message in conversation.messages):
            return None
        zooms = looks[conversation.task.id]
        if tokens is None and conversation.reply_format == "native":
            return Reply("", tuple(ToolCall(f"look_{number}", "zoom", zoom) for number, zoom in enumerate(zooms)))
        return "\n".join(write_call("zoom", zoom, conversation.reply_format) for zoom in zooms)

    return ScriptedGenerator(tokens, write_look, model)


def _end_looks(env: Env) -> Env:
    """Return an environment, described as before, in which every call after the first reply is refused."""
    if hasattr(env, "parts"):  # of a mixture
        return vary(env, parts={key: _end_looks(part) for key, part in env.parts.items()})
    limited = vary(env, toolbox=env.toolbox.limit_calls(MAX_ZOOMS))

    async def step(state: EpisodeState, reply: Reply | str) -> StepResult:
        result = await limited.step(state, reply)
        state.calls.update(dict.fromkeys(state.tools, MAX_ZOOMS))
        return result

    return vary(limited, step=step)


@dataclass(frozen=True)
class Acuity:
    """The share right of the answers, and the share answered of those that were shown so, by scale; `asked` is
    `seen_at.scale` now."""

    right: Mapping[float, Interval]
    answered: Mapping[float, float]
    tasks: int
    asked: float | None

    @property
    def suggested(self) -> float | None:
        """The least scale whose interval lies above half way between the least share right and the best."""
        rows = {scale: row for scale, row in self.right.items() if row.tasks >= MIN_TASKS and row.low is not None}
        means = [row.mean for row in rows.values()]
        return next((scale for scale, row in rows.items() if (row.low or 0) > (min(means) + max(means)) / 2), None)

    def explain(self) -> Iterator[str]:
        why = "without one box that zoom shows whole at that scale, or that a fault ended"
        yield f"of {self.tasks} tasks; right: of the answers; left out: tasks {why}"
        now = "its default" if self.asked is None else f"{self.asked:g}"
        suggestion = "none" if self.suggested is None else f"env.seen_at={{scale: {self.suggested:g}}}"
        yield f"least scale whose interval is above half way between the least and the best: {suggestion} (now {now})"

    def to_dict(self) -> dict[str, Any]:
        right = [{"scale": at, **vars(interval), "answered": self.answered[at]} for at, interval in self.right.items()]
        return {"right": right, "tasks": self.tasks, "suggested": self.suggested, "seen_at": self.asked}


def measure_acuity(folder: Path, ways: Mapping[str, RolloutJob], resamples: int = 1000) -> Acuity:
    """Return the share right of what is stored of each way. Without `resamples` there are no intervals."""
    table, job = Table(), next(iter(ways.values()))
    for name, way in ways.items():
        for episode in load(folder / name):
            if (is_right := _is_right(episode, way.record["scale"])) is not None:
                has_answer = episode.answer is not None
                scored = float(is_right) if has_answer else None
                table.add(episode.task.id, {name: scored, f"{name}/answered": float(has_answer)})
    intervals = table.compute_intervals(resamples > 0)
    scales = {name: way.record["scale"] for name, way in ways.items() if name in intervals}
    right = {scale: intervals[name] for name, scale in scales.items()}
    answered = {scale: intervals[f"{name}/answered"].mean for name, scale in scales.items()}
    return Acuity(right, answered, len(job.tasks), job.env.seen_at.scale)


def _is_right(episode: Episode, scale: float) -> bool | None:
    """Return whether the answer is right; None if the target was not shown whole at this scale, and no larger."""
    looks = read_looks(episode)
    sights = [sight for target in looks.targets for sight in target.sights]
    is_shown = any(sight.share > 0.99 and scale <= sight.look.scale * NEAR for sight in sights)
    return looks.is_right if is_shown and all(target.scale <= scale * NEAR for target in looks.targets) else None
