"""Finds the rows that a data block names: files, folders, saved datasets, and datasets of the hub; and whether they are
still those that a run was started with."""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import ConfigError, describe_unknown
from .csv_rows import TextTable
from .rows import JoinedRows, JsonLines, ListedRows, Rows
from .settings import CellForm, DataSettings
from .tables import KEY, ArrowRows, ParquetRows, check_columns, open_arrow, open_parquet

TABLES = (".parquet", ".arrow")
CELLS = (".csv", ".tsv")
TEXTS = (".jsonl", ".ndjson", ".json", *CELLS)
MAX_ROWS = 2**28
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
SAVED = ("dataset_dict.json", "state.json")  # what `save_to_disk` of the library `datasets` writes
FORMS = "a file (.parquet, .arrow, .jsonl, .json, .csv, .tsv), a folder, or a hub dataset as owner/name"
KEYWORDS = {  # of the library `datasets`; the first that comes in a name is its split
    "test": ("test", "testing", "eval", "evaluation"),
    "validation": ("validation", "valid", "dev", "val"),
    "train": ("train", "training"),
}
HIDDEN = (".", "__", "~$")  # names of files and folders that are no data: of macOS, Python, Office
NO_ROWS = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "config.json")  # of `datasets`
_HUB_SHARD = re.compile(r"(\w+(?:\.\w+)*)-\d{5}-of-\d{5}.*\..*")
_SHARD = re.compile(r"(.*?)(\d+)-of-(\d+)(.*)")


def open_rows(data: DataSettings) -> Rows:
    """Open the rows of a data block's split; with `hold_out`, those of all its rows that are to be cut. Raise
    `ConfigError`."""
    source = data.source
    if source is None:
        raise ConfigError(f"{KEY}: is missing; allowed: {FORMS}", key=KEY)
    is_hub = isinstance(source, str) and is_hub_name(source)
    if isinstance(source, Mapping):
        source = source[_choose_split(data, source)]
    elif Path(source).is_file():
        _choose_split(data, ["train"])
    rows = _open_hub(source, data) if is_hub else _open_path(_check_exists(source), data)
    if len(rows) > MAX_ROWS:
        raise ConfigError(f"{KEY}: {rows.name}: says that it has {len(rows):,} rows; allowed: {MAX_ROWS:,}", key=KEY)
    return rows


def is_hub_name(source: str) -> bool:
    """Return whether a source is the name of a hub dataset: nothing of that name is on this machine.

    >>> is_hub_name("owner/name"), is_hub_name("folder/train.csv")
    (True, False)
    """
    path = Path(source)
    return bool(HUB_NAME.fullmatch(source)) and path.suffix not in (*TEXTS, *TABLES) and not path.exists()


def _check_exists(source: str) -> Path:
    path = Path(source)
    if not path.exists():
        folder = path.parent
        beside = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
        where = describe_unknown("file", path.name, beside) if beside else f"there is no folder {str(folder)!r:.200}"
        raise ConfigError(f"{KEY} = {source!r:.200}: {where}", key=KEY)
    return path


def _choose_split(data: DataSettings, names: Iterable[str]) -> str:
    """Return the split of the source to read. A cut is made of `train`, or of the only split there is."""
    splits = [str(name) for name in names]
    if data.cut is None:
        if data.split in splits:
            return data.split
        near = [split for split in splits if _read_word(split) == data.split]
        if len(near) == 1:  # `train_sft`
            return near[0]
        problem = describe_unknown("split", data.split, splits)
        way_out = "; data.hold_out cuts a split `test` off" if data.split == "test" else ""
        raise ConfigError(f"data.split: {problem}{way_out}", key="data.split")
    if data.split not in ("train", "test"):
        allowed = "train, test, because hold_out cuts the rows into these two"
        raise ConfigError(f"data.split = {data.split!r}; allowed: {allowed}", key="data.split")
    if "train" in splits or len(splits) == 1:
        return "train" if "train" in splits else splits[0]
    problem = f"data.hold_out: {data.source} has the splits {', '.join(splits)}"
    raise ConfigError(f"{problem}; allowed with hold_out: a split train, or only one split", key="data.hold_out")


def _open_path(path: Path, data: DataSettings) -> Rows:
    if path.is_dir():
        return _open_folder(path, data)
    if path.suffix.lower() in (*TEXTS, *TABLES):
        return _open_files([path], path.name, data)
    kind = path.suffix.lower()
    raise ConfigError(f"{KEY} = {str(path)!r:.200}: a file of kind {kind!r}; allowed: {FORMS}", key=KEY)


def _open_files(paths: Sequence[Path], name: str, data: DataSettings) -> Rows:
    kind = paths[0].suffix.lower()
    if data.cells != CellForm() and kind not in CELLS:
        raise ConfigError(f"data.cells: {name} has no cells; allowed: with .csv and .tsv", key="data.cells")
    if kind == ".parquet":
        return open_parquet(paths, name, streaming=data.streaming)
    if kind == ".arrow":
        return open_arrow(paths, name)
    read: Callable[[Path], Rows] = ListedRows if kind == ".json" else JsonLines
    parts = [TextTable(path, data.cells) if kind in CELLS else read(path) for path in paths]
    if kind in CELLS:
        check_columns([(path.name, part.columns) for path, part in zip(paths, parts, strict=True)])
    return parts[0] if len(parts) == 1 else JoinedRows(name, parts)


def _open_folder(path: Path, data: DataSettings) -> Rows:
    if _is_saved(path):
        import datasets

        try:
            loaded = datasets.load_from_disk(str(path))
        except (OSError, ValueError, KeyError, TypeError, MemoryError) as error:  # a file is missing, or damaged
            raise _refuse_folder(path, f"{error!s:.300}", "the whole folder that save_to_disk wrote") from error
        return _choose_dataset(loaded, path.name, path, data)
    files, hidden = find_files(path)
    if not files:
        content = ", ".join(sorted(file.name for file in path.iterdir())[:10]) or "nothing"
        allowed = "a JSONL, JSON or CSV file beside images, Parquet or Arrow files, or what save_to_disk wrote"
        raise ConfigError(f"{KEY} = {str(path)!r:.200}: holds {content}; allowed in it: {allowed}", key=KEY)
    by_split: dict[str | None, list[Path]] = {}
    for file in files:
        by_split.setdefault(read_split(file.relative_to(path)), []).append(file)
    untold, told = by_split.pop(None, []), [file for members in by_split.values() for file in members]
    if told and untold:
        problem = f"the name of {told[0].name} tells its split, that of {untold[0].name} does not"
        raise _refuse_folder(path, problem, "a name with train, validation or test for each, or {split: file}")
    split = _choose_split(data, [split for split in by_split if split] or ["train"])
    chosen = untold or by_split[split]
    _check_files(path, chosen, is_told=bool(told))
    rows = _open_files(chosen, f"{path.name}/{split}", data)
    if hidden:
        rows.notes = (*rows.notes, f"hidden, and left out: {', '.join(hidden):.200}")
    return rows


def _refuse_folder(path: Path, problem: str, allowed: str) -> ConfigError:
    return ConfigError(f"{KEY} = {str(path)!r:.200}: {problem}; allowed: {allowed}", key=KEY)


def _check_files(path: Path, files: Sequence[Path], *, is_told: bool) -> None:
    """Raise `ConfigError` if files of one split are no one dataset: of two kinds, or one is missing or too many."""
    by_kind = {file.suffix.lower(): file.name for file in files}
    if len(by_kind) > 1:
        raise _refuse_folder(path, f"holds {' and '.join(by_kind.values())} of one split", "one kind of file a split")
    sets: dict[tuple[str, ...], dict[int, str]] = {}
    for file in files:
        if shard := _SHARD.fullmatch(file.stem):
            sets.setdefault((str(file.parent), shard[1], shard[3], shard[4]), {})[int(shard[2])] = shard[2]
    is_several = not is_told and len(files) > 1 and files[0].suffix.lower() in TEXTS
    if len(sets) > 1 or (sum(map(len, sets.values())) < len(files) if sets else is_several):
        names = ", ".join(str(file.relative_to(path)) for file in files)
        problem = f"holds {names:.200}, which are more than one dataset"
        raise _refuse_folder(path, problem, "one of these as the source, or a file by split")
    for (_, before, total, after), shards in sets.items():
        start = 0 if 0 in shards or (len(total) == 5 and int(total) not in shards) else 1
        lacking = (number for number in range(start, start + int(total)) if number not in shards)
        if (missing := next(lacking, None)) is not None:
            name = f"{before}{missing:0{len(next(iter(shards.values())))}}-of-{total}{after}{files[0].suffix}"
            problem = f"{name} is missing: {len(shards)} of {int(total)} files are there"
            raise _refuse_folder(path, problem, "all files, or one of them as the source")


def find_files(path: Path) -> tuple[list[Path], list[str]]:
    """Return the files of rows in a folder, and the names of what is hidden. Raise `ConfigError` if two kinds are
    there."""
    paths, hidden = list[Path](), list[str]()
    for folder, folders, names in os.walk(path):
        names = [name for name in names if name.lower().endswith((*TEXTS, *TABLES)) and name not in NO_ROWS]
        if Path(folder) == path and any(name.lower().endswith(TEXTS) for name in names):
            folders[:] = [name for name in folders if name == "data"]  # others hold images, perhaps a million
        hidden += [name for name in (*folders, *names) if name.startswith(HIDDEN)]
        folders[:] = [name for name in folders if not name.startswith(HIDDEN)]
        paths += [Path(folder, name) for name in names if not name.startswith((*HIDDEN, "cache-"))]
    tables = sorted(file for file in paths if file.suffix.lower() in TABLES and file.is_file())
    texts = sorted(file for file in paths if file.suffix.lower() in TEXTS and file.is_file() and not _is_saved(path))
    beside = {path, *(file.parent for file in tables)} if tables else {path} & {file.parent for file in texts}
    top = [file for file in texts if file.parent in beside]
    if tables and top:
        problem = f"holds rows of two kinds, {top[0].name} and {tables[0].relative_to(path)}"
        raise _refuse_folder(path, problem, "one of them, or the folder of one, as the source")
    return tables or top or texts, hidden


def read_split(file: Path) -> str | None:
    """Return the split of a file inside a folder, as the library `datasets` reads it; None: no name tells it.

    >>> names = ("a_test.csv", "train/a.csv", "data/sft-00000-of-00001.parquet", "latest.csv")
    >>> [read_split(Path(name)) for name in names]
    ['test', 'train', 'sft', None]
    """
    if file.parent == Path("data") and (shard := _HUB_SHARD.fullmatch(file.name)):
        return shard[1]
    return _read_word(" ".join(file.parts[:-1])) or _read_word(file.name)


def _read_word(name: str) -> str | None:
    """Return the split of which a word between other signs than letters tells."""
    words = set(re.split(r"[\W\d_]+", name.lower()))
    return next((split for split, known in KEYWORDS.items() if words & set(known)), None)


def _is_saved(path: Path) -> bool:
    return any((path / name).is_file() for name in SAVED)


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
        raise ConfigError(_explain_hub_failure(source, error), key=KEY) from error


def _explain_hub_failure(source: str, error: Exception) -> str:
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
    splits = loaded if isinstance(loaded, Mapping) else {"train": loaded}
    split = _choose_split(data, splits)
    dataset = splits[split] if splits[split]._indices is None else splits[split].flatten_indices()
    return ArrowRows(f"{name}/{split}" if splits is loaded else name, dataset.data.table, folder)


PARTS, PART = 256, 2**20  # of a larger file: how many places are read, evenly spread, and the bytes at each


def fingerprint_data(env: object) -> dict[str, str]:
    """Return what the files of an environment's rows hold, by the path that its settings name: size and a short
    hash, the same on every machine. Images, and datasets of the hub, are not looked at. A mixture has those of all
    its parts."""
    parts = getattr(env, "parts", None)
    if isinstance(parts, Mapping):
        return {path: fingerprint for part in parts.values() for path, fingerprint in fingerprint_data(part).items()}
    data = getattr(env, "data", None)
    if not isinstance(data, DataSettings):
        return {}
    sources = data.source.values() if isinstance(data.source, Mapping) else [data.source]
    rewards = data.difficulty.rewards if data.difficulty is not None else None
    named = [source for source in (*sources, rewards) if source is not None]
    return {source: _describe(files) for source in named if (files := _list_files(Path(source)))}


def _list_files(path: Path) -> list[Path]:
    return find_files(path)[0] if path.is_dir() else [path] if path.is_file() else []


def list_changed(before: Mapping[str, object], now: Mapping[str, str]) -> list[str]:
    """Return the data that differ from those before, as `path: before → now`; a file may have moved.

    >>> list_changed({"a.csv": "9 bytes, 1f", "b.csv": "5 bytes, 2e"}, {"a.csv": "8 bytes, 3d", "c/b": "5 bytes, 2e"})
    ['a.csv: 9 bytes, 1f → 8 bytes, 3d']
    """
    known = {path: [before[path]] if path in before else list(before.values()) or [now[path]] for path in now}
    return [f"{path}: {before.get(path, 'not read')} → {now[path]}" for path in now if now[path] not in known[path]]


def _describe(files: Iterable[Path]) -> str:
    total, digest = 0, hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        total += size
        digest.update(f"{path.name} {size} ".encode(errors="surrogateescape"))
        with path.open("rb") as file:
            for place in (*range(0, size, max(PART, size // PARTS)), max(0, size - PART)):
                file.seek(place)
                digest.update(file.read(PART))
    return f"{total:,} bytes, {digest.hexdigest()[:12]}"
