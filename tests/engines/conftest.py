"""Fixtures with tiny models."""

from tests.support.model_fixtures import *  # noqa: F403
