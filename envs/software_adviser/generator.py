"""Requests without end, made from the facts of a catalogue and a seed.

Every request begins with the facts of one software of its split, so that it makes sense. A request whose answer is
known leaves at least one suitable software; an ambiguous one hides a fact without which no software is safe to
recommend; one that cannot be answered misses by one thing, and that is its reason.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...utils.frozen import FrozenDict
from ..drawn import Split
from . import phrases as words
from .catalogue import DIMENSIONS, SoftwareTool
from .files import CODES, OPENED, write_report
from .phrases import HiddenKind, Level, PicturedKind
from .request import READY, REASONS, STATUSES, SUITABLE, UNKNOWN, Reason, Request, Status, grade, list_siblings
from .scenes import SCENES, Scene
from .structures import ANY, MARKING, compare, fits_variant, read_terms
from .wishes import has_fact


def write_words(request: Request, rng: np.random.Generator) -> str:
    """Return the user's words: the task, unless it is hidden, the modality, the constraints, and what is not wanted."""
    level, split = request.level, request.split
    told, unseen = (words.VAGUE, words.UNSEEN_VAGUE) if "task" in request.hidden else (words.ASKED, words.UNSEEN)
    frames = words.FILED if request.filed else unseen if request.pictured else told
    extra = [_pick(rng, words.CONSTRAINT_WORDS[constraint][level][split]) for constraint in request.constraints]
    if request.structure and "structure" not in (*request.hidden, *request.pictured):
        said = read_terms("structures")[request.structure].phrases  # its name for experts, every second for laymen
        said = said[:1] if level == "expert" else said[split == "test" :: 2] or said
        extra.insert(0, _pick(rng, words.ABOUT[level][split]).format(what=_pick(rng, said)))
    if request.exclude:
        *first, last = request.exclude
        names = f"{', '.join(first)} or {last}" if first else last
        extra.append(_pick(rng, words.EXCLUSION_WORDS[level][split]).format(names=names))
    filled = _pick(rng, frames[level][split]).format(
        task=request.task,
        do=_say(words.TASKS, words.FOREIGN_TASKS, request.task, split, rng),
        modality=request.variant or request.modality,
        picture=_say(words.MODALITIES, words.FOREIGN_MODALITIES, request.modality, split, rng),
        extra="".join(f" {sentence}" for sentence in extra),
    )
    text: str = filled[0].upper() + filled[1:]
    return text


def write_hidden_fact(request: Request, kind: HiddenKind) -> str:
    """Return the sentence with which the user tells a hidden fact; its first words are those of a question for it."""
    fact = getattr(request, kind)
    if kind == "task" and request.level == "layman":
        fact = f"{words.TASKS[fact][request.split][0]} ({fact})"
    return words.ANSWERS[kind].format(fact)


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
GUESSES, MAX_BLIND = 3, 0.75  # guesses without a look, and the share of the pictures that they may serve
MANY = 3  # suitable software, of which some is left after an answer
HAS_MORE, PATIENCE = 0.6, 100  # share of the follow-ups that have an answer, and draws for one
Key = tuple[str, str, str]  # task, format and dimensions
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
    levels: tuple[Level, ...] = words.LEVELS
    hides: tuple[HiddenKind, ...] = words.HIDDEN_KINDS  # facts, of which an ambiguous request hides one
    reasons: tuple[Reason, ...] = REASONS  # why a request without an answer has none
    pictured: float = 0.95  # share of those with an answer of which the picture tells the kind of image and structure
    follow_ups: float = 0.2  # share of those with an answer after which the user goes on
    filed: float = 0.1  # share of the clear ones that are about a file, whose header tells what it is

    def make(self, seed: int) -> Request:
        """Return the request of a seed; the same for the same catalogue and settings."""
        rng = np.random.default_rng([seed, 41, self.split == "test"])
        shares = np.array([self.shares.get(status, 0.0) for status in STATUSES], float)
        status = STATUSES[int(rng.choice(len(STATUSES), p=shares / shares.sum()))]
        reason = _pick(rng, self.reasons) if status == "unanswerable" else None
        kind = _pick(rng, self.hides) if status == "ambiguous" else None
        goes_on = reason is None and rng.random() < self.follow_ups
        needs_more = goes_on and rng.random() < HAS_MORE
        pictured = reason is None and kind != "structure" and not needs_more and rng.random() < self.pictured
        filed = reason is kind is None and np.random.default_rng([seed, 59]).random() < self.filed
        draw = self._draw_filed if filed else self._draw_pictured if pictured and self._decisive else self._draw_facts
        for attempt in range(ATTEMPTS):
            plain = (draw if attempt < ATTEMPTS // 2 else self._draw_facts)(rng, seed)
            if plain is None:
                continue
            drawn = self._make_unanswerable(plain, reason, rng) if reason else self._make_answerable(plain, kind, rng)
            if drawn is not None:
                drawn = replace(drawn, words=write_words(drawn, rng))
                drawn, has_more = self._go_on(drawn, rng) if goes_on else (drawn, True)
                if has_more or not needs_more or attempt >= PATIENCE:
                    return drawn
        wanted = " ".join(filter(None, (status, reason)))
        raise ConfigError(
            f"the catalogue ({len(self.catalogue)} entries) allows no {wanted} request for split {self.split}; "
            "allowed: more entries, or shares and reasons without it",
            key="catalogue",
        )

    def rate(self, request: Request) -> dict[str, int]:
        """Return the grade of every software of the catalogue that is above 0 and not withheld, by name."""
        grades = {tool.name: grade(tool, request) for tool in self.catalogue if tool.name not in request.withheld}
        return {name: points for name, points in grades.items() if points}

    # ------------------------------------------------------------------ facts
    @cached_property
    def _by_task(self) -> dict[str, list[SoftwareTool]]:
        mine = [tool for tool in self.catalogue if split_of(tool.name) == self.split]
        if not mine:
            raise ConfigError(f"the catalogue has no software of split {self.split}", key="catalogue")
        tasks = sorted({task for tool in mine for task in tool.tasks})
        return {task: [tool for tool in mine if task in tool.tasks] for task in tasks}

    def _draw_facts(self, rng: np.random.Generator, seed: int) -> Request:
        """Return a request with the facts of one software; common tasks come less often than in the catalogue."""
        tasks = list(self._by_task)
        counts = np.sqrt([len(self._by_task[task]) for task in tasks])
        task = tasks[int(rng.choice(len(tasks), p=counts / counts.sum()))]
        gold = _pick(rng, self._by_task[task])
        known = [value for value in gold.modalities if value in words.MODALITIES] or list(words.MODALITIES)
        modality = _pick(rng, known)
        dimensions = _pick(rng, gold.dimensions)
        level = _pick(rng, self.levels)
        kinds = [value for value in gold.variants if modality in read_terms("variants")[value].parents]
        return Request(
            "", level, task, modality, dimensions, _pick(rng, gold.formats) if gold.formats else "",
            structure=self._draw_structure(gold, task, modality, rng),
            variant=_pick(rng, kinds) if kinds and level == "expert" else "", seed=seed, split=self.split,
        )  # fmt: skip

    def _draw_structure(self, gold: SoftwareTool, task: str, modality: str, rng: np.random.Generator) -> str:
        """Return a structure that the software is for: one that it names, or for a general one, one of its modality."""
        structures = gold.structures_for(task)
        if task not in MARKING or (ANY in structures and rng.random() < 0.5):
            return ""
        named = [name for name in structures if not name.endswith("+") and name != ANY]
        near = self._by_modality.get(modality, ())
        among = named or [name for name in near if compare(structures, name) == "covers"]
        return str(_pick(rng, among)) if among else ""

    @cached_property
    def _by_modality(self) -> dict[str, list[str]]:
        """The structures that software of a modality names."""
        structures: dict[str, set[str]] = {}
        for tool in self.catalogue:
            named = {name for name in tool.structures_for("") if name != ANY and not name.endswith("+")}
            for kind in tool.modalities:
                structures.setdefault(kind, set()).update(named)
        return {kind: sorted(named) for kind, named in structures.items()}

    def _draw_pictured(self, rng: np.random.Generator, seed: int) -> Request:
        """Return a request of which the picture alone tells the kind of image and what it shows."""
        scene = _pick(rng, list(self._decisive))
        plain = _ask_of(scene, *_pick(rng, self._decisive[scene]))
        return replace(plain, level=_pick(rng, self.levels), seed=seed, split=self.split)

    def _draw_filed(self, rng: np.random.Generator, seed: int) -> Request | None:
        """Return a request about a file that can be opened: its header tells the kind of image, or else the picture.
        None if neither can."""
        plain = replace(self._draw_facts(rng, seed), variant="", filed=True)
        if plain.dimensions not in OPENED.get(plain.format, ()):
            return None
        if plain.format == "DICOM":
            return plain if plain.modality in CODES.values() else None
        return replace(plain, pictured=("modality",)) if any(one.modality == plain.modality for one in SCENES) else None

    @cached_property
    def _decisive(self) -> dict[Scene, list[Key]]:
        return _find_decisive(tuple(self.catalogue), self.split)

    def _list_keys(self, scene: Scene) -> Iterator[Key]:
        """Yield tasks, formats and dimensions of the software that is made for what a scene shows."""
        for task, tools in self._by_task.items():
            for tool in tools:
                kind = not scene.variant or fits_variant(tool.variants, scene.variant)
                shown = task not in MARKING or compare(tool.structures_for(task), scene.structure) == "match"
                if kind and shown and has_fact(tool, "modalities", scene.modality):
                    yield from ((task, form, dimensions) for form in tool.formats for dimensions in tool.dimensions)

    def _rate_blind(self, key: Key) -> float:
        """Return for which share of the scenes the three best guesses without a look hold suitable software."""
        rated = [set(self._find_suitable(_ask_of(scene, *key))) for scene in SCENES]
        left = served = [names for names in rated if names]
        for _ in range(GUESSES):
            counts = Counter(name for names in left for name in sorted(names))
            best = counts.most_common(1)[0][0] if counts else ""
            left = [names for names in left if best not in names]
        return 1 - len(left) / max(1, len(served))

    def _go_on(self, request: Request, rng: np.random.Generator) -> tuple[Request, bool]:
        """Return the request with what its user says after the answer, and whether the best answer leaves some for it:
        they want other software, perhaps with one more wish or for another format."""
        before = set(self._find_suitable(request))
        near = list_siblings(request.format)
        kinds = [kind for kind in words.FOLLOW_UPS if kind not in request.constraints and (near or kind != "format")]
        for kind in (kinds[place] for place in rng.permutation(len(kinds))):
            format = _pick(rng, sorted(near)) if kind == "format" else request.format
            constraints = (*request.constraints, kind) if kind in words.CONSTRAINTS else request.constraints
            after = replace(request, format=format, constraints=constraints, hidden=FrozenDict())
            mine, others = self._divide(self._find_suitable(after))
            if has_more := len(mine) > MANY or not set(mine) <= before:
                break
        withheld = tuple(sorted({*others, *request.withheld}))
        said = _pick(rng, words.FOLLOW_UPS[kind][request.level][self.split]).format(format=format)
        after = replace(after, withheld=withheld, words=said)
        return replace(request, withheld=withheld, follow_up=after), has_more

    def _find_suitable(self, request: Request, *, best: bool = False) -> list[str]:
        """Return the names of suitable software; of the `best` only."""
        able = (tool for tool in self.catalogue if request.task in tool.tasks and request.dimensions in tool.dimensions)
        grades = {tool.name: grade(tool, request) for tool in able}  # of others it is too low
        least = max([SUITABLE, *grades.values()]) if best else SUITABLE
        return [name for name, points in grades.items() if points >= least]

    def _divide(self, names: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the names of the split, and the others."""
        mine = [name for name in names if split_of(name) == self.split]
        return mine, [name for name in names if name not in mine]

    # ------------------------------------------------------------------ with an answer
    def _make_answerable(self, plain: Request, kind: HiddenKind | None, rng: np.random.Generator) -> Request | None:
        among = [one for one in words.CONSTRAINTS if one != READY or (plain.structure and not plain.pictured)]
        constraints = (*plain.constraints, *(one for one in among if rng.random() < 0.15))
        request = replace(plain, constraints=constraints, metadata=_describe_file(plain, rng))
        suitable = self._find_suitable(request)
        mine, others = self._divide(suitable)
        if len(mine) > 1 and rng.random() < 0.25:
            count = int(rng.integers(1, min(MAX_EXCLUDED, len(mine) - 1) + 1))
            gone = tuple(mine[i] for i in sorted(rng.permutation(len(mine))[:count]))
            request, mine = replace(request, exclude=gone), [name for name in mine if name not in gone]
        if not request.format or not mine:
            return None
        request = replace(request, withheld=tuple(others))
        return self._hide(request, suitable, kind) if kind else request

    def _hide(self, request: Request, suitable: Sequence[str], kind: HiddenKind) -> Request | None:
        """Return the request without one fact; None if a software would be right whatever the fact is."""
        best = kind == "structure"  # general software is suitable whatever it is
        if best and not request.structure:
            return None
        safe, others = set(self._find_suitable(request, best=True) if best else suitable), 0
        for value in self._list_values(kind) - {getattr(request, kind)}:
            changed: Any = {kind: value}
            if names := self._find_suitable(replace(request, **changed), best=best):
                safe &= set(names)
                others += 1
        if safe or not others:
            return None
        told = ("size", "voxel size") if kind == "dimensions" else ()  # they tell the dimensions, too
        metadata = {key: value for key, value in request.metadata.items() if key not in told}
        metadata |= {kind: UNKNOWN} if kind in metadata else {}
        hidden = FrozenDict({kind: write_hidden_fact(request, kind)})
        return replace(request, status="ambiguous", hidden=hidden, metadata=FrozenDict(metadata))

    def _list_values(self, kind: HiddenKind) -> set[str]:
        named: dict[str, Iterable[Iterable[str]]] = {
            "task": [self._by_task], "dimensions": [DIMENSIONS], "structure": self._by_modality.values(),
        }  # fmt: skip
        return {name for names in named.get(kind, (tool.formats for tool in self.catalogue)) for name in names}

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
        return replace(plain, task=_pick(rng, words.FOREIGN_TASKS[self.split])[1])

    def _miss_no_modality_match(self, plain: Request, rng: np.random.Generator) -> Request | None:
        """Return a kind of picture that no catalogue knows, or one for which no software does the task."""
        able = [tool for tool in self.catalogue if plain.task in tool.tasks]
        foreign = [name for _, name in words.FOREIGN_MODALITIES[self.split]]
        among = foreign if rng.random() < 0.4 else list(words.MODALITIES)
        without = [name for name in among if not any(has_fact(tool, "modalities", name) for tool in able)]
        if not without:
            return None
        modality = _pick(rng, without)
        seen = modality in words.MODALITIES and rng.random() < self.pictured
        pictured: tuple[PicturedKind, ...] = ("modality",) if seen else ()
        return replace(plain, modality=modality, structure="", variant="", pictured=pictured)

    def _miss_no_dimension_match(self, plain: Request, rng: np.random.Generator) -> Request | None:
        doing = [tool for tool in self.catalogue if plain.task in tool.tasks]
        able = [tool for tool in doing if has_fact(tool, "modalities", plain.modality)]
        without = [name for name in DIMENSIONS if not any(name in tool.dimensions for tool in able)]
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


@lru_cache(maxsize=8)  # it takes a second, and all environments of a catalogue share it
def _find_decisive(catalogue: tuple[SoftwareTool, ...], split: Split) -> dict[Scene, list[Key]]:
    """Return for each scene the tasks, formats and dimensions for which no three guesses serve most scenes."""
    generator = RequestGenerator(catalogue, split)
    rated: dict[Key, float] = {}
    keys: dict[Scene, list[Key]] = {}
    for scene in SCENES:
        for key in dict.fromkeys(generator._list_keys(scene)):
            if key not in rated:
                rated[key] = generator._rate_blind(key)
            if rated[key] <= MAX_BLIND:
                keys.setdefault(scene, []).append(key)
    return keys


def _ask_of(scene: Scene, task: str, format: str, dimensions: str) -> Request:
    """Return the request of an expert whose picture shows a scene."""
    wishes = (READY,) if task in MARKING else ()
    return Request("", "expert", task, scene.modality, dimensions, format, wishes, structure=scene.structure,
                   variant=scene.variant, pictured=("modality", "structure"))  # fmt: skip


def _describe_file(request: Request, rng: np.random.Generator) -> Mapping[str, str]:
    side, deep = int(rng.choice((256, 320, 384, 512, 768, 1024))), request.dimensions.startswith("3D")
    size = (side, side, int(rng.integers(16, 240))) if deep else (side, side)
    frames = int(rng.integers(8, 400)) if request.dimensions.endswith("+t") else 1
    sides: tuple[float, ...] = ()
    if deep and (request.filed or not request.pictured):  # its unit tells what kind of image it is
        plane, depth = float(rng.uniform(0.3, 1.2)), float(rng.uniform(0.5, 4))
        sides = plane, plane, depth
    unit = "um" if request.modality in MICROSCOPY and not request.filed else "mm"  # a file is opened in mm
    modality = request.modality if request.filed and not request.pictured else ""
    return write_report(request.format, request.dimensions, size, frames, sides, unit, modality)
