"""Images: pixels of any file at their native depth, and views of them with an exact map back to the original.

`open_image` reads a file as a `Source` (a slice of a `Volume`), `View` shows a part of it, and `ImageRef` names a
picture by the hash of its pixels. Nothing in this room knows of language models.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# public name → the module that defines it, imported when the name is first used: a process that decodes needs few
_HOMES = {
    "ImageRef": "viewbox.images.ref",
    "Source": "viewbox.images.source",
    "Volume": "viewbox.images.source",
    "open_image": "viewbox.images.files",
    "open_picture": "viewbox.images.files",
}
__all__ = ["ImageRef", "Source", "Volume", "open_image", "open_picture"]

if TYPE_CHECKING:
    from .files import open_image as open_image
    from .files import open_picture as open_picture
    from .ref import ImageRef as ImageRef
    from .source import Source as Source
    from .source import Volume as Volume


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
