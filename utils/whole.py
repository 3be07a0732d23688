"""Folders that appear whole or not at all."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import ConfigError


@contextmanager
def create_whole(path: Path) -> Iterator[Path]:
    """A place beside `path`, for a file or a folder, that is renamed to `path` when the block ends without an error.

    After a `kill -9`, a hidden name that ends in `.tmp` may be left; `path` is not there.

    Raises:
        ConfigError: `path` exists, or cannot be written.
    """
    if os.path.lexists(path):
        raise ConfigError(f"{path}: exists; give another --out, or remove it", key="out", given=str(path))
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        os.rename(draft, path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror or error})", key="out") from error
    finally:
        if draft.is_dir():
            shutil.rmtree(draft, ignore_errors=True)
        else:
            draft.unlink(missing_ok=True)
