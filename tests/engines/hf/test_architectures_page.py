"""docs/architectures.md has a row for each type of transformers, and says what its script finds."""

import re
import runpy
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "architectures.md"
QUICK = ("qwen2_vl", "mllama", "blip")  # played, refused for how it reads, refused for what its config lacks


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(PAGE.with_name("architectures_page.py")))


def read_rows():
    rows = re.findall(r"^\| `([^`]+)` \|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {kind: cells for kind, cells in rows if kind != "model_type"}


def forget_figures(cells):
    return re.sub(r"\d+e-\d+|by \d\.\d+", "", cells)


def test_each_type_has_a_row(script):
    assert list(read_rows()) == [one.model_type for one in script["list_types"]()]


def test_most_types_play(script):
    assert sum(cells.startswith(" exact") for cells in read_rows().values()) >= 60


@pytest.mark.parametrize("kind", QUICK)
def test_a_row_says_what_the_script_finds(kind, script):
    check_row(kind, script)


@pytest.mark.nightly
def test_all_rows_say_what_the_script_finds(script):
    for one in script["list_types"]():
        check_row(one.model_type, script)


def check_row(kind, script):
    (config_class,) = (one for one in script["list_types"]() if one.model_type == kind)
    written = script["try_type"](config_class).write().partition("` |")[2].removesuffix("|")
    assert forget_figures(read_rows()[kind]) == forget_figures(written), "python docs/architectures_page.py"
