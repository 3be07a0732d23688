"""Fixtures with saved episodes, for the tests of scoring."""

from tests.support.saved_episodes import dots, run, store  # noqa: F401  (fixtures)
