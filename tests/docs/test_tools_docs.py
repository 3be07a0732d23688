"""`docs/tools.md` and `docs/tools.png` say and show what the code does, and leave no tool out."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from PIL import Image

from tests.support.tables import each
from viewbox.tools import TOOLS

DOCS = Path(__file__).resolve().parents[2] / "docs"
tools_page = SimpleNamespace(**runpy.run_path(str(DOCS / "tools_page.py")))
OURS = [one for members in tools_page.group_by_family().values() for one in members]
VISUAL = [
    "zoom", "crop", "rotate", "flip_horizontal", "flip_vertical", "adjust_contrast", "adjust_brightness",
    "adjust_sharpness", "threshold", "window_level", "equalize_histogram", "adaptive_equalize", "detect_edges",
    "denoise", "morphological", "symmetry_diff", "invert", "get_intensity_stats", "intensity_profile", "measure",
    "annotate_region", "show_grid", "reset",
]  # fmt: skip


def test_the_page_is_what_the_code_prints():
    assert (DOCS / "tools.md").read_text() == tools_page.format_markdown(), "write it again: python docs/tools_page.py"
    assert f"shows the {len(OURS)} tools" in (DOCS.parent / "README.md").read_text()


def test_every_tool_is_there_and_every_module_is_a_family_with_a_sentence():
    for name in [*VISUAL, "undo", "open_image"]:
        assert name in {one.name for one in OURS}
        assert f"### `{name}`" in tools_page.format_markdown()
    families = {tools_page.name_family(one) for one in TOOLS.values() if one in OURS}
    assert families <= set(tools_page.ORDER)
    assert all(tools_page.describe_family(family).endswith(".") for family in families)


@each("one", OURS)
def test_every_argument_is_listed_with_what_it_takes_and_nothing_hidden_is_spoken_of(one):
    part = tools_page.format_markdown().split(f"### `{one.name}`\n")[1].split("\n#")[0]
    assert one.description in part
    for name, spec in one.parameters.items():
        assert f"- `{name}` ({tools_page.describe_values(spec)}; " in part
    assert not any(f"`{name}`" in part for name in one.hidden)


def test_every_visual_tool_is_on_the_sheet_and_works_there_and_one_that_changes_the_view_shows_another_picture():
    cells = tools_page.build_cells(tools_page.get_example_path())
    assert set(VISUAL) <= {cell.name for cell in cells}
    assert [cell.name for cell in cells if cell.text.startswith("error")] == []
    found = {cell.name: cell.picture for cell in cells if cell.picture is not None}
    whole = found.pop("the image")
    same = {name for name, picture in found.items() if picture.tobytes() == whole.tobytes()}
    assert same == {"undo", "reset", "open_image"}


def test_the_picture_in_the_documentation_is_the_sheet_of_today():
    drawn, kept = tools_page.draw_sheet(tools_page.get_example_path()), Image.open(DOCS / "tools.png")
    assert kept.size == drawn.size, "draw it again: python docs/tools_page.py"
    # letters are drawn a little differently by other versions of a font renderer
    difference = np.abs(np.asarray(kept.convert("L"), dtype=float) - np.asarray(drawn.convert("L")))
    assert difference.mean() < 1, "draw it again: python docs/tools_page.py"
