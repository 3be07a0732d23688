"""Where an episode looked: what each picture showed of the images, how closely, and whether that held what was asked.

Every picture is an exact box of its image (`ShownView`), and a slice is a thin box of its volume. So what was seen of a
target, a box of the reference, is geometry: nothing is estimated, and no model is asked.

A wrong answer has one of four reasons, after Kundel, Nodine & Carmody (1978), *Visual scanning, pattern recognition and
decision-making in pulmonary nodule detection*. `search`: no closer look held the target. `sampling`: one did, but the
target was too small in it, or its window too wide. `recognition`: the target was seen and passed over, and the answer
does not point at it. `decision`: it was seen, and the answer points at it or was given while it was in view. A right
answer is `seen`, or `blind`: right without a look.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, get_args

import numpy as np
from pydantic import Field

from ..images.shown import ShownView
from ..records import Episode
from ..utils.values import reaches, to_finite_float
from .declare import NonNegative, RewardName, register_reward
from .marks import Kind, Mark, Views, find_marks, find_problem, get_place_fields

Verdict = Literal["seen", "blind", "search", "sampling", "recognition", "decision"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Solid = tuple[float, float, float, float, float, float]  # x1, y1, z1, x2, y2, z2; z of a single picture is 0 to 1
HALF = 0.5  # of a target that one picture must show
ACROSS = 16  # pixels across the shorter side of a target that are enough, however large it is
CLOSER = 1.05  # times the scale of the opening picture, from which on a look is one
SOLVED = 0.5  # total score of a right answer, where the environment does not say what is right
MAX_LOOKS = 100  # of an image that are measured


class Look(NamedTuple):
    """A picture of an image, or a part of one, that the model was shown after `replies` of its replies (0: at the
    start). `is_closer`: it shows more of this place than the pictures at the start."""

    image: int
    solid: Solid
    thin: int  # the axis that the slice stands on: 0, 1 or 2
    scale: float  # pixels that the model got for one of the image
    values: float | None
    pixels: tuple[float, ...]  # of the image along x, y and z; infinite across a slice
    turn: int
    replies: int
    is_closer: bool

    def hold(self, target: Solid) -> float:
        """Return the share of the target's section in this slice that the picture shows; 0 on another slice."""
        return measure_union(self.extrude(target), target)

    def extrude(self, target: Solid) -> list[Solid]:
        """Return what is shown, as deep as the target: one slice shows a lesion. Empty on a slice that does not reach
        half into it, as an answer counts slices."""
        low, high = self.thin, self.thin + 3
        slab = (self.solid[high] - self.solid[low]) / (target[high] - target[low])
        if not reaches(_overlap(self.solid, target, self.thin), HALF * min(1.0, slab)):
            return []
        sides = list(self.solid)
        sides[low], sides[high] = target[low], target[high]
        return [tuple(sides)]  # type: ignore[list-item]


@dataclass(frozen=True)
class Target:
    """A box that the right answer is about, and the looks at it."""

    label: str
    image: int
    solid: Solid
    looks: tuple[Look, ...]  # of its image
    at: Mapping[str, Any]

    @cached_property
    def holding(self) -> tuple[Look, ...]:
        """The looks that hold at least half of it."""
        return tuple(look for look in self.looks if look.hold(self.solid) >= HALF)

    @cached_property
    def seeing(self) -> tuple[Look, ...]:
        """Those in which it can be seen."""
        return tuple(look for look in self.holding if self.can_see(look))

    def can_see(self, look: Look) -> bool:
        """Whether a look is close enough, and its window narrow enough, for this target."""
        least, widest = (to_finite_float(self.at.get(name)) for name in ("scale", "values"))
        if least is None:
            sides = zip(self.solid, self.solid[3:], look.pixels, strict=False)
            least = min(1.0, ACROSS / min((high - low) * pixels for low, high, pixels in sides))
        return reaches(look.scale, least) and (widest is None or (look.values is not None and look.values <= widest))

    def cover(self, looks: Sequence[Look]) -> float:
        """Return the share of its section that these looks show together, close enough to see it."""
        seeing = (look for look in looks if look.image == self.image and self.can_see(look))
        return measure_union([one for look in seeing for one in look.extrude(self.solid)], self.solid)


@dataclass(frozen=True)
class Looks:
    """What an episode looked at. `targets` are empty if the reference has no box, or the pictures no recorded size."""

    looks: tuple[Look, ...]
    targets: tuple[Target, ...]
    replies: int
    points_at: frozenset[int]  # numbers of the targets that a box of the answer meets
    is_right: bool | None  # None: it has no score

    @property
    def verdict(self) -> Verdict | None:
        """Why the answer is wrong, of the target that was seen least; or how it is right. None without a target."""
        if not self.targets or self.is_right is None:
            return None
        unseen = [target for target in self.targets if not target.seeing]
        if self.is_right:
            return "blind" if unseen else "seen"
        if unseen:
            return "sampling" if all(any(look.is_closer for look in one.holding) for one in unseen) else "search"
        last = max((look.replies for look in self.looks), default=0)
        in_view = any(look.replies == last for target in self.targets for look in target.seeing)
        return "decision" if self.points_at or in_view else "recognition"

    @property
    def examined(self) -> float:
        """The share of the images with targets that was shown as closely as these need."""
        return _average(self._examine(image) for image in {one.image for one in self.targets})

    def measure(self) -> dict[str, float | None]:
        """Return the figures of the episode by name; None if one does not apply."""
        if not self.targets:
            return dict.fromkeys(FIGURES)
        verdict, looked = self.verdict, [look for look in self.looks if look.is_closer]
        firsts = [min((look.replies for look in target.seeing), default=None) for target in self.targets]
        found = {
            "looks/covered": _average(target.cover(target.looks) for target in self.targets),
            "looks/scale": min(max((look.scale for look in one.holding), default=0.0) for one in self.targets),
            "looks/first": None if None in firsts else float(max(firsts)),  # type: ignore[type-var, arg-type]
            "looks/at": float(sum(any(look.hold(one.solid) >= HALF for one in self.targets) for look in looked)),
            "looks/time": self._measure_time(),
            "looks/examined": self.examined,
        }
        return found | {f"verdict/{name}": None if verdict is None else float(name == verdict) for name in VERDICTS}

    def explain(self) -> str:
        """Return the finding in a sentence."""
        if not self.targets:
            return "the reference names no box, or the pictures have no recorded size"
        parts = []
        for target in self.targets:
            closest = max((look.scale for look in target.holding), default=0.0)
            first = min((look.replies for look in target.seeing), default=None)
            seen = "never seen" if first is None else f"seen after reply {first}" if first else "seen at the start"
            parts.append(f"{target.label or 'target'}: {seen}, at most {closest:.2g} pixels for one of the image")
        others = sum(look.is_closer and all(look not in one.holding for one in self.targets) for look in self.looks)
        elsewhere = f"; {others} looks elsewhere" if others else ""
        return f"{self.verdict or 'no score'}: {'; '.join(parts)}{elsewhere}"

    def _measure_time(self) -> float:
        """Return the share of the replies that were made while the latest pictures showed a target well."""
        seeing = {look.replies for target in self.targets for look in target.seeing}
        latest, inside = -1, 0
        shown = {look.replies for look in self.looks}
        for reply in range(self.replies):
            latest = reply if reply in shown else latest
            inside += latest in seeing
        return inside / max(1, self.replies)

    def _examine(self, image: int) -> float:
        """Return the share of an image that was shown as closely as its targets need."""
        mine = [one for one in self.targets if one.image == image]
        looks = [look for look in self.looks if look.image == image and all(one.can_see(look) for one in mine)]
        return measure_union([look.solid for look in looks], (0.0, 0.0, 0.0, 1.0, 1.0, 1.0))


FIGURES = (
    *("looks/covered", "looks/scale", "looks/first", "looks/at", "looks/time", "looks/examined"),
    *(f"verdict/{name}" for name in VERDICTS),
)


def _average(values: Any) -> float:
    known = list(values)
    return float(sum(known) / len(known))


def read_looks(episode: Episode, scale: float | None = None) -> Looks:
    """Return where an episode looked; it may be forged, and then has less. `scale` replaces that of `seen_at`.

    >>> from viewbox.envs.digits import Digits
    >>> env = Digits()
    >>> looked = env.play(env.tasks[0], lambda messages: env.oracle(env.tasks[0])[0] if len(messages) < 3 else "{}")
    >>> read_looks(looked).explain()
    'decision: two: seen after reply 1, at most 1 pixels for one of the image'
    """
    info = episode.info.get("looks")
    settings: Mapping[str, Any] = info if isinstance(info, Mapping) else {}
    looks, views = list_looks(episode)
    golds = [*_find_solids(episode, episode.task.metadata.get("evidence"), "gold", views)]
    golds = golds or [*_find_solids(episode, episode.task.reference, "gold", views)]
    answers = [*_find_solids(episode, episode.answer, "answer", views)]
    given = settings.get("at")
    at = {**(given if isinstance(given, Mapping) else {}), **({} if scale is None else {"scale": scale})}
    targets = tuple(
        Target(mark.label, mark.place.image, solid, own, at)
        for mark, solid in golds
        if (own := tuple(look for look in looks if look.image == mark.place.image)[:MAX_LOOKS])
    )
    met = frozenset(
        number
        for number, target in enumerate(targets)
        for mark, solid in answers
        if mark.place.image == target.image and measure_union([solid], target.solid) > 0
    )
    return Looks(tuple(looks), targets, episode.num_turns, met, is_right(episode, settings.get("right")))


def is_right(episode: Episode, least: object = None) -> bool | None:
    """Whether the answer is right: every component named in `least` reaches its score; of others, the total 0.5."""
    scores = None if episode.is_fault else episode.scores
    if scores is None or scores.total is None:
        return None
    if isinstance(least, Mapping) and least and all(scores.components.get(name) is not None for name in least):
        needed = [(scores.components[name], to_finite_float(value)) for name, value in least.items()]
        return all(value is not None and one is not None and reaches(one, value) for one, value in needed)
    return reaches(scores.total, SOLVED)


def list_looks(episode: Episode) -> tuple[list[Look], Views]:
    """Return every part of an image that a picture showed the model, in order, and what the pictures are called."""
    views, found = Views(), list[Look]()
    opening: dict[tuple[Any, ...], tuple[float, float | None]] = {}
    replies = 0
    limit = episode.run_config.max_pixels
    for number, turn in enumerate(episode.turns):
        if turn.role == "assistant":
            replies += 1
            continue
        for ref, shown in _iter_pictures(turn):
            if ref is None or not (0 < ref.width < 2**31 and 0 < ref.height < 2**31):
                continue
            usable = [view for view in shown if find_problem(view) is None]
            views.add(usable)
            kept = math.sqrt(min(1.0, limit / (ref.width * ref.height))) if limit and limit > 0 else 1.0
            for view in usable:
                scale = view.measure_scale(ref.width, ref.height)
                if view.image is None or scale is None or view.size is None or len(found) >= MAX_LOOKS**2:
                    continue
                scale *= kept
                place = view.image, view.plane, view.slice, view.time
                first = opening.setdefault(place, (scale, view.values)) if not replies else opening.get(place)
                closer = bool(replies) and (first is None or scale > CLOSER * first[0] or view.values != first[1])
                solid, thin = to_solid(view.corners, view.plane, (view.slice, view.slice), view.slices)
                pixels = [float(side) for side in view.size]
                pixels.insert(thin, math.inf)
                found.append(Look(view.image, solid, thin, scale, view.values, tuple(pixels), number, replies, closer))
    return found, views


def _iter_pictures(turn: Any) -> Iterator[tuple[Any, Sequence[ShownView]]]:
    """Yield each picture of a turn with what it shows, and None for a call without one."""
    if turn.role == "user":
        yield from ((ref, turn.views[n : n + 1]) for n, ref in enumerate(turn.images))
    for result in turn.tool_results:
        yield result.image, result.views


def to_solid(
    corners: Sequence[float], plane: str | None, slices: tuple[int | None, int | None], count: int | None
) -> tuple[Solid, int]:
    """Return a box of a picture, or of the slices first to last of `count`, as a box of its volume, and its thin axis.

    >>> to_solid((0.5, 0.25, 0.75, 0.5), None, (None, None), None)
    ((0.5, 0.25, 0.0, 0.75, 0.5, 1.0), 2)
    >>> to_solid((0.5, 0.0, 1.0, 0.25), "coronal", (1, 1), 4)  # the head is up
    ((0.5, 0.25, 0.75, 1.0, 0.5, 1.0), 1)
    """
    x1, x2 = sorted((corners[0], corners[2]))
    y1, y2 = sorted((corners[1], corners[3]))
    first, last = slices
    low, high = (0.0, 1.0) if first is None or last is None or not count else (first / count, (last + 1) / count)
    if plane == "coronal":
        return (x1, low, 1 - y2, x2, high, 1 - y1), 1
    if plane == "sagittal":
        return (low, x1, 1 - y2, high, x2, 1 - y1), 0
    return (x1, y1, low, x2, y2, high), 2


def _find_solids(episode: Episode, value: object, kind: Kind, views: Views) -> Iterator[tuple[Mark, Solid]]:
    """Yield the boxes of a reference or an answer, each as a box of its volume."""
    for mark in find_marks(value, kind, get_place_fields(episode.info), views):
        flat = (*mark.corners[0], *mark.corners[2])
        if mark.depth is not None and len(mark.depth) == 6:
            yield mark, mark.depth
            continue
        at = mark.place
        solid, _ = to_solid(flat, at.plane, at.slices or (None, None), views.count_slices(at.image, at.plane))
        yield mark, solid


def _overlap(solid: Solid, whole: Solid, axis: int) -> float:
    """Return the share of a side of `whole` that lies in a box."""
    low, high = max(solid[axis], whole[axis]), min(solid[axis + 3], whole[axis + 3])
    return max(0.0, high - low) / (whole[axis + 3] - whole[axis])


def measure_union(solids: Sequence[Solid], whole: Solid) -> float:
    """Return the share of `whole` that these boxes cover together.

    >>> measure_union([(0, 0, 0, 0.5, 1, 1), (0.25, 0, 0, 0.75, 1, 1)], (0.0, 0.0, 0.0, 1.0, 1.0, 1.0))
    0.75
    """
    solids = list(dict.fromkeys(solids))[:MAX_LOOKS]
    if len(solids) < 2:
        return math.prod(_overlap(one, whole, axis) for one in solids for axis in range(3)) if solids else 0.0
    low, high = np.array(whole[:3]), np.array(whole[3:])
    boxes = np.array(solids, float).reshape(-1, 2, 3).clip(low, high)
    edges = [np.unique([*boxes[:, :, axis].ravel(), low[axis], high[axis]]) for axis in range(3)]
    filled = np.zeros([len(one) - 1 for one in edges], bool)
    for box in boxes:
        filled[tuple(slice(*np.searchsorted(edges[axis], box[:, axis])) for axis in range(3))] = True
    x, y, z = map(np.diff, edges)
    return float(np.einsum("ijk,i,j,k", filled, x, y, z) / np.prod(high - low))


@register_reward("seen")
class SeenReward:
    """How well an episode looked: max(0, seen - examined - `cost` · (calls - 1)).

    `seen` is the share of the right answer's boxes that closer looks showed well, and `examined` the share of the
    pictures that they showed as closely. So before it is cut off at 0, the difference is 0 on average for looks that
    know nothing of the target, however many they are: the whole picture again gives 1 - 1, and 5 of 16 tiles 5/16 -
    5/16 (as J = sensitivity + specificity - 1; Youden 1950). Every call after the first costs, whether it ran or was
    refused, and however many stand in one reply.

    A look counts if it shows more of its place than the pictures at the start, and the target in it is as large, and
    its window as narrow, as the environment's `seen_at` asks for; `scale` replaces its scale. The reward does not apply
    if the reference has no box, or if the pictures at the start already show it well. Without an answer it is 0. It
    does not measure whether the answer is right.

    Range: [0, 1], or `None`.

    >>> from viewbox.envs.digits import Digits
    >>> env = Digits()
    >>> look = env.oracle(env.tasks[0])[0]
    >>> looked = env.play(env.tasks[0], lambda messages: look if len(messages) < 3 else env.write_answer(env.tasks[0]))
    >>> SeenReward().of_episode(looked)  # it is seen whole in a sixteenth of the picture
    0.9375
    """

    scale: Annotated[
        float | None, Field(gt=0, description="pixels shown for one of the image; default: the environment's `seen_at`")
    ] = None
    cost: Annotated[NonNegative, Field(description="of each call after the first")] = 0.1
    name: RewardName = "seen"

    def of_episode(self, episode: Episode) -> float | None:
        return self._score(episode)[0]

    def explain_episode(self, episode: Episode) -> str:
        """Return why the episode got its score, in a sentence."""
        return self._score(episode)[1]

    def _score(self, episode: Episode) -> tuple[float | None, str]:
        found = read_looks(episode, self.scale)
        if not found.targets:
            return None, "the reference names no box"
        if all(any(not look.replies for look in one.seeing) for one in found.targets):
            return None, "the pictures at the start already show it well"
        if episode.answer is None:
            return 0.0, "there is no answer"
        closer = replace(found, looks=tuple(look for look in found.looks if look.is_closer))
        seen = _average(one.cover(closer.looks) for one in found.targets)
        examined, calls = closer.examined, episode.tool_call_count
        score = max(0.0, seen - examined - self.cost * max(0, calls - 1))
        return score, f"{seen:.2f} of it was seen, with {examined:.2f} of the picture, in {calls} calls"
