"""Fills templates of files: `templates/new` are those of `viewbox new`, `templates/package` those of a package.

In them, `@name@` stands for the field `name`.
"""

import re
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).with_name("templates")
CARD = "<!-- written by viewbox publish -->"  # before the generated part of a README; the rest is the author's


def fill(template: str, fields: Mapping[str, str]) -> str:
    """Fill a template, named by its path without `.txt`."""
    text = (FOLDER / f"{template}.txt").read_text(encoding="utf-8")
    return re.sub(r"@(\w+)@", lambda found: fields[found[1]], text)
