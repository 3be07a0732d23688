"""The one hierarchy of errors viewbox raises.

Every message names what was given, what is allowed and where it came from. What a *model* says never raises: it
becomes an observation or a named end of the episode (see `viewbox.envs.base`).
"""

from collections.abc import Iterable
from difflib import get_close_matches

MOST_LISTED = 40  # names an error message lists; of more it shows the nearest


class ViewboxError(Exception):
    """Base class: catch this to catch everything viewbox raises on purpose."""


class ConfigError(ViewboxError, ValueError):
    """A configuration (YAML, override, constructor argument) that cannot be used.

    `key` is the setting it is about, where the message does not begin with it (see `viewbox.configs.schema.located`).
    """

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class ImageError(ViewboxError, ValueError):
    """An image that cannot be opened, or is not where the task says."""


class ToolError(ViewboxError, ValueError):
    """A tool call that cannot be carried out; the message is shown to the model."""


class StoreError(ViewboxError, ValueError):
    """A folder of saved episodes that cannot be read or written."""


class ModelError(ViewboxError, ValueError):
    """A model, processor or chat template that viewbox cannot drive."""


def hint(given: object, allowed: Iterable[str]) -> str:
    """The nearest of the allowed names, to end a sentence with; nothing where none is near.

    >>> hint("zom", ["zoom", "crop"])
    " (did you mean 'zoom'?)"
    """
    near = get_close_matches(str(given), sorted(allowed), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def unknown(kind: str, given: str, allowed: Iterable[str]) -> str:
    """The sentence for a name that does not exist, with the nearest one that does.

    >>> unknown("tool", "zom", ["zoom", "crop"])
    "unknown tool 'zom'; allowed: crop, zoom (did you mean 'zoom'?)"
    """
    names = sorted(allowed)
    if len(names) > MOST_LISTED:
        near = get_close_matches(given, names, n=5)
        shown = f"one of {len(names)} names, such as {', '.join(near or names[:5])}"
    else:
        shown = ", ".join(names) or "none"
    return f"unknown {kind} {given!r}; allowed: {shown}{hint(given, names)}"
