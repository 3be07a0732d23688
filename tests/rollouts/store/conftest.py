"""A fixture with saved episodes."""

from tests.support.saved_episodes import store  # noqa: F401  (a fixture)
