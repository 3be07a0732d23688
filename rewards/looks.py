"""Where an episode looked: what each picture showed of the images, how closely, and whether that held what was asked.

Every picture is an exact box of its image (`ShownView`), and a slice is a thin box of its volume. So what was seen of a
target, which the reference names, is geometry: nothing is estimated, and no model is asked.

A wrong answer has one of four reasons, in the words of Kundel, Nodine & Carmody (1978), *Visual scanning, pattern
recognition and decision-making in pulmonary nodule detection*. `search`: no closer look was on the target.
`recognition`: one was, but showed it too small, too faint or in too small a part to be read. `decision`: it was shown
well, and the answer is another. `forgotten` is viewbox's own word: it was shown well, but the history no longer held
that picture when the model answered. A right answer is `seen`, or `blind`: right without looking.
"""

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from ..errors import ViewboxError
from ..images.ref import ImageRef
from ..images.shown import ShownView
from ..records import Episode, Scores, Turn
from ..utils.values import reaches, to_finite_float
from . import regions
from .fields import compute_area
from .iou import compute_overlap
from .marks import Mark, Views, find_marks, find_problem, get_place_fields, place_on
from .regions import Region, Solid

Verdict = Literal["seen", "blind", "search", "recognition", "forgotten", "decision"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
RIGHT: tuple[Verdict, ...] = ("seen", "blind")
HALF = 0.5  # of a target that must be shown well; of a look, or of the target, that makes the look one on it
ACROSS = 16  # pixels across the shorter side of a target that are enough, however large it is
CLOSER = 1.05  # times the scale of the pictures at the start, from which on a look is one
MET = 0.1  # IoU from which on a box of the answer is about a target
SOLVED = 0.5  # total score of a right answer, where the environment does not say what is right
MAX_LOOKS = 100  # of an image that are measured


class Look(NamedTuple):
    """A picture of an image, or of a part of one, that the model was shown after `reply` of its replies.

    Args:
        thin: the axis that the slice stands on: 0, 1 or 2.
        scale: pixels that the model got for one of the image.
        pixels: of the image along x, y and z; infinite across a slice.
        number: of the picture: those at the start have 0, the others are counted.
        is_closer: it shows more of its place than the pictures at the start: larger, or in another window.
    """

    image: int
    solid: Solid
    thin: int
    scale: float
    pixels: tuple[float, ...]
    reply: int
    number: int
    is_closer: bool
    view: ShownView
    ref: ImageRef

    def extrude(self, target: Solid) -> Solid | None:
        """Return what is shown, as deep as a target: one slice through a lesion shows it. None on a slice that does
        not reach half into it, as an answer counts slices."""
        low, high = self.thin, self.thin + 3
        share = regions.measure_overlap(self.solid, target, low)
        if share < 1:
            slab = (self.solid[high] - self.solid[low]) / (target[high] - target[low])
            if not reaches(share, HALF * min(1.0, slab)):
                return None
        sides = list(self.solid)
        sides[low], sides[high] = target[low], target[high]
        return tuple(sides)  # type: ignore[return-value]


class Sight(NamedTuple):
    """What a look shows of a target: a box as deep as the target, and the share of it.
    `is_on`: it holds half of the target, or is filled by it by half; `is_close`: the target is large enough in it to be
    read; `is_clear`: large enough, and with enough contrast."""

    look: Look
    solid: Solid | None
    share: float
    is_on: bool
    is_close: bool
    is_clear: bool


class Target:
    """A region that the right answer is about, and what each look at its image shows of it.

    Args:
        is_met: whether a box of the answer is about it.

    `covered` is the share that the clear looks show together, `first` the number of replies after which it was seen
    (None: it never was), `scale` the largest of a look on it.
    """

    def __init__(self, region: Region, sights: Sequence[Sight], is_met: bool = False) -> None:
        self.region, self.sights, self.is_met = region, sights, is_met
        self.clear = [sight for sight in sights if sight.is_clear]
        self.covered = self.cover(self.clear)
        self.is_seen = reaches(self.covered, HALF)
        self.scale = max((sight.look.scale for sight in sights if sight.is_on), default=0.0)
        self.first: int | None = None
        for reply in sorted({sight.look.reply for sight in self.clear}) if self.is_seen else ():
            if self.first is None and reaches(self.cover([s for s in self.clear if s.look.reply <= reply]), HALF):
                self.first = reply

    def cover(self, sights: Sequence[Sight]) -> float:
        """Return the share of its section that several looks show together."""
        most = max([sight.share for sight in sights], default=0.0)
        if len(sights) < 2 or reaches(most, 1.0):
            return most
        return self.region.measure([sight.solid for sight in sights if sight.solid is not None])


@dataclass(frozen=True)
class Looks:
    """What an episode looked at. Without `targets`, `why` says why nothing is known."""

    looks: tuple[Look, ...]
    targets: tuple[Target, ...]
    is_right: bool | None  # None: it has no score
    kept: int  # the number from which on the model still had the pictures when it answered
    why: str = ""

    @property
    def verdict(self) -> Verdict | None:
        """Why the answer is wrong, by the targets that no box of it is about, if there are several; or how it is right.
        None without a target or a score."""
        if not self.targets or self.is_right is None:
            return None
        if self.is_right:
            return "seen" if all(target.is_seen for target in self.targets) else "blind"
        missed = [target for target in self.targets if not target.is_met] or self.targets
        unseen = [target for target in missed if not target.is_seen]
        if unseen:
            approached = (any(sight.is_on and sight.look.is_closer for sight in target.sights) for target in unseen)
            return "recognition" if all(approached) else "search"
        held = (target.cover([sight for sight in target.clear if sight.look.number >= self.kept]) for target in missed)
        return "decision" if self.kept == 0 or all(reaches(share, HALF) for share in held) else "forgotten"

    @property
    def examined(self) -> float:
        """The share of the images with targets that was shown as closely as these need."""
        shares = []
        for image in {target.region.image for target in self.targets}:
            mine = zip(*(item.sights for item in self.targets if item.region.image == image), strict=True)
            close = [sights[0].look.solid for sights in mine if all(sight.is_close for sight in sights)]
            shares.append(regions.measure_union(list(dict.fromkeys(close)), regions.WHOLE))
        return average(shares)

    def list_values(self) -> dict[str, float | None]:
        """Return what was measured, by name; None if it does not apply."""
        if not self.targets:
            return dict.fromkeys(VALUES)
        on_ids = {id(item.look) for target in self.targets for item in target.sights if item.is_on}
        on = [id(look) in on_ids for look in self.looks if look.is_closer]
        at, firsts = sum(on), [item.first for item in self.targets]
        starts = sum(map(operator.gt, on, [False, *on]))
        return {
            "covered": average([item.covered for item in self.targets]),
            "scale": min([item.scale for item in self.targets]),
            "first": None if None in firsts else float(max(firsts)),  # type: ignore[type-var, arg-type]
            "number": float(len(on)),
            "at": float(at),
            "share": at / len(on) if on else None,
            "revisits": float(max(0, starts - 1)),
            "examined": self.examined,
        }

    def to_dict(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "looks": self.list_values()}

    def measure(self) -> dict[str, float | None]:
        """Return the figures of the episode by name (`FIGURES`); None if one does not apply."""
        if not self.targets:
            return _NOTHING
        return dict(zip(FIGURES, (*self.list_values().values(), *_SHARES[self.verdict]), strict=True))

    def explain(self) -> str:
        if not self.targets:
            return self.why
        parts = []
        for one in self.targets:
            when = f"after reply {one.first}" if one.first else "at the start"
            seen = "never seen" if one.first is None else f"seen {when}"
            parts.append(f"{one.region.label or 'target'}: {seen}, at most {one.scale:.2g} pixels for one of the image")
        values = self.list_values()
        others = int((values["number"] or 0) - (values["at"] or 0))
        elsewhere = f"; {others} looks elsewhere" if others else ""
        return f"{self.verdict or 'no score'}: {'; '.join(parts)}{elsewhere}"


VALUES = ("covered", "scale", "first", "number", "at", "share", "revisits", "examined")
FIGURES = (*(f"looks/{name}" for name in VALUES), *(f"verdict/{name}" for name in VERDICTS))
_NOTHING: dict[str, float | None] = dict.fromkeys(FIGURES)
_SHARES: dict[Verdict | None, list[float | None]] = {
    None: [None] * len(VERDICTS),
    **{label: [float(name == label) for name in VERDICTS] for label in VERDICTS},
}


def read_looks(episode: Episode, scale: float | None = None, scores: Scores | None = None) -> Looks:
    """Return where an episode looked; it may be forged, and then has less. `scale` replaces that of `seen_at`, `scores`
    those that are stored.

    >>> from viewbox.envs.digits import Digits
    >>> env = Digits()
    >>> looked = env.play(env.tasks[0], lambda messages: env.oracle(env.tasks[0])[0] if len(messages) < 3 else "{}")
    >>> read_looks(looked).explain()
    'decision: two: seen after reply 1, at most 1 pixels for one of the image'
    """
    info = episode.info.get("looks")
    settings: Mapping[str, Any] = info if isinstance(info, Mapping) else {}
    stated = settings.get("at")
    values = stated if isinstance(stated, Mapping) else {}
    at = to_finite_float(values.get("scale") if scale is None else scale), to_finite_float(values.get("contrast"))
    looks, views, kept_from = list_looks(episode)
    right = is_right(episode, scores or episode.scores, settings.get("right"))
    golds = regions.find_regions(episode, views)[:MAX_LOOKS]
    met = _find_met(golds, episode, views) if len(golds) > 1 else ()
    targets = []
    try:
        for number, region in enumerate(golds):
            image_looks = [look for look in looks if look.image == region.image][:MAX_LOOKS]
            if image_looks:
                targets.append(Target(region, [see(look, region, *at) for look in image_looks], number in met))
    except (ViewboxError, OSError) as error:
        return Looks(tuple(looks), (), right, kept_from, f"how clear it was is not known: {error}")
    return Looks(tuple(looks), tuple(targets), right, kept_from, NO_TARGET if not golds else NO_SIZE)


NO_TARGET = "the reference names no place"
NO_SIZE = "no picture of the place has a recorded size"


def is_right(episode: Episode, scores: Scores | None, least: object = None) -> bool | None:
    """Whether the answer is right: every component named in `least` reaches its score; of others, the total 0.5."""
    if episode.is_fault or scores is None or scores.total is None:
        return None
    if isinstance(least, Mapping) and least and all(scores.components.get(name) is not None for name in least):
        needed = [(scores.components[name], to_finite_float(value)) for name, value in least.items()]
        return all(value is not None and one is not None and reaches(one, value) for one, value in needed)
    return reaches(scores.total, SOLVED)


def list_looks(episode: Episode) -> tuple[list[Look], Views, int]:
    """Return every part of an image that a picture showed the model, in order; what the pictures are called; and the
    number of the first that the model still had when it answered (`Look.number`)."""
    views, looks = Views(), list[Look]()
    opening: dict[tuple[Any, ...], tuple[float, str | None]] = {}
    reply, number, at_start, latest = 0, 0, set[str](), ""
    most = abs(to_finite_float(episode.run_config.max_pixels) or math.inf)
    side = abs(to_finite_float(episode.run_config.max_side) or math.inf)
    for turn in episode.turns:
        if turn.role == "assistant":
            reply += 1
            continue
        for ref, shown in _iter_pictures(turn):
            if ref is None or not (0 < ref.width < 2**31 and 0 < ref.height < 2**31):
                continue
            usable = [view for view in shown if find_problem(view) is None]
            views.add(usable)
            number, latest = number + bool(reply), ref.hash
            if not reply:
                at_start.add(latest)
            shrunk = 1.0 if most >= ref.width * ref.height else math.sqrt(most / (ref.width * ref.height))
            width, height = min(side, ref.width * shrunk), min(side, ref.height * shrunk)
            for view in usable:
                scale = view.measure_scale(width, height)
                if view.image is None or scale is None or view.size is None or len(looks) >= MAX_LOOKS**2:
                    continue
                place = view.image, view.plane, view.slice, view.time
                first = opening.get(place) if reply else opening.setdefault(place, (scale, view.window))
                closer = bool(reply) and (first is None or scale > CLOSER * first[0] or view.window != first[1])
                solid, thin = regions.to_solid(view.corners, view.plane, (view.slice, view.slice), view.slices)
                (x, y), z = view.size, math.inf
                pixels = (x, y, z) if thin == 2 else (x, z, y) if thin == 1 else (z, x, y)
                looks.append(Look(view.image, solid, thin, scale, pixels, reply, number, closer, view, ref))
    last = episode.info.get("last_images")
    if not isinstance(last, int) or isinstance(last, bool) or last < 1:
        return looks, views, 0
    return looks, views, max(0, number - (latest in at_start) - last + 1)  # one of the start again is not counted


def _iter_pictures(turn: Turn) -> Iterator[tuple[ImageRef | None, Sequence[ShownView]]]:
    """Yield each picture of a turn with what it shows, and None for a call without one."""
    if turn.role == "user":
        yield from ((ref, turn.views[n : n + 1]) for n, ref in enumerate(turn.images))
    for result in turn.tool_results:
        yield result.image, result.views


def _find_met(golds: Sequence[Region], episode: Episode, views: Views) -> set[int]:
    """Return the numbers of the regions that a box of the answer is about, one each: the best pairs first."""
    marks = find_marks(episode.answer, "answer", get_place_fields(episode.info), views)[:MAX_LOOKS]
    boxes = [regions.to_region(mark, views) for mark in marks]
    pairs = [
        (compute_overlap(region.bounds, box.bounds), number, place)
        for number, region in enumerate(golds)
        for place, box in enumerate(boxes)
        if region.image == box.image
    ]
    met, taken = set[int](), set[int]()
    for share, number, place in sorted(pairs, reverse=True):
        if reaches(share, MET) and number not in met and place not in taken:
            met.add(number)
            taken.add(place)
    return met


def see(look: Look, region: Region, least: float | None = None, contrast: float | None = None) -> Sight:
    """Return what a look shows of a region, at the least scale and contrast that show it well; a slice, a plane or an
    image is close and clear wherever it is shown. Raise `ViewboxError` or `OSError` if how clear cannot be known, as
    the picture cannot be opened."""
    solid = look.extrude(region.bounds) if region.plane in (None, look.thin) else None
    share, size = 0.0 if solid is None else region.measure([solid]), region.size
    is_on = solid is not None and reaches(share * size, HALF * min(size, compute_area(solid)))
    if region.is_whole:
        return Sight(look, solid, share, is_on, share > 0, share > 0)
    if least is None:
        (x1, y1, z1, x2, y2, z2), (x, y, z) = region.bounds, look.pixels
        least = min(1.0, ACROSS / min((x2 - x1) * x, (y2 - y1) * y, (z2 - z1) * z))
    is_clear = is_close = reaches(look.scale, least)
    if contrast is not None and region.mark is not None and is_close:
        is_clear = share > 0 and reaches(measure_contrast(look, region.mark), contrast)
    return Sight(look, solid, share, is_on, is_close, is_clear and share > 0)


def measure_contrast(look: Look, mark: Mark) -> float:
    """Return how far the mean gray inside a box is from that around it, in levels of 0 to 255 of the picture that was
    stored. Around it is a frame half as wide as the box; infinite if the box fills the picture."""
    drawn = place_on(mark, look.view)
    if drawn is None:
        return 0.0
    pixels = np.asarray(look.ref.open().convert("L"), float)
    (left, top), (right, bottom) = drawn.corners[0], drawn.corners[2]
    sums, counts = [], []
    for more in (0.0, 0.5):
        x, y = more * (right - left), more * (bottom - top)
        columns = slice(max(0, round((left - x) * look.ref.width)), max(1, round((right + x) * look.ref.width)))
        rows = slice(max(0, round((top - y) * look.ref.height)), max(1, round((bottom + y) * look.ref.height)))
        sums.append(float(pixels[rows, columns].sum()))
        counts.append(pixels[rows, columns].size)
    if not counts[0] or counts[0] == counts[1]:
        return math.inf if counts[0] else 0.0
    return abs(sums[0] / counts[0] - (sums[1] - sums[0]) / (counts[1] - counts[0]))


def average(values: Sequence[float]) -> float:
    return float(sum(values) / len(values))


def explain_verdicts(figures: Mapping[str, float]) -> list[str]:
    """Return a sentence on what wrong answers come from; none without a target.

    >>> explain_verdicts({"verdict/search": 0.3, "verdict/decision": 0.1, "verdict/blind": 0.05, "verdict/seen": 0.55})
    ['40% are wrong (75% search, 25% decision); 5% are right without looking']
    """
    shares = {name: figures[f"verdict/{name}"] for name in VERDICTS if f"verdict/{name}" in figures}
    wrong = {name: share for name, share in shares.items() if name not in RIGHT and share}
    total = sum(wrong.values())
    parts = ", ".join(f"{share / total:.0%} {name}" for name, share in wrong.items())
    by = f" ({parts})" if parts else ""
    said = f"{total:.0%} are wrong{by}; {shares.get('blind', 0):.0%} are right without looking"
    return [said] if shares else []
