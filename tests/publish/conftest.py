"""Packages that are written quickly."""

import pytest

from tests.support.publishing import copy_little


@pytest.fixture
def quick(monkeypatch, unchecked):
    """A package that is not checked, with a few files of viewbox instead of hundreds."""
    copy_little(monkeypatch)
