"""Fixtures for the tests of tools."""

import pytest

from viewbox.tools import TOOLS


@pytest.fixture
def scratch():
    """Tools of a test are gone after it."""
    before = dict(TOOLS)
    yield
    TOOLS.clear()
    TOOLS.update(before)
