"""Writing an environment as a package that others install: for verifiers 0.4, into a folder.

An author's module comes along, and so does the part of viewbox that plays and scores it: whoever installs the package
needs nothing else (`docs/publishing.md` says why it is done this way).
"""

from viewbox.publish.package import TARGETS, Published, publish

__all__ = ["TARGETS", "Published", "publish"]
