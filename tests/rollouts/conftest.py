"""Fixtures with real tiny models, for the tests of rollouts."""

from tests.support.tiny_models import (  # noqa: F401  (fixtures)
    corpus,
    kit,
    kits,
    look,
    mismatch_of,
    mixed,
    plain_logps,
    play,
    played,
    qwen3,
    strips,
    words,
)
