"""`DataEnv`: the base of environments whose tasks are rows of a dataset."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self
from weakref import WeakValueDictionary

from pydantic import Field

from ...core.base import BaseMultiTurnEnv
from ...errors import BadRow, ConfigError, describe_unknown
from ...images.source import Source
from ...images.task_images import TaskImage
from ...records import Task
from ...utils.concurrency import contain_exit
from ...utils.terminal import describe_error
from ...utils.values import identify, is_null
from . import selection
from .columns import ColumnMap, ExpressionError
from .fields import BoxFrame, MappedRow, TaskField
from .images import IMAGE_FIELDS, RowImages, check_path, get_location, list_images, measure_picture, turn_place
from .rows import Rows
from .selection import BAD_ROW, DataTasks, check_tasks
from .settings import DataSettings
from .sources import open_rows
from .splits import check_contradictions


class DataEnv(BaseMultiTurnEnv):
    """An environment whose tasks are rows of a dataset, mapped by the setting `data`.
    A family of tasks subclasses it, declares its `fields`, and adds what every environment has: the answer, the tools,
    the reward. It may override `read_row` for what the fields alone cannot say. `needs_images` says that an image must
    be mapped; every row must have one if one is."""

    fields: ClassVar[Mapping[str, TaskField]] = {"question": TaskField("prompt", "text")}
    needs_images: ClassVar[bool] = True

    data: Annotated[DataSettings, Field(description="where the tasks come from; see docs/data.md")] = DataSettings()

    _needs_gold = True

    def read_row(self, row: MappedRow) -> Task:
        """Make the task of a row; its number and its id are added later. Raise `BadRow` (`row.refuse`) for a row that
        has none."""
        return self._read_parts(row, ("prompt", "reference", "metadata"))

    def read_question(self, row: MappedRow) -> Task:
        """Make the task of a row that has no right answer, which is played and not scored."""
        return self._read_parts(row, ("prompt", "metadata"))

    def _read_parts(self, row: MappedRow, places: Sequence[str]) -> Task:
        metadata = row.get("metadata") or {}
        if not isinstance(metadata, Mapping):
            raise row.refuse("metadata", metadata, "an object, with a value by name")
        parts: dict[str, dict[str, Any]] = {"prompt": {}, "reference": {}, "metadata": dict(metadata)}
        for name, field in self.fields.items():
            value = row.read(name, field) if field.place in places else None
            if value is not None:
                parts[field.place][name] = value
        return Task("", prompt=parts["prompt"], reference=parts["reference"], metadata=parts["metadata"])

    @property
    def has_images(self) -> bool:
        return any(name in self.data.columns for name in IMAGE_FIELDS)

    def shows_images(self, task: Task) -> bool:
        """Whether a task has images: its own, or those of its row."""
        return bool(task.images) or ("row" in task.metadata and self.has_images)

    def tools_of(self, task: Task) -> tuple[str, ...]:
        if self.shows_images(task):
            return self.tools
        return tuple(name for name in self.tools if not ((tool := self.toolbox[name]).stateful or tool.takes_pictures))

    @property
    def restricted(self) -> bool:  # type: ignore[override]
        """Whether images and answers must stay on this machine; a config can say so, and never take it back."""
        return self.data.restricted

    def check_may_train(self) -> None:
        super().check_may_train()
        reason = self.data.evaluation_only
        if reason:
            key, allowed = "data.evaluation_only", "allowed: `viewbox evaluate` and `viewbox rollout`"
            raise ConfigError(f"{key}: {self.name}: its data may not be trained on: {reason}; {allowed}", key=key)

    @cached_property
    def tasks(self) -> DataTasks:
        """The tasks, opened when they are first asked for. Raises `ConfigError` if the data block cannot be used."""
        rows, data = self.rows, self.data
        self._check_fields()
        selected, stop = self._selected, data.bad_rows == "stop"
        numbers, skipped = check_tasks(selected, self._check_row, dataset=rows.name, limit=data.limit, stop=stop)
        if self.data.group is None:
            check_contradictions(rows, self.columns, self.fields, numbers[: selection.MAX_CHECKED].tolist())
        return DataTasks(numbers, self._make_task if stop else self._make_any, skipped)

    def images(self, task: Task) -> Sequence[TaskImage]:
        """Return the images of the task's row, each opened when it is shown. Raise `BadRow` if the row is bad."""
        if "row" not in task.metadata:
            return tuple(task.images)
        number = int(task.metadata["row"])
        if BAD_ROW in task.metadata:
            self._make_task(number)  # raises as it did before
        return self.get_images(number)

    @cached_property
    def rows(self) -> Rows:
        return open_rows(self.data)

    @cached_property
    def _selected(self) -> selection.RowSelection:
        return selection.select_rows(self.rows, self.data, self.columns)

    def list_rows(self, number: int) -> Sequence[int]:
        """Return the rows of the task whose first row this is: those of its group, or this one."""
        return self._selected.groups.get(number, (number,)) if self.data.group is not None else (number,)

    @cached_property
    def columns(self) -> ColumnMap:
        return ColumnMap(self.data.columns, self.rows)

    @cached_property
    def images_folder(self) -> Path | None:
        """The folder in which image paths lie; None if there are no paths."""
        return self.rows.folder if self.data.images is None else Path(self.data.images)

    def get_images(self, number: int) -> RowImages:
        """Return the images of a row, none of them opened."""
        with self._blame_row(number):
            values = self._list_images(number)
            for other in self.list_rows(number)[1:]:
                if (images := self._list_images(other)) != values:
                    raise self._refuse_image(other, images, f"the images of {values!r:.200}, which is of its group")
            if self._must_have_images and not values:
                raise self._refuse_image(number, None, "an image")
            refuse = partial(self._refuse_image, number)
            return RowImages(values, self.images_folder, self._opened, refuse, self.data.unit)

    def export_rows(self, task: Task) -> tuple[list[dict[str, Any]], list[str | bytes]]:
        """Return what a task is made of: the columns of its rows, without those of images alone, and where images are:
        paths inside `images_folder`, data URLs, or the content of files."""
        number = int(task.metadata["row"])
        images = [where for value in self._list_images(number) if (where := get_location(value)) is not None]
        rows = [self.rows.read(index, self._own_columns) for index in self.list_rows(number)]
        return [{name: row[name] for name in row if name in self._own_columns} for row in rows], images

    def change_data(self, **changes: object) -> Self:
        """Return the environment with another choice of the same rows: another side of the cut, or all of them."""
        copy = object.__new__(type(self))
        vars(copy).update(vars(self) | {"data": self.data.model_copy(update=changes)})
        for made in ("tasks", "_selected"):
            vars(copy).pop(made, None)
        return copy

    def play_unanswered(self) -> Self:
        copy = self.change_data()
        vars(copy)["_needs_gold"] = False
        return copy

    def open_row(self, number: int, opened: dict[str, str]) -> None:
        """Make the task of a row and open all its images. Raise `BadRow`. `opened` is filled with what was expected of
        each path that cannot be opened, or ""."""
        images = self.get_images(number)
        for place, where in enumerate(images.list_locations()):
            expected = opened.get(where) if isinstance(where, str) else None
            if expected is None:
                try:
                    _, expected = images[place], ""
                except BadRow as error:
                    expected = error.expected
                opened.update({where: expected} if isinstance(where, str) else {})
            if expected:
                raise self._refuse_image(number, images.values[place] if where is None else where, expected)
        self._make_task(number)

    @cached_property
    def _opened(self) -> "WeakValueDictionary[tuple[str, str], Source]":
        return WeakValueDictionary()

    @property
    def _must_have_images(self) -> bool:
        return self.needs_images or self.has_images

    def _check_fields(self) -> None:
        mapped, known = self.data.columns, {"id", *IMAGE_FIELDS, "metadata", *self.fields}
        for name in mapped:
            if name not in known:
                problem = describe_unknown(f"field of {self.name}", name, known)
                raise ConfigError(f"data.columns: {problem}", key=f"data.columns.{name}")
        if self.data.boxes.format == "xyzxyz" and self.boxes and not self.boxes_3d:
            key, allowed = "data.boxes.format", "allowed: xyxy or xywh; `grounding` reads boxes of volumes"
            raise ConfigError(f"{key}: {self.name} asks for no box of a volume; {allowed}", key=key)
        plane = self.place.get("plane")
        if self.data.boxes.frame == "voxel" and plane in mapped:
            key, problem = f"data.columns.{plane}", "with boxes.frame = voxel, it is the plane of the file's third axis"
            raise ConfigError(f"{key}: {problem}; leave it out", key=key)
        asked = {name: field for name, field in self.fields.items() if self._needs_gold or field.place != "reference"}
        needed = [name for name, field in asked.items() if field.required and name not in mapped]
        if self._must_have_images and not self.has_images:
            needed.insert(0, "image")
        if needed:
            has = ", ".join(name[:100] for name in self.rows.list_columns()[:40])
            problem = f"data.columns: {self.name} needs {', '.join(needed)}"
            raise ConfigError(f"{problem}; {self.rows.name} has the columns {has}", key="data.columns")

    def _make_task(self, number: int) -> Task:
        """Make the task of a row; an image is opened if a box needs its size. Raise `BadRow`."""
        with self._blame_row(number):
            return self._read_task(number, may_open=True)

    def _check_row(self, number: int) -> None:
        with self._blame_row(number):
            count = self._check_images(number) if self._has_paths else 0
            self._check_can_see(self._read_task(number, may_open=False), count)

    def _read_task(self, number: int, *, may_open: bool) -> Task:
        def measure(row: MappedRow, field: str) -> BoxFrame | None:
            images = self.get_images(number) if may_open or self._has_paths else None
            return measure_picture(row, field, images, self.place, self.fields, may_open=may_open)

        def map_row(place: int) -> MappedRow:
            values, others = self.rows.read(place, self._own_columns), None if self.data.group is None else ()
            name, where = self.rows.name, self.rows.locate(place)
            return MappedRow(name, where, values, self.columns, self.data.boxes, measure, others)

        def read(row: MappedRow) -> Task:
            return self.read_row(row) if self._needs_gold or self._has_gold(row) else self.read_question(row)

        first, *more = map(map_row, self.list_rows(number))
        for value in (first, *more) if more else ():
            read(value)  # each is right by itself: as many labels as boxes
        row = replace(first, others=tuple(more)) if more else first
        task = read(row)
        reference = task.reference
        if may_open and self.data.boxes.frame == "voxel" and reference.get(self.place.get("slice", "")) is not None:
            reference = turn_place(row, reference, self.get_images(number), self.place)
        if "id" in self.columns:
            first.read("id", TaskField("metadata", "text"))
        name = identify(first.get("id")) or f"row-{number}"
        return Task(name, task.images, task.prompt, reference, {**task.metadata, "row": number})

    def _has_gold(self, row: MappedRow) -> bool:
        """Whether a row has the parts of a right answer that every row needs; if none is needed, any."""
        fields = {name: field for name, field in self.fields.items() if field.place == "reference"}
        needed = [name for name, field in fields.items() if field.required]
        filled = [not is_null(row.get(name)) for name in needed or fields]
        return all(filled) if needed else any(filled)

    def _make_any(self, number: int) -> Task:
        """Make the task of a row; of a bad one, a task that has its id and ends as a fault."""
        try:
            return self._make_task(number)
        except BadRow as error:
            identifier = None
            with suppress(BadRow, ExpressionError):
                identifier = self.columns.read("id", self.rows.read(number, self.columns.get_used(["id"])))
            return Task(identify(identifier) or f"row-{number}", metadata={"row": number, BAD_ROW: str(error)})

    @contextmanager
    def _blame_row(self, number: int) -> Iterator[None]:
        """Turn whatever a cell makes the block raise into a `BadRow`: a row costs itself, and no other."""
        try:
            with contain_exit():
                yield
        except (ConfigError, BadRow):
            raise
        except Exception as error:
            description, place = describe_error(error, 200), self.rows.locate(number)
            raise BadRow(self.rows.name, place, "(the row)", description, "a row that can be read") from error

    @cached_property
    def _image_columns(self) -> set[str]:
        return self.columns.get_used(IMAGE_FIELDS)

    @cached_property
    def _own_columns(self) -> set[str]:
        return self.columns.get_used(name for name in self.data.columns if name not in IMAGE_FIELDS)

    @cached_property
    def _has_paths(self) -> bool:
        return self.rows.holds_paths(self._image_columns)

    def _list_images(self, number: int) -> list[Any]:
        row = self.rows.read(number, self._image_columns)
        return [image for name in IMAGE_FIELDS for image in list_images(self.columns.read(name, row))]

    def _check_images(self, number: int) -> int:
        """Return how many images a row has. Raise `BadRow` for one that is missing; none is opened."""
        images = self.get_images(number)
        for value, where in zip(images.values, images.list_locations(), strict=True):
            problem: str | None = "a path, or the bytes of an image"
            if where is not None:
                problem = check_path(where, self.images_folder, exists=True)
            if problem:
                raise self._refuse_image(number, value if where is None else where, problem)
        return len(images)

    def _refuse_image(self, number: int, given: object, expected: str) -> BadRow:
        field = next((name for name in IMAGE_FIELDS if name in self.columns), "image")
        column = self.columns.described.get(field, field)
        error = BadRow(self.rows.name, self.rows.locate(number), column, given, expected)
        error.ends_run = self.data.bad_rows == "stop"
        return error
