"""Requests without end, made from the facts of a catalogue and a seed.

Every request begins with the facts of one software of its split, so that it makes sense. A request whose answer is
known leaves at least one suitable software; an ambiguous one hides a fact without which no software is safe to
recommend; one that cannot be answered misses by one thing, and that is its reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...utils.frozen import FrozenDict
from . import phrases as words
from .catalogue import DIMENSIONS, SoftwareTool
from .phrases import HiddenKind, Level, Split
from .request import REASONS, STATUSES, SUITABLE, UNKNOWN, Reason, Request, Status, grade
from .wishes import has_fact


def write_words(request: Request, rng: np.random.Generator) -> str:
    """Return the user's words: the task, unless it is hidden, the modality, the constraints, and what is not wanted."""
    level, split = request.level, request.split
    frames = words.VAGUE if "task" in request.hidden else words.ASKED
    extra = [_pick(rng, words.CONSTRAINT_WORDS[one][level][split]) for one in request.constraints]
    if request.exclude:
        *first, last = request.exclude
        names = f"{', '.join(first)} or {last}" if first else last
        extra.append(_pick(rng, words.EXCLUSION_WORDS[level][split]).format(names=names))
    filled = _pick(rng, frames[level][split]).format(
        task=request.task,
        do=_say(words.TASKS, words.FOREIGN_TASKS, request.task, split, rng),
        modality=request.modality,
        picture=_say(words.MODALITIES, words.FOREIGN_MODALITIES, request.modality, split, rng),
        extra="".join(f" {sentence}" for sentence in extra),
    )
    text: str = filled[0].upper() + filled[1:]
    return text


def write_hidden_fact(request: Request, kind: HiddenKind) -> str:
    """Return the sentence with which the user tells a hidden fact; its first words are those of a question for it."""
    if kind == "task":
        task = request.task
        if request.level == "layman":
            task = f"{words.TASKS[task][request.split][0]} ({task})"
        return f"My task, goal and aim, what I want to do: {task}."
    if kind == "dimensions":
        return f"The dimensions (stack, volume, slices, film, frames, time series): {request.dimensions}."
    return f"The format (type of file, ending, extension): {request.format}."


def _say(known: words.Phrases, foreign: words.Foreign, term: str, split: Split, rng: np.random.Generator) -> str:
    """Return a layman's phrase for a task or a modality, also for one that no catalogue knows."""
    if term in known:
        return str(_pick(rng, known[term][split]))
    return next(phrase for phrase, name in foreign[split] if name == term)


def _pick(rng: np.random.Generator, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


TEST_SHARE = 0.4  # of the catalogue
ATTEMPTS = 400  # draws for a request of a kind
MAX_EXCLUDED = 3
MICROSCOPY = ("fluorescence", "bright field", "phase contrast", "electron", "histology")


def split_of(name: str) -> Split:
    """Return the split in which a software may be the right answer, by a hash of its name, in any case."""
    digest = blake2b(name.casefold().encode(), digest_size=4).digest()
    return "test" if int.from_bytes(digest) / 2**32 < TEST_SHARE else "train"


@dataclass(frozen=True)
class RequestGenerator:
    """Makes the request of a seed. Only software of the split may be right; suitable one of the other is withheld.
    Raise `ConfigError` if no such request can be made of the catalogue."""

    catalogue: Sequence[SoftwareTool]
    split: Split = "train"
    shares: Mapping[Status, float] = FrozenDict(answerable=0.5, ambiguous=0.25, unanswerable=0.25)
    levels: tuple[Level, ...] = ("layman", "expert")
    hides: tuple[HiddenKind, ...] = words.HIDDEN_KINDS  # facts, of which an ambiguous request hides one
    reasons: tuple[Reason, ...] = REASONS  # why a request without an answer has none

    def make(self, seed: int) -> Request:
        """Return the request of a seed; the same for the same catalogue and settings."""
        rng = np.random.default_rng([seed, 41, self.split == "test"])
        shares = np.array([self.shares.get(status, 0.0) for status in STATUSES], float)
        status = STATUSES[int(rng.choice(len(STATUSES), p=shares / shares.sum()))]
        reason = self.reasons[int(rng.integers(len(self.reasons)))] if status == "unanswerable" else None
        for _ in range(ATTEMPTS):
            plain = self._draw_facts(rng, seed)
            found = self._make_unanswerable(plain, reason, rng) if reason else self._make_answerable(plain, status, rng)
            if found is not None:
                return replace(found, words=write_words(found, rng))
        wanted = " ".join(filter(None, (status, reason)))
        raise ConfigError(
            f"the catalogue ({len(self.catalogue)} entries) allows no {wanted} request for split {self.split}; "
            "allowed: more entries, or shares and reasons without it",
            key="catalogue",
        )

    def rate(self, request: Request) -> dict[str, int]:
        """Return the grade of every software of the catalogue that is above 0 and not withheld, by name."""
        grades = {one.name: grade(one, request) for one in self.catalogue if one.name not in request.withheld}
        return {name: points for name, points in grades.items() if points}

    # ------------------------------------------------------------------ facts
    @cached_property
    def _by_task(self) -> dict[str, list[SoftwareTool]]:
        mine = [one for one in self.catalogue if split_of(one.name) == self.split]
        tasks = sorted({task for one in mine for task in one.tasks if task in words.TASKS})
        if not tasks:
            raise ConfigError(f"the catalogue has no software of split {self.split}", key="catalogue")
        return {task: [one for one in mine if task in one.tasks] for task in tasks}

    def _draw_facts(self, rng: np.random.Generator, seed: int) -> Request:
        """Return a request with the facts of one software; common tasks come less often than in the catalogue."""
        tasks = list(self._by_task)
        counts = np.sqrt([len(self._by_task[task]) for task in tasks])
        task = tasks[int(rng.choice(len(tasks), p=counts / counts.sum()))]
        gold = _pick(rng, self._by_task[task])
        known = [one for one in gold.modalities if one in words.MODALITIES] or list(words.MODALITIES)
        dimensions = _pick(rng, [one for one in gold.dimensions if one in DIMENSIONS] or DIMENSIONS)
        return Request(
            "",
            _pick(rng, self.levels),
            task,
            _pick(rng, known),
            dimensions,
            _pick(rng, gold.formats) if gold.formats else "",
            seed=seed,
            split=self.split,
        )

    def _find_suitable(self, request: Request) -> list[str]:
        return [one.name for one in self.catalogue if grade(one, request) >= SUITABLE]

    # ------------------------------------------------------------------ with an answer
    def _make_answerable(self, plain: Request, status: Status, rng: np.random.Generator) -> Request | None:
        constraints = tuple(one for one in words.CONSTRAINTS if rng.random() < 0.15)
        request = replace(plain, constraints=constraints, metadata=_describe_file(plain, rng))
        suitable = self._find_suitable(request)
        mine = [name for name in suitable if split_of(name) == self.split]
        if len(mine) > 1 and rng.random() < 0.25:
            count = int(rng.integers(1, min(MAX_EXCLUDED, len(mine) - 1) + 1))
            gone = tuple(mine[i] for i in sorted(rng.permutation(len(mine))[:count]))
            request, mine = replace(request, exclude=gone), [name for name in mine if name not in gone]
        if not request.format or not mine:
            return None
        withheld = tuple(name for name in suitable if split_of(name) != self.split)
        request = replace(request, withheld=withheld)
        return request if status == "answerable" else self._hide(request, suitable, rng)

    def _hide(self, request: Request, suitable: Sequence[str], rng: np.random.Generator) -> Request | None:
        """Return the request without one fact; None if a software would be right whatever the fact is."""
        kind = _pick(rng, self.hides)
        safe, others = set(suitable), 0
        for value in self._list_values(kind):
            if value == getattr(request, kind):
                continue
            changed: Any = {kind: value}
            names = self._find_suitable(replace(request, **changed))
            if names:
                safe &= set(names)
                others += 1
        if safe or not others:
            return None
        told = ("size", "voxel size") if kind == "dimensions" else ()  # they tell the dimensions, too
        metadata = {key: value for key, value in request.metadata.items() if key not in told}
        metadata |= {kind: UNKNOWN} if kind in metadata else {}
        hidden = FrozenDict({kind: write_hidden_fact(request, kind)})
        return replace(request, status="ambiguous", hidden=hidden, metadata=FrozenDict(metadata))

    def _list_values(self, kind: HiddenKind) -> list[str]:
        if kind == "task":
            return list(self._by_task)
        if kind == "dimensions":
            return list(DIMENSIONS)
        return sorted({name for one in self.catalogue for name in one.formats})

    # ------------------------------------------------------------------ without an answer
    def _make_unanswerable(self, plain: Request, reason: Reason, rng: np.random.Generator) -> Request | None:
        """Return the request changed so that it misses for that reason; None if the facts do not allow it."""
        changed = getattr(self, f"_miss_{reason}")(plain, rng)
        if changed is None:
            return None
        metadata = changed.metadata or _describe_file(changed, rng)
        request = replace(changed, status="unanswerable", reason=reason, metadata=metadata)
        return None if self._find_suitable(request) else request

    def _miss_no_task_match(self, plain: Request, rng: np.random.Generator) -> Request | None:
        foreign = words.FOREIGN_TASKS[self.split]
        return replace(plain, task=_pick(rng, foreign)[1])

    def _miss_no_modality_match(self, plain: Request, rng: np.random.Generator) -> Request | None:
        """Return a kind of picture that no catalogue knows, or one for which no software does the task."""
        able = [one for one in self.catalogue if plain.task in one.tasks]
        foreign = [name for _, name in words.FOREIGN_MODALITIES[self.split]]
        among = foreign if rng.random() < 0.4 else list(words.MODALITIES)
        without = [name for name in among if not any(has_fact(one, "modalities", name) for one in able)]
        return replace(plain, modality=_pick(rng, without)) if without else None

    def _miss_no_dimension_match(self, plain: Request, rng: np.random.Generator) -> Request | None:
        able = [
            one for one in self.catalogue if plain.task in one.tasks and has_fact(one, "modalities", plain.modality)
        ]
        without = [name for name in DIMENSIONS if not any(name in one.dimensions for one in able)]
        return replace(plain, dimensions=_pick(rng, without)) if able and without else None

    def _miss_no_suitable_tool(self, plain: Request, rng: np.random.Generator) -> Request | None:
        """Constraints that no software fulfills, or all that is suitable is not wanted."""
        suitable = self._find_suitable(plain)
        if not suitable:
            return None
        if len(suitable) <= MAX_EXCLUDED and rng.random() < 0.5:
            return replace(plain, exclude=tuple(suitable))
        count = int(rng.integers(1, len(words.CONSTRAINTS) + 1))
        chosen = sorted(rng.permutation(len(words.CONSTRAINTS))[:count])
        return replace(plain, constraints=tuple(words.CONSTRAINTS[i] for i in chosen))

    def _miss_invalid_files(self, plain: Request, rng: np.random.Generator) -> Request | None:
        broken = _pick(rng, words.BROKEN_FILES[self.split])
        metadata = FrozenDict({"format": broken, "dimensions": UNKNOWN})
        return replace(plain, format="", metadata=metadata) if self._find_suitable(plain) else None


def _describe_file(request: Request, rng: np.random.Generator) -> Mapping[str, str]:
    side = int(rng.choice((256, 320, 384, 512, 768, 1024)))
    size = [side, side]
    if request.dimensions.startswith("3D"):
        size.append(int(rng.integers(16, 240)))
    shape = f"{' x '.join(map(str, size))} pixels"
    if request.dimensions.endswith("+t"):
        shape += f", {int(rng.integers(8, 400))} frames"
    known = {"format": request.format, "dimensions": request.dimensions, "size": shape}
    if request.dimensions.startswith("3D"):
        plane, depth = float(rng.uniform(0.3, 1.2)), float(rng.uniform(0.5, 4))
        unit = "um" if request.modality in MICROSCOPY else "mm"
        known["voxel size"] = f"{plane:.2g} x {plane:.2g} x {depth:.2g} {unit}"
    return FrozenDict(known)
