"""Fixtures with tiny models, and environments whose play is known."""

from tests.support.model_fixtures import *  # noqa: F403
