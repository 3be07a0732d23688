"""The block `data` of an environment that reads its tasks from a dataset."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from ...configs.sections import FilePath, Section
from ...configs.validation import DATA_LIMITS
from ...images.coordinates import Coordinates
from ...utils.values import to_text

Share = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, BeforeValidator(lambda count: str(count) if count is True else count), Field(ge=1)]
Label = Annotated[str, BeforeValidator(lambda label: to_text(label) or label)]  # also true, or 3
FeatureKind = Literal["text", "number", "bool", "list", "mapping", "image"]


class HoldOut(Section):
    """A part of the rows that is cut off as `split: test`, by a hash: the same on every machine and in any order."""

    share: Share = Field(description="share of the rows, about")
    by: str | None = Field(
        None, description="column whose values are kept together, such as the patient; default: the id of the task"
    )


class BoxForm(Section):
    """How the dataset writes its boxes. Tasks hold them as fractions of the original image, or slice, or volume."""

    format: Literal["xyxy", "xywh", "xyzxyz"] = Field(
        "xyxy", description="two corners, or the top left corner with width and height; xyzxyz: two corners in a volume"
    )
    unit: Coordinates = Field("pixel", description="pixels of the whole image or slice (voxels), 0 to 1, or 0 to 1000")
    frame: Literal["shown", "voxel"] = Field(
        "shown",
        description="shown: the image or slice as it is shown; voxel: indices of a volume's own array in its file",
    )

    def describe(self) -> str:
        """Return what the numbers of a box count in, in one line."""
        where = "the picture as it is shown, after EXIF turns it and volumes are turned to the patient's axes"
        if self.frame == "voxel":
            where = "the array in the file: " + ("i, j, k" if self.format == "xyzxyz" else "i, j on slice k")
        counted = "; from 0, and the last pixel is one less than the end: of VOC, subtract 1 from xmin and ymin"
        counted = counted if self.unit == "pixel" and self.format == "xyxy" else ""
        return f"boxes: {self.format}, unit {self.unit}, frame {self.frame} ({where}){counted}"


class CellForm(Section):
    """How the cells of a CSV or TSV file are written."""

    decimal: Literal[".", ","] | None = Field(
        None,
        description="sign before decimals; default: a comma where semicolons separate the cells and none is like 1.5",
    )
    true: tuple[str, ...] = Field((), description="further texts for true, beside true, True and TRUE")
    false: tuple[str, ...] = Field((), description="further texts for false, beside false, False and FALSE")
    null: tuple[str, ...] = Field((), description="further texts for null, beside an empty cell, such as NA")

    @model_validator(mode="before")
    @classmethod
    def _name_keys(cls, given: Any) -> Any:
        """YAML reads the keys true, false and null as values."""
        return {to_text(key) or "null": value for key, value in given.items()} if isinstance(given, dict) else given


class Sample(Section):
    """Tasks drawn at random, in random order."""

    count: Count = Field(description="number of tasks; all, in random order, if there are fewer")
    seed: Annotated[int, Field(ge=0)] = Field(0, description="of the draw")


class Difficulty(Section):
    """A band of difficulty: rows whose figure is outside it are left out, and so are rows without one."""

    column: str | None = Field(None, description="the column with the figure")
    rewards: FilePath | None = Field(
        None, description="a file of mean rewards by task id, as `viewbox score --task-rewards` writes"
    )
    range: tuple[float, float] = Field(description="lowest and highest figure, both included")

    @model_validator(mode="after")
    def _check(self) -> "Difficulty":
        if (self.column is None) == (self.rewards is None):
            raise ValueError("exactly one of `column` and `rewards` must be given")
        if self.range[0] > self.range[1]:
            raise ValueError("the lowest figure of `range` stands first")
        return self


class DataSettings(Section):
    """Where tasks come from, and how a row becomes a task."""

    source: FilePath | dict[str, FilePath] | None = Field(
        None,
        description="a file (.parquet, .arrow, .jsonl, .json, .csv, .tsv), a folder, a hub dataset as owner/name or "
        "owner/name@revision, or a file by split",
    )
    config: str | None = Field(None, description="configuration of a hub dataset")
    split: str = Field("train", description="a split of the source; with hold_out: train or test")
    hold_out: Share | HoldOut | None = Field(
        None,
        description="share of the rows cut off as `split: test`, or {share, by: column}; null: the source's own splits",
    )
    images: FilePath | None = Field(None, description="folder in which image paths lie; default: that of the file")
    unit: Literal["HU"] | None = Field(
        None, description="HU: images whose file names no unit, such as NIfTI, hold Hounsfield units"
    )
    streaming: bool = Field(
        False, description="read Parquet row group by row group instead of into an Arrow file; see docs/data.md"
    )
    columns: dict[str, Any] = Field(
        default_factory=dict,
        description="field of the task by column (a dotted path), {value: constant}, {template: Jinja2}, or a list",
    )
    boxes: BoxForm = Field(BoxForm(), description="how boxes are written: {format, unit, frame}")
    cells: CellForm = Field(
        CellForm(), description="how cells of CSV and TSV are written: {decimal, true, false, null}"
    )
    where: str | tuple[str, ...] = Field(
        (), description="conditions `column op value` that a row must meet, such as modality=CT"
    )
    group: str | None = Field(
        None,
        description="column whose equal values make rows one task, such as the image of a table with a row for each "
        "box: lists and boxes of the reference are joined, and every other field must agree",
    )
    limit: Count | None = Field(None, description="at most so many tasks, the first ones")
    sample: Count | Sample | None = Field(
        None, description="so many tasks at random, or {count, seed}; default: all, in order"
    )
    difficulty: Difficulty | None = Field(None, description="a band: {column, range} or {rewards: file, range}")
    bad_rows: Literal["skip", "stop"] = Field(
        "skip", description="a row of which no task can be made is left out and counted, or ends the run"
    )
    features: dict[str, FeatureKind | tuple[Label, ...]] = Field(
        default_factory=dict,
        description="what the dataset should hold, for `viewbox data check`: a column (a dotted path) by text, number, "
        "bool, list, mapping or image, or by the texts that it may hold",
    )
    restricted: bool = Field(False, description="images and answers must not leave this machine")
    evaluation_only: str | None = Field(None, description="why the data may not be trained on")

    @property
    def conditions(self) -> tuple[str, ...]:
        return (self.where,) if isinstance(self.where, str) else self.where

    @property
    def cut(self) -> HoldOut | None:
        cut = HoldOut(share=self.hold_out) if isinstance(self.hold_out, float) else self.hold_out
        return cut.model_copy(update={"by": self.group}) if cut is not None and cut.by is None else cut

    @property
    def draw(self) -> Sample | None:
        return Sample(count=self.sample) if isinstance(self.sample, int) else self.sample


def merge_data(data: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """Return a data block with changes merged into it: mappings are merged, any other value replaces the one before.
    `restricted` and `evaluation_only` can be set by a change, and never taken back."""
    return _merge(data, changes) | {key: data[key] for key in DATA_LIMITS if data.get(key)}


def _merge(data: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(data)
    for key, value in changes.items():
        old = merged.get(key)
        whole = key == "source" or _is_expression(value) or _is_expression(old)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and not whole:
            value = _merge(old, value)
        merged[key] = value
    return merged


def _is_expression(value: Any) -> bool:
    """Return whether a value of `columns` is a constant or a template, which is replaced as a whole."""
    return isinstance(value, Mapping) and value.keys() in ({"value"}, {"template"})
