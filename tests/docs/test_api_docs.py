"""docs/api.md is what the docstrings say, and every public name is on it."""

import re
import runpy
from pathlib import Path

import viewbox

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "api.md"
SCRIPT = runpy.run_path(str(DOCS / "api_page.py"))
SECTIONS, build_page = SCRIPT["SECTIONS"], SCRIPT["build_page"]


def test_the_page_is_what_the_code_prints():
    assert PAGE.read_text() == build_page(), "run: python docs/api_page.py > docs/api.md"


def test_every_public_name_is_described_once():
    listed = [name for names in SECTIONS.values() for name in names if ":" not in name]
    assert len(listed) == len(set(listed))
    assert set(viewbox.__all__) - {"__version__"} == set(listed)


def test_what_an_author_writes_is_there():
    page = build_page()
    for name in ("tasks", "demonstration", "oracle", "metrics", "restricted", "Source", "Turn", "EpisodeWriter"):
        assert re.search(rf"[`*|] ?`?{name}\b", page), name
    assert "Args:" not in page
