"""Finds the rows that a data block names: files, folders, saved datasets, and datasets of the hub."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError, describe_unknown
from .arrow import ArrowRows, open_arrow, open_parquet
from .rows import JsonLines, Rows, read_csv, read_json
from .settings import DataSettings

KEY = "data.source"
TEXT_FILES = (".jsonl", ".ndjson", ".csv", ".tsv", ".json")
TABLES = (".parquet", ".arrow")
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
SAVED = ("dataset_dict.json", "state.json")  # what `save_to_disk` of the library `datasets` writes
FORMS = "a file (.parquet, .arrow, .jsonl, .json, .csv, .tsv), a folder, or a hub dataset as owner/name"


def open_rows(data: DataSettings) -> Rows:
    """The rows of a data block's split; with `hold_out`, those of all its rows that are to be cut.

    Raises:
        ConfigError: there is no such source or split, or it cannot be read.
    """
    source = data.source
    if source is None:
        raise ConfigError(f"{KEY}: is missing; allowed: {FORMS}", key=KEY)
    if isinstance(source, Mapping):
        split = _choose_split(data, list(source))
        return _open_file(_check_exists(source[split]), data)
    path = Path(source).expanduser()
    if path.is_dir():
        return _open_folder(path, data)
    if path.is_file():
        _choose_split(data, ["train"])
        return _open_file(path, data)
    if is_hub_name(source):
        return _open_hub(source, data)
    _check_exists(source)
    raise ConfigError(f"{KEY} = {source!r:.200}; allowed: {FORMS}", key=KEY, given=source)


def is_hub_name(source: str) -> bool:
    """Whether a source is the name of a hub dataset: nothing of that name is on this machine.

    >>> is_hub_name("owner/name"), is_hub_name("folder/train.csv")
    (True, False)
    """
    path = Path(source).expanduser()
    return bool(HUB_NAME.fullmatch(source)) and path.suffix not in TEXT_FILES + TABLES and not path.exists()


def _check_exists(source: str) -> Path:
    path = Path(source).expanduser()
    if not path.exists():
        folder = path.parent
        beside = sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []
        where = describe_unknown("file", path.name, beside) if beside else f"there is no folder {str(folder)!r:.200}"
        raise ConfigError(f"{KEY} = {source!r:.200}: {where}", key=KEY, given=source)
    return path


def _choose_split(data: DataSettings, splits: list[str]) -> str:
    """The split of the source to read. A cut is made of `train`, or of the only split there is."""
    if data.cut is not None:
        if data.split not in ("train", "test"):
            allowed = "train, test, because hold_out cuts the rows into these two"
            raise ConfigError(f"data.split = {data.split!r}; allowed: {allowed}", key="data.split", given=data.split)
        if "train" in splits or len(splits) == 1:
            return "train" if "train" in splits else splits[0]
        problem = f"data.hold_out: {data.source} has the splits {', '.join(splits)}"
        raise ConfigError(f"{problem}; allowed with hold_out: a split train, or only one split", key="data.hold_out")
    if data.split in splits:
        return data.split
    problem = describe_unknown("split", data.split, splits)
    way_out = "; data.hold_out cuts a split `test` off" if data.split == "test" else ""
    raise ConfigError(f"data.split: {problem}{way_out}", key="data.split", given=data.split, allowed=splits)


def _open_file(path: Path, data: DataSettings) -> Rows:
    kind = path.suffix.lower()
    if path.is_dir():
        return _open_folder(path, data)
    if kind in (".jsonl", ".ndjson"):
        return JsonLines(path)
    if kind in (".csv", ".tsv"):
        return read_csv(path)
    if kind == ".json":
        return read_json(path)
    if kind == ".parquet":
        return open_parquet([path], path.name, streaming=data.streaming)
    if kind == ".arrow":
        return open_arrow(path, path.name)
    raise ConfigError(f"{KEY} = {str(path)!r:.200}: a file of kind {kind!r}; allowed: {FORMS}", key=KEY, given=kind)


def _open_folder(path: Path, data: DataSettings) -> Rows:
    if _is_saved(path):
        return _open_saved(path, data)
    tables = list_files(path)
    if not tables:
        found = ", ".join(sorted(one.name for one in path.iterdir())[:10]) or "nothing"
        allowed = "a JSONL, JSON or CSV file beside images, Parquet or Arrow files, or what save_to_disk wrote"
        raise ConfigError(f"{KEY} = {str(path)!r:.200}: holds {found}; allowed in it: {allowed}", key=KEY)
    if tables[0].suffix.lower() in TEXT_FILES:
        return _open_file(_choose_file(path, tables, data), data)
    by_split: dict[str, list[Path]] = {}
    for one in tables:
        by_split.setdefault(_read_split(one, path), []).append(one)
    split = _choose_split(data, list(by_split))
    chosen, name = by_split[split], f"{path.name}/{split}"
    if chosen[0].suffix.lower() == ".parquet":
        return open_parquet(chosen, name, streaming=data.streaming)
    from pyarrow import concat_tables

    return ArrowRows(name, concat_tables([open_arrow(one, one.name)._table for one in chosen]), path)


def list_files(path: Path) -> list[Path]:
    """The files of rows in a folder, sorted: text beside images, or else tables at any depth."""
    texts = [one for one in path.iterdir() if one.suffix.lower() in TEXT_FILES and one.is_file()]
    if texts and not _is_saved(path):
        return sorted(texts)
    tables = (one for one in path.rglob("*") if one.suffix.lower() in TABLES and one.is_file())
    return sorted(one for one in tables if not one.name.startswith("cache-"))  # what `datasets` keeps beside them


def _is_saved(path: Path) -> bool:
    return any((path / name).is_file() for name in SAVED)


def _choose_file(path: Path, files: list[Path], data: DataSettings) -> Path:
    """The only file, or the one that is named after the split."""
    if len(files) == 1:
        _choose_split(data, ["train"])
        return files[0]
    by_name = {one.stem: one for one in files}
    if data.split in by_name or (data.cut is not None and "train" in by_name):
        return by_name[_choose_split(data, list(by_name))]
    names = ", ".join(one.name for one in files)
    problem = f"{KEY} = {str(path)!r:.200}: holds {names}"
    raise ConfigError(f"{problem}; allowed: one of these as the source, or a file by split", key=KEY, given=path)


def _read_split(file: Path, root: Path) -> str:
    """The split of a file as the hub names it: `train-00000-of-00002.parquet`, or a folder `train`."""
    for name in (file.stem, *(part.name for part in file.relative_to(root).parents)):
        first = re.split(r"[-_.]", name)[0].lower()
        for split, names in _SPLITS.items():
            if first in names:
                return split
    return "train"


_SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "eval"),
}


# ---------------------------------------------------------------------- the library `datasets`
def _open_saved(path: Path, data: DataSettings) -> Rows:
    """What `save_to_disk` wrote, mapped into memory."""
    import datasets

    loaded = datasets.load_from_disk(str(path))
    if isinstance(loaded, datasets.DatasetDict):
        split = _choose_split(data, list(loaded))
        return _to_rows(loaded[split], f"{path.name}/{split}", path)
    _choose_split(data, ["train"])
    return _to_rows(loaded, path.name, path)


def _open_hub(source: str, data: DataSettings) -> Rows:
    """A dataset of the hub: downloaded and converted once, or its Parquet files read where they are (`streaming`)."""
    import datasets

    name, _, revision = source.partition("@")
    try:
        if data.streaming:
            return _stream_hub(source, name, revision, data)
        loaded = datasets.load_dataset(name, data.config, revision=revision or None)
    except Exception as error:  # the library raises many kinds
        raise ConfigError(_explain_hub_failure(source, data, error), key=KEY, given=source) from error
    split = _choose_split(data, list(loaded))
    return _to_rows(loaded[split], f"{source}/{split}", None)


def _stream_hub(source: str, name: str, revision: str, data: DataSettings) -> Rows:
    import datasets
    import fsspec

    from .arrow import ParquetRows

    builder = datasets.load_dataset_builder(name, data.config, revision=revision or None)
    files = builder.config.data_files or {}
    split = _choose_split(data, [str(one) for one in files])
    if not all(str(file).endswith(".parquet") for file in files[split]):
        raise ConfigError(f"{source}: its files are not Parquet; allowed: streaming: false")
    return ParquetRows(f"{source}/{split}", [fsspec.open(str(file), "rb").open() for file in files[split]], None)


def _explain_hub_failure(source: str, data: DataSettings, error: Exception) -> str:
    """What to do if a dataset of the hub cannot be read."""
    text = re.sub(r"\s+", " ", str(error))[:200]
    there = f"{KEY} = {source!r}: there is no such file or folder here, and the hub dataset of that name"
    name = source.partition("@")[0]
    way_out = (
        f"allowed: a network; or download it elsewhere (`hf download {name} --repo-type dataset --local-dir FOLDER`), "
        "copy the folder here, and set data.source to it"
    )
    if "gated" in text.lower() or "401" in text or "403" in text:
        way_out = f"allowed: request access at huggingface.co/datasets/{name}, then `hf auth login`"
    return f"{there} cannot be read ({type(error).__name__}: {text}); {way_out}"


def _to_rows(dataset: Any, name: str, folder: Path | None) -> Rows:
    from .arrow import _find_names

    if dataset._indices is not None:
        dataset = dataset.flatten_indices()
    table = dataset.with_format("arrow").data.table
    features = dataset.features.to_dict()
    labels = {column: names for column, feature in features.items() if (names := _find_names(feature))}
    return ArrowRows(name, table, folder, labels)
