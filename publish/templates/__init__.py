"""Fills templates of files: those of `viewbox new`, of a published `package`, and of the folder for `openenv`.

In them, `@name@` stands for the field `name`.
"""

import re
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent
CARD = "<!-- written by viewbox publish -->"  # before the generated part of a README; the rest is the author's


def read_template(template: str) -> str:
    """Return a template, named by its path without `.txt`."""
    return (FOLDER / f"{template}.txt").read_text(encoding="utf-8")


def fill(template: str, fields: Mapping[str, str]) -> str:
    """Fill a template."""
    return re.sub(r"@(\w+)@", lambda found: fields[found[1]], read_template(template))


def write_files(root: Path, kind: str, files: Mapping[str, str], fields: Mapping[str, str]) -> list[Path]:
    """Write files from templates of a kind, by their paths in `root`; return them sorted. "": an empty file."""
    for path, template in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(fill(f"{kind}/{template}", fields) if template else "", encoding="utf-8")
    return sorted(root / path for path in files)
