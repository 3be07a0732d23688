"""The version of viewbox, and those of what its results depend on."""

import sys
from importlib import metadata

__version__ = "0.2.0"

PACKAGES = ("viewbox", "torch", "transformers", "trl", "peft", "accelerate", "numpy", "pillow")
_found: dict[str, str] = {}


def get_versions() -> dict[str, str]:
    """Return the versions of Python and of every package that a result depends on, as a new dictionary."""
    if not _found:
        _found["python"] = sys.version.split()[0]
        for name in PACKAGES:
            try:
                _found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
    return dict(_found)
