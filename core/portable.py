"""Refuses settings that hold a path of this machine: on another one it names nothing, or something else."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..utils.sanitize import map_texts

# `/data/x`, `~/x`, `$DATA/x`, `C:\x`, `\\server\x`, `file:///x`; not `/no_think`, which is a word to a model
_ABSOLUTE = re.compile(r"(?:file:|~[\w.-]*[/\\]|\$\{?\w+\}?[/\\]|[a-z]:[/\\]|\\\\[^\\\s]|/[^/\s]+/)", re.IGNORECASE)
_PATH_INSIDE = re.compile(r"(?<![\w.:/-])(?:[A-Za-z]:|~)?(?:[/\\][\w.@+-]*\w){2,}")  # two names at least


def check_portable(value: object, key: str) -> None:
    """Raise `ConfigError` for a value that JSON does not have, or that names a path of this machine.

    >>> check_portable({"prefix": "/no_think", "split": "test"}, "settings")
    >>> check_portable({"cases": ["/data/cases.csv"]}, "settings")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: settings.cases[0]: '/data/cases.csv' is a path of this machine; allowed: what holds \
anywhere
    """
    if isinstance(value, Mapping):
        for name, item in value.items():
            check_portable(str(name), f"{key} (a key)")
            check_portable(item, f"{key}.{name}")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            check_portable(item, f"{key}[{number}]")
    elif isinstance(value, str):
        if names_local_path(value):
            raise ConfigError(f"{key}: {value!r:.200} is a path of this machine; allowed: what holds anywhere", key=key)
    elif value is not None and not isinstance(value, bool | int | float):
        raise ConfigError(f"{key}: {type(value).__name__} is not a JSON value", key=key)


def hide_paths(value: object) -> Any:
    """Plain nested values, of each path of this machine only its last part, for texts that people read.

    >>> hide_paths({"source": "/data/me/cases.csv", "split": "test"})
    {'source': '…/cases.csv', 'split': 'test'}
    """

    def hide(text: str) -> str:
        return "…/" + re.split(r"[/\\]", text.rstrip("/\\"))[-1] if names_local_path(text) else text

    return map_texts(value, hide)


def hide_paths_in(text: str) -> str:
    """Return a sentence, of each path in it only the last part.

    >>> hide_paths_in("cannot open /data/me/model.bin: [Errno 2]"), hide_paths_in("24 km/h and n/a")
    ('cannot open …/model.bin: [Errno 2]', '24 km/h and n/a')
    """
    return _PATH_INSIDE.sub(lambda found: "…/" + re.split(r"[/\\]", found[0])[-1], text)


def names_local_path(text: str) -> bool:
    """Return whether a text is an absolute path, or holds the path of the user's home folder.

    >>> [names_local_path(text) for text in ("/data/a.csv", "C:\\\\a", "~/a", "file:///a", "python ~", "a/b", "/think")]
    [True, True, True, True, False, False, False]
    """
    home = str(Path.home()).rstrip("/\\")
    inside = bool(home) and re.search(rf"(?<![\w./-]){re.escape(home)}[/\\]", text) is not None
    return inside or _ABSOLUTE.match(text.strip()) is not None or _is_absolute_file(text)


def _is_absolute_file(text: str) -> bool:
    try:
        path = Path(text.strip())
        return path.is_absolute() and path.exists()
    except (OSError, ValueError):  # no path at all
        return False
