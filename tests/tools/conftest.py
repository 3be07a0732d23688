"""Fixtures for the tests of tools."""

import pytest

from viewbox.tools import TOOLS


@pytest.fixture(autouse=True)
def scratch():
    """Tools of a test are gone after it."""
    before = dict(TOOLS)
    yield
    TOOLS.clear()
    TOOLS.update(before)
