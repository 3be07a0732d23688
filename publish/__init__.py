"""Writes an environment as an installable package for verifiers 0.4, into a folder or onto a hub: `publish`.

The package holds the author's code and the part of viewbox that plays and scores it; viewbox itself need not be
installed. `docs/publishing.md` explains why.
"""

from .package import publish
from .release import PublishedPackage

__all__ = ["PublishedPackage", "publish"]
