"""Writes the tasks of a dataset into a published package: the rows that are used, and their images.

Only the selected tasks travel, with the columns that the mapping reads: no other split, no other column. Of the folder
of a series its slices travel, and nothing else that lies there. Every image is opened once. License files beside the
rows and images come along.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import TypeIs

from ..envs.data.env import DataEnv
from ..envs.data.selection import BAD_ROW
from ..envs.data.sources import is_hub_name
from ..errors import ConfigError, ImageError
from ..images import limits
from ..images.files import dicom_series, open_image, volume_files
from ..images.files.paths import DETACHED, describe_location, is_data_url, resolve_inside, split_selection
from ..utils.files import open_regular
from ..utils.secrets import find_key_form
from .contents import check_file, check_name, is_license

FOLDER, ROWS, IMAGES, COLUMN = "data", "tasks.jsonl", "images", "viewbox_images"
GROUP = "viewbox_group"
CHOSEN = ("source", "config", "split", "hold_out", "images", "streaming", "where", "limit", "sample", "difficulty")
MAX_BYTES = 2**30  # of all images of a package
STORES = re.compile(r"\.git/annex/|\.dvc/cache/")  # where git-annex and DVC lay the files that links lead to
DATA_SUFFIXES = (".raw", ".zraw", ".gz", ".img", ".bin", ".dat", ".data")  # of pixels beside a header


def is_on_hub(env: object) -> bool:
    """Return whether an environment's tasks are rows of a hub dataset."""
    return isinstance(env, DataEnv) and isinstance(env.data.source, str) and is_hub_name(env.data.source)


def is_local(env: object) -> TypeIs[DataEnv]:
    """Return whether an environment's tasks are rows of files on this machine."""
    return isinstance(env, DataEnv) and env.data.source is not None and not is_on_hub(env)


def write_tasks(env: DataEnv, package: Path) -> dict[str, object]:
    """Write the rows and images of all tasks of `env` into a package. Raise `ConfigError` if an image cannot be copied,
    they are too large for a package, or a row holds what looks like a key.

    Returns:
        The block `data` that reads them; its source is relative to `package`.
    """
    folder, size, has_images, bad = package / FOLDER, 0, False, list[str]()
    (folder / IMAGES).mkdir(parents=True)
    _copy_licenses(env, folder)
    with (folder / ROWS).open("w", encoding="utf-8") as file:
        for number in range(len(env.tasks)):
            task = env.tasks[number]
            if BAD_ROW in task.metadata:
                bad.append(str(task.metadata[BAD_ROW]))
                continue
            rows, images = env.export_rows(task)
            names = []
            for image in images:
                try:
                    name, written = _copy_image(image, env.images_folder, folder / IMAGES)
                except ImageError as error:
                    bad.append(f"task {task.id!r:.80}: the image {describe_location(image)}: {error}")
                    continue
                names.append(name)
                size += written
            has_images = has_images or bool(names)
            group = {} if env.data.group is None else {GROUP: task.id}
            lines = [json.dumps({**row, **group, COLUMN: names}, ensure_ascii=False, default=str) for row in rows]
            if (kind := find_key_form("\n".join(lines))) is not None:
                raise ConfigError(f"data: task {task.id!r:.80} holds {kind}, which would be published", key="data")
            file.writelines(f"{line}\n" for line in lines)
            if size > MAX_BYTES:
                raise ConfigError(
                    f"data: the images of the first {number + 1} tasks take {size / 2**30:.1f} GiB; allowed in a "
                    f"package: {MAX_BYTES / 2**30:g} GiB. Set data.limit, or publish the name of a hub dataset",
                    key="data",
                )
    if bad:
        raise ConfigError(
            f"data: rows or images that cannot be shown: {len(bad)}, such as {bad[0]}; allowed: good rows, "
            "which `viewbox data check CONFIG --images --write FILE` writes",
            key="data",
        )
    settings = env.data.model_dump(mode="json", exclude_unset=True, exclude=set(CHOSEN))
    settings |= {"group": GROUP} if env.data.group is not None else {}
    columns = {name: column for name, column in env.data.columns.items() if name not in ("image", "images")}
    return {**settings, "source": f"{FOLDER}/{ROWS}", "columns": columns | ({"images": COLUMN} if has_images else {})}


def _copy_image(image: str | bytes, source: Path | None, to: Path) -> tuple[str, int]:
    """Copy an image, a file or the slices of a series, and open the copy.
    It returns the path relative to the folder of the rows, and the bytes; 0 if it was there before."""
    if isinstance(image, str) and is_data_url(image):
        open_image(image)
        return image, len(image)
    where, selection = split_selection(image, source)
    if source is None and isinstance(where, str):
        raise ImageError("it is a path, and data.images names no folder")
    path = where if isinstance(where, bytes) else resolve_inside(str(where), source)
    if isinstance(path, Path) and source is not None:
        held = os.path.relpath(path, source.resolve())
        check_name(path, os.path.relpath(source / str(where), source))
        if not STORES.match(held):
            check_name(path, held)
    content = path if isinstance(path, bytes) else f"{path}{selection}".encode()
    suffix = "" if isinstance(path, bytes) else "".join(path.suffixes[-2:])
    target = to / (hashlib.sha256(content).hexdigest()[:20] + suffix)
    chosen = selection._replace(stack=None) if isinstance(path, Path) and path.is_dir() else selection
    name = f"{IMAGES}/{target.name}{chosen}"  # of a folder, the chosen stack alone is copied
    if target.exists():
        return name, 0
    if isinstance(path, bytes):
        target.write_bytes(path)
    elif path.is_dir():  # its slices alone, under names that say nothing of a patient
        target.mkdir()
        for number, file in enumerate(dicom_series.list_files(path, selection)):
            _copy_file(path / file, target / f"{number:05}.dcm", path)
    else:
        _copy_file(path, target, path.parent)
        _copy_data(path, target)
    open_image(name, to.parent)
    written = (*to.glob(f"{target.name}*"), *target.rglob("*"))
    return name, sum(copied.stat().st_size for copied in written if copied.is_file())


def _copy_data(path: Path, to: Path) -> None:
    """Copy the second file of a header, if it has one, under a name that says nothing of a patient."""
    if path.suffix.lower() not in DETACHED:
        return
    with to.open("rb") as file:
        header = volume_files.read_header(file)
    data = volume_files.get_data_name(header)
    if data is not None:
        if not data.lower().endswith(DATA_SUFFIXES) or (path.parent / data).is_symlink():
            raise ConfigError(
                f"{path}: the file of its pixels, {data!r:.80}, would be published; allowed: no link, and a name that "
                f"ends with {', '.join(DATA_SUFFIXES)}"
            )
        copied = to.with_name(f"{to.name}.data")
        _copy_file(path.parent / data, copied, path.parent)
        line = copied.name.encode()
        to.write_bytes(volume_files.DATA_FILE.sub(lambda found: b"%s %s" % (found[1], line), header, count=1))


def _copy_file(path: Path, to: Path, inside: Path) -> None:
    check_name(path, path.name)
    try:
        with open_regular(path, limit=limits.MAX_FILE, inside=inside) as file, to.open("wb") as copy:
            shutil.copyfileobj(file, copy)
    except OSError as error:
        raise ImageError(f"it cannot be read ({error.strerror})") from error


def _copy_licenses(env: DataEnv, to: Path) -> None:
    named = env.data.source
    sources = [str(source) for source in (named.values() if isinstance(named, Mapping) else [named])]
    folders = {path if (path := Path(source)).is_dir() else path.parent for source in sources}
    for folder in sorted(folders | ({env.images_folder} if env.images_folder is not None else set())):
        for path in sorted(folder.iterdir()):
            if is_license(path) and not (to / path.name).exists():
                check_file(path)
                shutil.copyfile(path, to / path.name)
