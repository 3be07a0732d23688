"""Packages that are written quickly."""

from pathlib import Path

import pytest

from viewbox.publish import vendor


@pytest.fixture
def quick(monkeypatch, unchecked):
    """A package that is not checked, with a few files of viewbox instead of hundreds."""
    few = ("LICENSE", "__init__.py", "errors.py", "py.typed", "records.py", "version.py")
    monkeypatch.setattr(vendor, "list_library_files", lambda: [Path(name) for name in few])
