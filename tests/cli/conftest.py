"""Fixtures with saved episodes, for the tests of commands."""

from tests.support.saved_episodes import dots, run  # noqa: F401  (fixtures)
