"""The page of the Python interface, which `make docs` prints: every public name is on it."""

import re
import runpy
from pathlib import Path

import viewbox

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCRIPT = runpy.run_path(str(DOCS / "api_page.py"))
SECTIONS, build_page = SCRIPT["SECTIONS"], SCRIPT["build_page"]


def test_every_public_name_is_described_once():
    listed = [name for names in SECTIONS.values() for name in names if ":" not in name]
    assert len(listed) == len(set(listed))
    assert set(viewbox.__all__) - {"__version__"} == set(listed)


def test_what_an_author_writes_is_there():
    page = build_page()
    for name in ("tasks", "demonstration", "oracle", "metrics", "restricted", "Source", "Turn", "EpisodeWriter"):
        assert re.search(rf"[`*|] ?`?{name}\b", page), name
    assert "Args:" not in page
