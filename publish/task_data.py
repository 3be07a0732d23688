"""Writes the tasks of a dataset into a published package: the rows that are used, and their images.

Only the selected tasks travel, with the columns that the mapping reads: no other split, no other column.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from typing_extensions import TypeIs

from viewbox.envs.data.env import DataEnv
from viewbox.envs.data.sources import is_hub_name
from viewbox.envs.data.tasks import BAD_ROW
from viewbox.errors import ConfigError
from viewbox.images.files.paths import split_series
from viewbox.network.secrets import find_key_form

FOLDER, ROWS, IMAGES, COLUMN = "data", "tasks.jsonl", "images", "viewbox_images"
CHOSEN = ("source", "config", "split", "hold_out", "images", "streaming", "where", "limit", "sample", "difficulty")
MAX_BYTES = 2**30  # of all images of a package


def is_on_hub(env: object) -> bool:
    """Whether an environment's tasks are rows of a hub dataset."""
    return isinstance(env, DataEnv) and isinstance(env.data.source, str) and is_hub_name(env.data.source)


def is_local(env: object) -> TypeIs[DataEnv]:
    """Whether an environment's tasks are rows of files on this machine."""
    return isinstance(env, DataEnv) and env.data.source is not None and not is_on_hub(env)


def write_tasks(env: DataEnv, package: Path) -> dict[str, Any]:
    """Write the rows and images of all tasks of `env` into a package.

    Args:
        env: the environment.
        package: the folder of its module.

    Returns:
        The block `data` that reads them; its source is relative to `package`.

    Raises:
        ConfigError: an image cannot be copied, they are too large for a package, or a row holds what looks like a key.
    """
    folder, size, has_images = package / FOLDER, 0, False
    (folder / IMAGES).mkdir(parents=True)
    with (folder / ROWS).open("w", encoding="utf-8") as file:
        for number in range(len(env.tasks)):
            task = env.tasks[number]
            if BAD_ROW in task.metadata:
                raise ConfigError(f"data: {task.metadata[BAD_ROW]}; allowed in a package: good rows", key="data")
            row, images = env.export_row(task)
            names = []
            for image in images:
                name, written = _copy_image(image, env.images_folder, folder / IMAGES)
                names.append(name)
                size += written
            has_images = has_images or bool(names)
            line = json.dumps({**row, COLUMN: names}, ensure_ascii=False, default=str)
            if (kind := find_key_form(line)) is not None:
                raise ConfigError(f"data: task {task.id!r:.80} holds {kind}, which would be published", key="data")
            file.write(line + "\n")
            if size > MAX_BYTES:
                raise ConfigError(
                    f"data: the images of the first {number + 1} tasks take {size / 2**30:.1f} GiB; allowed in a "
                    f"package: {MAX_BYTES / 2**30:g} GiB. Set data.limit, or publish the name of a hub dataset",
                    key="data",
                )
    kept = env.data.model_dump(mode="json", exclude_unset=True, exclude=set(CHOSEN))
    columns = {name: column for name, column in env.data.columns.items() if name not in ("image", "images")}
    return {**kept, "source": f"{FOLDER}/{ROWS}", "columns": columns | ({"images": COLUMN} if has_images else {})}


def _copy_image(image: str | bytes, source: Path | None, to: Path) -> tuple[str, int]:
    """Copy an image, a file or the folder of a series: its path relative to the folder of the rows, and its bytes."""
    if isinstance(image, bytes):
        name = hashlib.sha256(image).hexdigest()[:20]
        (to / name).write_bytes(image)
        return f"{IMAGES}/{name}", len(image)
    if source is None or image[:5].lower() == "data:":
        return image, len(image)
    where, series = split_series(image)
    path = (source / str(where)).resolve()
    if not path.is_relative_to(source.resolve()):
        raise ConfigError(f"data: the image {image!r:.200} lies outside {source}; allowed: paths inside", key="data")
    target = to / (hashlib.sha256(str(path).encode()).hexdigest()[:20] + "".join(path.suffixes[-2:]))
    name = f"{IMAGES}/{target.name}" + (f"#series={series}" if series is not None else "")
    if target.exists():
        return name, 0
    if path.is_dir():
        shutil.copytree(path, target)
    else:
        shutil.copyfile(path, target)
    return name, sum(one.stat().st_size for one in (target, *target.rglob("*")) if one.is_file())
