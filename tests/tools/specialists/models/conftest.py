"""Tiny models with a tokenizer, and no model left over from another test."""

import pytest

from tests.support.model_fixtures import corpus, kits, qwen3  # noqa: F401
from tests.support.served_models import forget_servers


@pytest.fixture(autouse=True)
def no_servers():
    forget_servers()
    yield
    forget_servers()
