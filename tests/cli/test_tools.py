"""`viewbox tools`: the reference, a chain of tools from the shell, and how each ends."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from viewbox import tools
from viewbox.cli import tools as trial
from viewbox.errors import ConfigError

PIXELS = np.random.default_rng(0).integers(0, 256, (100, 200), dtype=np.uint8)


@pytest.fixture
def scan(tmp_path):
    Image.fromarray(PIXELS).save(tmp_path / "scan.png")
    return tmp_path / "scan.png"


def test_without_a_command_the_page_of_the_documentation_is_printed(viewbox):
    page = Path(tools.__file__).parents[1] / "docs"
    assert viewbox("tools") == (0, (page / "tools.md").read_text(), "")
    assert viewbox("config") == (0, (page / "configuration.md").read_text(), "")


def test_a_chain_prints_what_a_model_reads_and_writes_what_it_sees(viewbox, scan, tmp_path):
    out = tmp_path / "out.png"
    status, said, _ = viewbox("tools", "try", scan, "zoom", "factor=2", "crop", "box=0,0,0.5,1", "--out", out)
    steps = tools.apply_tools(scan, [("zoom", {"factor": 2}), ("crop", {"box": [0, 0, 0.5, 1]})])
    assert status == 0
    assert said.splitlines() == [steps[0][1].text, steps[1][1].text, str(out)]
    assert (np.asarray(Image.open(out)) == np.asarray(steps[1][1].image.open())).all()


def test_the_budget_and_the_coordinates_may_be_chosen(viewbox, scan, tmp_path):
    out = tmp_path / "out.png"
    options = ("--out", out, "--max-pixels", 5000, "--coordinates", "pixel")
    _, said, _ = viewbox("tools", "try", scan, "crop", "box=0,0,50,50", *options)
    assert "shows: [0, 0, 50, 50]" in said
    assert Image.open(out).size == (70, 70)
    # without a call the image is shown as it is first seen, and a chain that only reads writes the overview
    status, said, err = viewbox("tools", "try", scan, "--out", out, "--max-pixels", 5000)
    shown = f"the image (size: [100, 50], original_size: [200, 100], values: uint8, range: [0, {PIXELS.max()}])"
    assert (status, err, said.splitlines()) == (0, "", [shown, str(out)])
    assert Image.open(out).size == (100, 50)
    assert viewbox("tools", "try", scan, "get_intensity_stats", "--out", out)[0] == 0
    assert (np.asarray(Image.open(out)) == PIXELS).all()


def test_a_call_that_fails_is_told_as_to_a_model_and_ends_with_2(viewbox, scan, tmp_path):
    out = tmp_path / "out.png"
    status, said, err = viewbox("tools", "try", scan, "zoom", "zoom", "factor=9", "zoom", "--out", out)
    assert (status, err) == (2, "")
    assert said.splitlines()[1:] == ["error: zoom: factor = 9: out of range; allowed: 0.5 to 4"]
    assert not out.exists()


WRONG = [
    ("scan.png zom factor=2", "did you mean 'zoom'"), ("scan.png zoom 2", "unknown tool '2'"),
    ("scan.png factor=2 zoom", "factor=2: an argument before any tool"), ("scan.png crop box=[0,0", "'box=[0,0'"),
    ("scan.png zoom factor=2 factor=3", "factor is given twice to zoom"), ("notes.png zoom", "notes.png"),
    ("nowhere.png zoom", "nowhere.png"),
    *((f"scan.png zoom --out {name}", "error: --out ") for name in ("out.what", "scan.png/out.png", "out.dcm"))
]  # fmt: skip


def test_what_is_no_chain_no_image_or_cannot_be_written_ends_with_2_in_one_line(viewbox, scan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.png").write_text("not a picture")
    for words, problem in WRONG:
        status, out, err = viewbox("tools", "try", *words.split())
        assert (status, err[:7], problem in err) == (2, "error: ", True), err
        assert "--out" in words or (out, err.count("\n")) == ("", 1), err


VALUES = [
    ("zoom factor=2", 2), ("zoom factor=2.5", 2.5), ("rotate clockwise=false", False),
    ("crop box=[0,0,1,1]", [0, 0, 1, 1]), ("crop box=0,0,1,1", [0, 0, 1, 1]), ("annotate_region label=1,5", "1,5"),
    ("zoom factor=two", "two"), ("zoom factor=1e-1", 0.1), ("zoom factor=", ""),
    ("crop box=.1,.1,1,1", [0.1, 0.1, 1, 1])
]  # fmt: skip


def test_values_are_yaml_lists_or_text_and_a_chain_may_be_empty():
    for words, value in VALUES:
        ((_, arguments),) = trial.parse_calls(words.split())
        assert list(arguments.values()) == [value]
    assert trial.parse_calls([]) == []
    with pytest.raises(ConfigError):
        trial.parse_calls(["=3"])
