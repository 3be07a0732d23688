"""Fixtures with tiny models, with saved episodes, and a hub."""

from tests.support.hf_hub import hf  # noqa: F401  (a fixture)
from tests.support.model_fixtures import *  # noqa: F403
from tests.support.saved_episodes import dots, run, store  # noqa: F401  (fixtures)
