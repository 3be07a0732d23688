"""docs/api.md is what the docstrings say, and every public name is on it."""

import re
from pathlib import Path

import viewbox
from viewbox.cli.docs.api_page import SECTIONS, build_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"


def test_the_page_is_what_the_code_prints():
    assert PAGE.read_text() == build_page(), "run: python -m viewbox.cli.docs.api_page > docs/api.md"


def test_every_public_name_is_described_once():
    listed = [name for names in SECTIONS.values() for name in names if ":" not in name]
    assert len(listed) == len(set(listed))
    assert set(viewbox.__all__) - {"__version__"} == set(listed)


def test_what_an_author_writes_is_there():
    page = build_page()
    for name in ("tasks", "demonstration", "oracle", "metrics", "restricted", "Source", "Turn", "EpisodeWriter"):
        assert re.search(rf"[`*|] ?`?{name}\b", page), name
    assert "Args:" not in page
