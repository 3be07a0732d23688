"""Writes an environment as an installable package for verifiers 0.4: `publish`.

The package holds the author's code and the part of viewbox that plays and scores it; viewbox itself need not be
installed. `docs/publishing.md` explains why.
"""

from viewbox.publish.package import TARGETS, PublishedPackage, publish

__all__ = ["TARGETS", "PublishedPackage", "publish"]
