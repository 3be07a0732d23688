"""`docs/rewards.md` and its pictures say and show what the code does, and leave no reward out."""

import doctest
import re
import runpy
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from viewbox.rewards import build, declare
from viewbox.rewards.declare import list_reward_types

DOCS = Path(__file__).resolve().parents[2] / "docs"
SHEET = runpy.run_path(str(DOCS / "reward_sheet.py"))
PAGE = (DOCS / "rewards.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.S)
EXAMPLES = [code for language, code in BLOCKS if language == "python" and ">>>" in code]
YAMLS = [code for language, code in BLOCKS if language == "yaml"]
TYPES = list_reward_types()


def test_every_number_of_the_page_is_what_the_code_gives(monkeypatch):
    monkeypatch.setattr(declare, "REWARD_TYPES", {**declare.REWARD_TYPES})  # the page registers one
    test = doctest.DocTestParser().get_doctest("\n".join(EXAMPLES), {}, "rewards.md", "rewards.md", 0)
    found = doctest.DocTestRunner().run(test)
    assert found.attempted > 20
    assert found.failed == 0


@pytest.mark.parametrize("text", YAMLS, ids=[text.split("\n")[0] for text in YAMLS])
def test_every_yaml_of_the_page_is_a_reward(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUDGE_KEY", "none")
    (tmp_path / "my_rewards.py").write_text("def brief(answer, reference):\n    return 1.0\n")
    assert build(yaml.safe_load(text)).components


def test_what_the_command_prints_is_shown(viewbox, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reward.yaml").write_text(YAMLS[0])
    shown = next(code for language, code in BLOCKS if language == "text" and code.startswith("$ viewbox reward try"))
    command, printed = re.fullmatch(r"\$ viewbox (.*?[^\\])\n(.*)", shown, re.S).groups()
    assert viewbox(*shlex.split(command.replace("\\\n", " "))) == (0, printed, "")


def test_every_type_of_reward_is_in_the_page_and_every_formula_is_on_the_sheet_and_applies_there():
    for kind in TYPES:
        assert f"`{kind}`" in PAGE or f"type:\n{kind}" in PAGE or f"type: {kind}" in PAGE
    scores = {example.title: example.score for example in SHEET["build_examples"]()}
    assert scores.keys() >= set(TYPES) - {"judge", "python"}
    assert None not in scores.values()


def test_the_picture_in_the_documentation_is_the_sheet_of_today():
    drawn, kept = SHEET["draw_sheet"](), Image.open(DOCS / "rewards.png")
    assert kept.size == drawn.size, "draw it again: python docs/reward_sheet.py"
    # letters are drawn a little differently by other versions of a font renderer
    difference = np.abs(np.asarray(kept.convert("L"), dtype=float) - np.asarray(drawn.convert("L")))
    assert difference.mean() < 1, "draw it again: python docs/reward_sheet.py"


def test_every_file_that_the_page_names_exists():
    names = re.findall(r"`(\w+/[\w/]+\.(?:py|yaml))`", PAGE)
    assert [name for name in names if not (DOCS.parent / name).exists()] == []
