"""Licenses by their SPDX names, which hubs and pip read."""

import re

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from ..errors import ConfigError

# Words of a license's title, and what they are in its name
WORDS = {"creative": "CC", "attribution": "BY", "noncommercial": "NC", "sharealike": "SA", "gnu": "", "general": "GPL"}
WORDS |= dict.fromkeys(("the", "license", "licence", "version", "public", "software", "commons", "international"), "")
ENDS = ("", ".0", "-Clause", ".0-only", "-only")


def read_license(text: str) -> str:
    """Return a license as SPDX writes it.

    >>> read_license("apache-2.0 OR mit")
    'Apache-2.0 OR MIT'
    >>> read_license("Apache License, Version 2.0")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: license = 'Apache License, Version 2.0'; allowed: an SPDX name such as Apache-2.0 or \
CC-BY-4.0, or LicenseRef-NAME for one of your own (did you mean 'Apache-2.0'?)
    """
    words = re.findall(r"[\w.]+", re.sub(r"(?i)v(?=[\d.])|-", " ", text))
    name = "-".join(filter(None, (WORDS.get(word.lower(), word) for word in words)))
    found = None
    for spelled in (text, *(name + end for end in ENDS)):
        try:
            found = found or canonicalize_license_expression(spelled)
        except InvalidLicenseExpression:
            continue
        if spelled is text:
            return found
    near = f" (did you mean {found!r}?)" if found else ""
    allowed = "an SPDX name such as Apache-2.0 or CC-BY-4.0, or LicenseRef-NAME for one of your own"
    raise ConfigError(f"license = {text!r:.100}; allowed: {allowed}{near}", key="license")
