"""Finds the rows that a data block names: files, folders, saved datasets, and datasets of the hub."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError, describe_unknown
from .rows import READERS, Rows
from .settings import DataSettings
from .tables import KEY, ArrowRows, ParquetRows, open_arrow, open_parquet

TABLES = (".parquet", ".arrow")
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
SAVED = ("dataset_dict.json", "state.json")  # what `save_to_disk` of the library `datasets` writes
FORMS = "a file (.parquet, .arrow, .jsonl, .json, .csv, .tsv), a folder, or a hub dataset as owner/name"
SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "eval"),
}


def open_rows(data: DataSettings) -> Rows:
    """Open the rows of a data block's split; with `hold_out`, those of all its rows that are to be cut.

    Raises:
        ConfigError: there is no such source or split, or it cannot be read.
    """
    source = data.source
    if source is None:
        raise ConfigError(f"{KEY}: is missing; allowed: {FORMS}", key=KEY)
    if isinstance(source, Mapping):
        return _open_path(_check_exists(source[_choose_split(data, source)]), data)
    path = Path(source)
    if is_hub_name(source):
        return _open_hub(source, data)
    if path.is_file():
        _choose_split(data, ["train"])
    return _open_path(_check_exists(source), data)


def is_hub_name(source: str) -> bool:
    """Return whether a source is the name of a hub dataset: nothing of that name is on this machine.

    >>> is_hub_name("owner/name"), is_hub_name("folder/train.csv")
    (True, False)
    """
    path = Path(source)
    return bool(HUB_NAME.fullmatch(source)) and path.suffix not in (*READERS, *TABLES) and not path.exists()


def _check_exists(source: str) -> Path:
    path = Path(source)
    if not path.exists():
        folder = path.parent
        beside = sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []
        where = describe_unknown("file", path.name, beside) if beside else f"there is no folder {str(folder)!r:.200}"
        raise ConfigError(f"{KEY} = {source!r:.200}: {where}", key=KEY, given=source)
    return path


def _choose_split(data: DataSettings, names: Iterable[str]) -> str:
    """Return the split of the source to read. A cut is made of `train`, or of the only split there is."""
    splits = [str(name) for name in names]
    if data.cut is None:
        if data.split in splits:
            return data.split
        problem = describe_unknown("split", data.split, splits)
        way_out = "; data.hold_out cuts a split `test` off" if data.split == "test" else ""
        raise ConfigError(f"data.split: {problem}{way_out}", key="data.split", given=data.split, allowed=splits)
    if data.split not in ("train", "test"):
        allowed = "train, test, because hold_out cuts the rows into these two"
        raise ConfigError(f"data.split = {data.split!r}; allowed: {allowed}", key="data.split", given=data.split)
    if "train" in splits or len(splits) == 1:
        return "train" if "train" in splits else splits[0]
    problem = f"data.hold_out: {data.source} has the splits {', '.join(splits)}"
    raise ConfigError(f"{problem}; allowed with hold_out: a split train, or only one split", key="data.hold_out")


def _open_path(path: Path, data: DataSettings) -> Rows:
    if path.is_dir():
        return _open_folder(path, data)
    kind = path.suffix.lower()
    if kind in READERS:
        return READERS[kind](path)
    if kind in TABLES:
        return _open_tables([path], path.name, data)
    raise ConfigError(f"{KEY} = {str(path)!r:.200}: a file of kind {kind!r}; allowed: {FORMS}", key=KEY, given=kind)


def _open_tables(paths: list[Path], name: str, data: DataSettings) -> Rows:
    if paths[0].suffix.lower() == ".arrow":
        return open_arrow(paths, name)
    return open_parquet(paths, name, streaming=data.streaming)


def _open_folder(path: Path, data: DataSettings) -> Rows:
    if _is_saved(path):
        import datasets

        return _choose_dataset(datasets.load_from_disk(str(path)), path.name, path, data)
    files = list_files(path)
    if not files:
        found = ", ".join(sorted(one.name for one in path.iterdir())[:10]) or "nothing"
        allowed = "a JSONL, JSON or CSV file beside images, Parquet or Arrow files, or what save_to_disk wrote"
        raise ConfigError(f"{KEY} = {str(path)!r:.200}: holds {found}; allowed in it: {allowed}", key=KEY)
    if files[0].suffix.lower() in READERS:
        return _open_path(_choose_file(path, files, data), data)
    by_split: dict[str, list[Path]] = {}
    for one in files:
        by_split.setdefault(_read_split(one, path), []).append(one)
    split = _choose_split(data, by_split)
    return _open_tables(by_split[split], f"{path.name}/{split}", data)


def list_files(path: Path) -> list[Path]:
    """Return the files of rows in a folder, sorted: text beside images, or else tables at any depth."""
    texts = [one for one in path.iterdir() if one.suffix.lower() in READERS and one.is_file()]
    if texts and not _is_saved(path):
        return sorted(texts)
    tables = (one for one in path.rglob("*") if one.suffix.lower() in TABLES and one.is_file())
    return sorted(one for one in tables if not one.name.startswith("cache-"))  # what `datasets` keeps beside them


def _is_saved(path: Path) -> bool:
    return any((path / name).is_file() for name in SAVED)


def _choose_file(path: Path, files: list[Path], data: DataSettings) -> Path:
    """Return the only file, or the one that is named after the split."""
    by_name = {one.stem: one for one in files} if len(files) > 1 else {"train": files[0]}
    if len(files) == 1 or data.split in by_name or (data.cut is not None and "train" in by_name):
        return by_name[_choose_split(data, by_name)]
    problem = f"{KEY} = {str(path)!r:.200}: holds {', '.join(one.name for one in files)}"
    raise ConfigError(f"{problem}; allowed: one of these as the source, or a file by split", key=KEY, given=path)


def _read_split(file: Path, root: Path) -> str:
    """Return the split of a file as the hub names it: `train-00000-of-00002.parquet`, or a folder `train`."""
    for name in (file.stem, *(part.name for part in file.relative_to(root).parents)):
        first = re.split(r"[-_.]", name)[0].lower()
        for split, names in SPLITS.items():
            if first in names:
                return split
    return "train"


# ---------------------------------------------------------------------- the library `datasets`
def _open_hub(source: str, data: DataSettings) -> Rows:
    """Open a dataset of the hub: downloaded and converted once, or its Parquet files where they are (`streaming`)."""
    import datasets
    import fsspec

    name, _, revision = source.partition("@")
    try:
        if not data.streaming:
            loaded = datasets.load_dataset(name, data.config, revision=revision or None)
            return _choose_dataset(loaded, source, None, data)
        files = datasets.load_dataset_builder(name, data.config, revision=revision or None).config.data_files or {}
        split = _choose_split(data, files)
        if not all(str(file).endswith(".parquet") for file in files[split]):
            raise ConfigError(f"{source}: its files are not Parquet; allowed: streaming: false")
        return ParquetRows(f"{source}/{split}", [fsspec.open(str(file), "rb").open() for file in files[split]], None)
    except Exception as error:  # the library raises many kinds
        if getattr(error, "key", None) is not None:
            raise
        raise ConfigError(_explain_hub_failure(source, error), key=KEY, given=source) from error


def _explain_hub_failure(source: str, error: Exception) -> str:
    """Say what to do if a dataset of the hub cannot be read."""
    text = re.sub(r"\s+", " ", str(error))[:200]
    name = source.partition("@")[0]
    way_out = (
        f"allowed: a network; or download it elsewhere (`hf download {name} --repo-type dataset --local-dir FOLDER`), "
        "copy the folder here, and set data.source to it"
    )
    if "gated" in text.lower() or "401" in text or "403" in text:
        way_out = f"allowed: request access at huggingface.co/datasets/{name}, then `hf auth login`"
    there = f"{KEY} = {source!r}: there is no such file or folder here, and the hub dataset of that name"
    return f"{there} cannot be read ({type(error).__name__}: {text}); {way_out}"


def _choose_dataset(loaded: Any, name: str, folder: Path | None, data: DataSettings) -> Rows:
    """Open the split of what the library `datasets` has loaded."""
    splits = loaded if isinstance(loaded, Mapping) else {"train": loaded}
    split = _choose_split(data, splits)
    dataset = splits[split] if splits[split]._indices is None else splits[split].flatten_indices()
    return ArrowRows(f"{name}/{split}" if splits is loaded else name, dataset.data.table, folder)
