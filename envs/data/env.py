"""`DataEnv`: the base of environments whose tasks are rows of a dataset."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self
from weakref import WeakValueDictionary

from pydantic import Field

from ...core.answers import find_slice
from ...core.base import BaseMultiTurnEnv
from ...core.contract import PARTS, Part
from ...errors import BadRow, ConfigError, ToolError, describe_unknown
from ...images.source import Source
from ...images.task_images import TaskImage, TaskImages
from ...records import Task
from ...utils.terminal import describe_error
from . import selection
from .check import DataReport, compare_rows
from .columns import ColumnMap
from .fields import ImageNeeded, MappedRow, Measure, TaskField, fail_to_measure
from .images import RowImages, check_path, get_location, list_images
from .rows import Rows
from .selection import BAD_ROW, DataTasks, check_tasks
from .settings import DataSettings
from .sources import open_rows
from .splits import SplitCounts, count_split

IMAGE_FIELDS = ("image", "images")


class DataEnv(BaseMultiTurnEnv):
    """An environment whose tasks are rows of a dataset, mapped by the setting `data`.

    A family of tasks subclasses it, declares its `fields`, and adds what every environment has: the answer, the tools,
    the reward. It may override `read_row` for what the fields alone cannot say.
    """

    fields: ClassVar[Mapping[str, TaskField]] = {"question": TaskField("prompt", "text")}
    needs_images: ClassVar[bool] = True

    data: Annotated[DataSettings, Field(description="where the tasks come from; see docs/data.md")] = DataSettings()

    # ------------------------------------------------------------------ written by a family
    def read_row(self, row: MappedRow) -> Task:
        """The task of a row. Raises `BadRow` (`row.refuse`) for a row that has none.

        The base class adds the row's number to the metadata, and the id.
        """
        metadata = row.get("metadata") or {}
        if not isinstance(metadata, Mapping):
            raise row.refuse("metadata", metadata, "an object, with a value by name")
        parts: dict[str, dict[str, Any]] = {"prompt": {}, "reference": {}, "metadata": dict(metadata)}
        for name, field in self.fields.items():
            value = row.read(name, field)
            if value is not None:
                parts[field.place][name] = value
        return Task("", prompt=parts["prompt"], reference=parts["reference"], metadata=parts["metadata"])

    @property
    def has_images(self) -> bool:
        """Whether the mapping gives images."""
        return any(name in self.data.columns for name in IMAGE_FIELDS)

    def tools_of(self, task: Task) -> tuple[str, ...]:
        """The tools; without images only those that work on none."""
        if self.has_images:
            return self.tools
        return tuple(
            name for name in self.tools if not (tool := self.toolbox[name]).stateful and not tool.takes_pictures
        )

    # ------------------------------------------------------------------ called by a driver
    @property
    def restricted(self) -> bool:  # type: ignore[override]
        """Whether images and answers must stay on this machine; a config can say so, and never take it back."""
        return self.data.restricted

    @property
    def evaluation_only(self) -> str | None:
        """Why the data may not be trained on; None if it may."""
        return self.data.evaluation_only

    def check_may_train(self) -> None:
        super().check_may_train()
        reason = self.evaluation_only
        if reason:
            key, allowed = "data.evaluation_only", "allowed: `viewbox evaluate` and `viewbox rollout`"
            words = f"{key}: {self.name}: its data may not be trained on: {reason}; {allowed}"
            raise ConfigError(words, key=key, given=reason)

    @cached_property
    def tasks(self) -> DataTasks:
        """The tasks, opened when they are first asked for. Raises `ConfigError` if the data block cannot be used."""
        rows, columns, data = self._rows, self._columns, self.data
        self._check_fields()
        numbers, bad = selection.select_rows(rows, data, columns)
        stop = data.bad_rows == "stop"
        numbers, skipped = check_tasks(numbers, self._check_row, bad, dataset=rows.name, limit=data.limit, stop=stop)
        return DataTasks(numbers, self._make_task, skipped, stop=stop)

    def images(self, task: Task) -> Sequence[TaskImage]:
        """The images of the task's row, each opened when it is shown. Raises `BadRow` if the row is bad."""
        if BAD_ROW in task.metadata:
            raise self._end_run(_KnownBadRow(task.metadata[BAD_ROW]))
        if "row" not in task.metadata:
            return tuple(task.images)
        number = int(task.metadata["row"])
        with self._blame_row(number):
            return self._get_images(number, self._rows.read(number, self._image_columns))

    def export_row(self, task: Task) -> tuple[dict[str, Any], list[str | bytes]]:
        """What a task is made of: the columns of its row, without those of images alone, and where each image is.

        An image is a path inside `images_folder`, a data URL, or the content of a file.
        """
        number = int(task.metadata["row"])
        row = self._rows.read(number, self._columns.get_used())
        others = self._columns.get_used(name for name in self.data.columns if name not in IMAGE_FIELDS)
        images = [where for value in self._list_values(row) if (where := get_location(value)) is not None]
        return {name: row[name] for name in row if name in others}, images

    @property
    def images_folder(self) -> Path | None:
        """The folder in which image paths lie; None if there are no paths."""
        return self._folder

    def compare(self) -> DataReport:
        """How the dataset differs from what the setting `data.features` expects. Reads only the first rows.

        Raises `ConfigError` if there is no such dataset.
        """
        return compare_rows(self._rows, self.data)

    def count_split(self) -> SplitCounts:
        """The tasks, groups and labels of the split that is chosen. No image is opened."""
        numbers = self.tasks.numbers
        fields = {
            name: field.place == "reference"
            for name, field in self.fields.items()
            if name in self.data.columns and field.kind in ("text", "list", "any")
        }
        return count_split(self._rows, self.data, self._columns, numbers, fields)

    def change_data(self, **changes: Any) -> Self:
        """The environment with another choice of the same rows: another side of the cut, or all of them."""
        copy = object.__new__(type(self))
        vars(copy).update(vars(self) | {"data": self.data.model_copy(update=changes)})
        vars(copy).pop("tasks", None)
        return copy

    def open_row(self, number: int, opened: dict[str, str]) -> None:
        """Make the task of a row and open all its images. Raises `BadRow`.

        `opened` holds what was expected of each path that cannot be opened, or "", and is filled.
        """
        row = self._rows.read(number, self._image_columns)
        images = self._get_images(number, row)
        for place, value in enumerate(self._list_values(row)):
            where = get_location(value)
            path = where if isinstance(where, str) else ""
            problem = opened.get(path)
            if problem is None:
                try:
                    _, problem = images[place], ""
                except BadRow as error:
                    problem = error.expected
            if path:
                opened[path] = problem
            if problem:
                raise self._refuse(number, where, problem)
        self._make_task(number)

    def count_rows(self) -> int:
        """The rows of the source, whichever of them become tasks."""
        return len(self._rows)

    def get_line_reader(self) -> Callable[[int], bytes]:
        """What gives a row as a line of JSON, as it is in the file. Raises `ConfigError` for a table."""
        read: Callable[[int], bytes] | None = getattr(self._rows, "read_line", None)
        if read is None:
            problem = f"the rows of {self._rows.name} are no lines of text"
            raise ConfigError(f"{problem}; allowed: a .jsonl, .json, .csv or .tsv file", key="data.source")
        return read

    # ------------------------------------------------------------------ rows
    @cached_property
    def _rows(self) -> Rows:
        return open_rows(self.data)

    @cached_property
    def _columns(self) -> ColumnMap:
        return ColumnMap(self.data.columns, self._rows.name, self._rows.columns)

    @cached_property
    def _folder(self) -> Path | None:
        return self._rows.folder if self.data.images is None else Path(self.data.images).expanduser()

    @cached_property
    def _opened(self) -> "WeakValueDictionary[tuple[str, str], Source]":
        return WeakValueDictionary()

    def _check_fields(self) -> None:
        """Raises `ConfigError` for a field that the mapping lacks, or that the family does not know."""
        given, known = self.data.columns, {"id", *IMAGE_FIELDS, "metadata", *self.fields}
        for name in given:
            if name not in known:
                problem = describe_unknown(f"field of {self.name}", name, known)
                raise ConfigError(f"data.columns: {problem}", key=f"data.columns.{name}", given=name, allowed=known)
        if self.data.boxes.format == "xyzxyz" and self.boxes and not self.boxes_3d:
            key, allowed = "data.boxes.format", "allowed: xyxy or xywh; `grounding` reads boxes of volumes"
            raise ConfigError(f"{key}: {self.name} asks for no box of a volume; {allowed}", key=key, given="xyzxyz")
        needed = [name for name, field in self.fields.items() if field.required and name not in given]
        if self.needs_images and not any(name in given for name in IMAGE_FIELDS):
            needed.insert(0, "image")
        if needed:
            has = ", ".join(name[:100] for name in self._rows.columns[:40])
            problem = f"data.columns: {self.name} needs {', '.join(needed)}"
            raise ConfigError(f"{problem}; {self._rows.name} has the columns {has}", key="data.columns")

    def _make_task(self, number: int) -> Task:
        def measure(mapped: MappedRow, field: str) -> tuple[int, ...] | None:
            images = self._get_images(number, self._rows.read(number, self._image_columns))
            return measure_picture(mapped, field, images, self.place, self.fields)

        with self._blame_row(number):
            mapped = self._map(number, self._rows.read(number, self._own_columns), measure)
            return self._finish(number, mapped, self.read_row(mapped))

    def _check_row(self, number: int) -> None:
        """Read a row without opening its images. Raises `BadRow`."""

        def measure(mapped: MappedRow, field: str) -> None:
            if self._rows.holds_paths(self._image_columns):
                images = self._get_images(number, self._rows.read(number, self._image_columns))
                check_place(mapped, field, images, self.place, self.fields)
            fail_to_measure(mapped, field)

        with self._blame_row(number), suppress(ImageNeeded):
            row, count = self._rows.read(number, self._own_columns), 0
            if self._rows.holds_paths(self._image_columns):
                pictured = self._rows.read(number, self._image_columns)
                self._check_images(number, pictured)
                count = len(self._list_values(pictured))
            mapped = self._map(number, row, measure)
            self._check_can_see(self._finish(number, mapped, self.read_row(mapped)), count)

    @contextmanager
    def _blame_row(self, number: int) -> Iterator[None]:
        """Turn whatever a cell makes the block raise into a `BadRow`: a row costs itself, and no other."""
        try:
            yield
        except (ConfigError, BadRow, ImageNeeded):
            raise
        except Exception as error:
            place = self._rows.locate(number)
            where = f"row {place}" if isinstance(place, int) else place
            raise _KnownBadRow(f"{self._rows.name}: {where}: cannot be read ({describe_error(error, 200)})") from error

    @cached_property
    def _image_columns(self) -> set[str]:
        return self._columns.get_used(IMAGE_FIELDS)

    @cached_property
    def _own_columns(self) -> set[str]:
        """The columns of all fields but the images, which are read when they are shown."""
        return self._columns.get_used(name for name in self.data.columns if name not in IMAGE_FIELDS)

    def _map(self, number: int, row: Mapping[str, Any], measure: Measure) -> MappedRow:
        return MappedRow(self._rows.name, self._rows.locate(number), row, self._columns, self.data.boxes, measure)

    def _finish(self, number: int, row: MappedRow, task: Task) -> Task:
        given = row.read("id", TaskField("metadata", "text")) if "id" in self._columns else None
        metadata = {**task.metadata, "row": number}
        return Task(given or f"row-{number}", task.images, task.prompt, task.reference, metadata)

    def _list_values(self, row: Mapping[str, Any]) -> list[Any]:
        return [image for name in IMAGE_FIELDS for image in list_images(self._columns.read(name, row))]

    def _get_images(self, number: int, row: Mapping[str, Any]) -> RowImages:
        def refuse(given: object, expected: str) -> BadRow:
            return self._end_run(self._refuse(number, given, expected))

        values = self._list_values(row)
        if self.needs_images and not values:
            raise refuse(None, "an image")
        return RowImages(values, self._folder, self._opened, refuse, self.data.unit)

    def _check_images(self, number: int, row: Mapping[str, Any]) -> None:
        """Raises `BadRow` for images that are missing; none is opened."""
        values = self._list_values(row)
        if self.needs_images and not values:
            raise self._refuse(number, None, "an image")
        for value in values:
            where = get_location(value)
            problem = "a path, or the bytes of an image"
            if where is not None:
                problem = check_path(where, self._folder, exists=True) or ""
            if problem:
                raise self._refuse(number, value if where is None else where, problem)

    def _refuse(self, number: int, given: object, expected: str) -> BadRow:
        field = next((name for name in IMAGE_FIELDS if name in self._columns), "image")
        column = self._columns.described.get(field, field)
        return BadRow(self._rows.name, self._rows.locate(number), column, given, expected)

    def _end_run(self, error: BadRow) -> BadRow:
        error.ends_run = self.data.bad_rows == "stop"
        return error


def describe_splits(env: BaseMultiTurnEnv, held_out: BaseMultiTurnEnv, *, labels: bool = False) -> list[str]:
    """The tasks and groups, with `labels` also the labels, of each split: of the two sides of a cut, or those that a
    run trains on and holds out. Of a mixture, of each part; empty for environments that read no data."""
    parts, others = getattr(env, "parts", None), getattr(held_out, "parts", {})
    if parts is not None:
        lines = {key: describe_splits(part, others.get(key, part), labels=labels) for key, part in parts.items()}
        return [f"{key}: {line}" for key, some in lines.items() for line in some]
    if not isinstance(env, DataEnv) or not isinstance(held_out, DataEnv):
        return []
    splits = [env] if held_out.data == env.data else [env, held_out]
    if env.data.cut is not None:
        chosen = {one.data.split for one in splits}
        splits += [env.change_data(split=split) for split in ("train", "test") if split not in chosen]
    return [_describe_split(one, labels=labels) for one in splits]


def _describe_split(env: DataEnv, *, labels: bool) -> str:
    try:
        return env.count_split().describe(labels=labels)
    except ConfigError as error:
        return f"{env.data.split}: {error}"


class _KnownBadRow(BadRow):
    """A row of which only a sentence is known: what its task was refused for, or what it made a reader raise."""

    def __init__(self, sentence: str) -> None:
        Exception.__init__(self, sentence)
        self.key = self.given = None
        self.allowed = ()


def measure_picture(
    row: MappedRow, field: str, images: RowImages, place: Mapping[Part, str], known: Container[str]
) -> tuple[int, ...] | None:
    """The sides in pixels of the picture on which a box of the row lies: see `MappedRow.measure_image`.

    A box on a slice of a volume needs its slice, and its plane unless it is that of the first picture. None if boxes
    are no pixels and no image can be a volume: then nothing is opened. `known` are the fields that a mapping may give.
    """
    if not images or (row.boxes.unit != "pixel" and row.boxes.format != "xyzxyz" and not images.may_hold_volumes()):
        return None
    named = _read_place(row, place)
    sources = TaskImages(images[:1], len(images), lambda: images)
    try:
        source = find_slice(named, place, sources)
    except ToolError as error:
        raise row.refuse(field, named, f"a picture of the task ({error})") from error
    if row.boxes.format == "xyzxyz":
        if source.volume is None or not source.volume.planes:
            raise row.refuse(field, row.get(field), "a volume, for a box as xyzxyz")
        return source.volume.voxels.shape[2::-1]
    if source.volume is not None and place.get("slice") not in named:
        raise row.refuse(field, row.get(field), _ask_for_place(field, place, known))
    return source.size


def check_place(
    row: MappedRow, field: str, images: RowImages, place: Mapping[Part, str], known: Container[str]
) -> None:
    """Refuse a box on a volume without a slice as far as that is known before images are opened, by their names."""
    named = _read_place(row, place)
    number = named.get(place.get("image", ""), 0)
    if row.boxes.format != "xyzxyz" and place.get("slice") not in named and images.is_volume(number):
        raise row.refuse(field, row.get(field), _ask_for_place(field, place, known))


def _read_place(row: MappedRow, place: Mapping[Part, str]) -> dict[str, Any]:
    """The place of a row's boxes, by the fields of the answer; of several slices the last."""
    named = {}
    for part, name in place.items():
        value = row.get(name)
        if value is not None and value != "":
            number = value if part == "plane" else row.read_index(name, value)
            named[name] = number[-1] if isinstance(number, list) else number
    return named


def _ask_for_place(field: str, place: Mapping[Part, str], known: Container[str]) -> str:
    plane, index = (place.get(part, part) for part in PARTS[1:])
    if index in known:
        return f"a box whose slice of the volume is named: map data.columns.{plane} and data.columns.{index}"
    ways = f"leave out data.columns.{field}, or use `grounding`, which maps plane and slice"
    return f"no box on a volume, because its slice cannot be named here: {ways} (your own class: `place`)"
