"""Writes an environment as an installable package for verifiers 0.4: `publish`.

The package holds the author's code and the part of viewbox that plays and scores it, and needs nothing else.
`docs/publishing.md` explains why.
"""

from viewbox.publish.package import TARGETS, PublishedPackage, publish

__all__ = ["TARGETS", "PublishedPackage", "publish"]
