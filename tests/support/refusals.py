"""Mistakes of settings: the key that is named, and words of the message."""

import pytest

from viewbox.errors import ConfigError


def check_refusal(make, key, *words):
    """Check that `make` is refused with this key and these words; returns the message."""
    with pytest.raises(ConfigError) as caught:
        make()
    said = str(caught.value)
    assert caught.value.key == key, said
    assert [one for one in words if one not in said] == [], said
    return said
