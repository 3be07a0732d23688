"""Fixtures with tiny models, and environments whose play is known."""

import pytest

from tests.support.model_fixtures import *  # noqa: F403


@pytest.fixture(autouse=True)
def _leave_out_the_curve(monkeypatch):
    """A picture, which takes as long as a step. Runs that modules share have one: test_train.py looks at it."""
    monkeypatch.setattr("viewbox.training.reporting.report.draw_curve", lambda *given: None)
