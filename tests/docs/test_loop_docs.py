"""`docs/loop.md` names tests that exist; `docs/authoring.md` prints what its code does."""

import ast
import re
import runpy
from pathlib import Path
from typing import get_args

import pytest

from viewbox.records import EndReason

ROOT = Path(__file__).resolve().parents[2]
LOOP = (ROOT / "docs" / "loop.md").read_text()
GUIDE = (ROOT / "docs" / "authoring.md").read_text()
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", LOOP)))
ROWS = [line for line in LOOP.split("## Rules")[1].splitlines() if line.startswith("|")]


def functions_in(path):
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_rule_has_its_test_which_exists_and_every_end_is_in_the_page():
    for file, test in NAMED:
        assert test in functions_in(ROOT / "tests" / file)
    rules = [row for row in ROWS if not row.startswith(("| rule |", "| --- |"))]
    assert len(rules) > 60
    assert [row for row in rules if not re.search(r"\| `[\w/]+\.py::test_\w+`", row)] == []
    for reason in get_args(EndReason):
        assert f"`{reason}`" in LOOP.split("## Settings")[0]


# ---- the author's guide

BLOCKS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", GUIDE, re.S)
HEARTS = BLOCKS[0][0]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a program in a folder that holds the guide's first environment as `hearts.py`; returns its output."""

    def run(code):
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        (tmp_path / "hearts.py").write_text(HEARTS)
        (tmp_path / "block.py").write_text(code)
        runpy.run_path("block.py", run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize(("code", "printed"), BLOCKS, ids=[code.split("class ")[-1][:12] for code, _ in BLOCKS])
def test_every_program_of_the_guide_prints_what_is_shown(run, code, printed):
    assert run(code) == printed


def test_no_program_of_the_guide_is_left_out_and_its_environment_is_under_sixty_lines_of_code():
    assert GUIDE.count("```python") == len(BLOCKS) == GUIDE.count("```text")
    assert len([line for line in HEARTS.splitlines() if line.strip()]) < 60


def test_the_guides_environment_is_found_by_its_name_takes_settings_and_its_right_answers_are_right(run):
    code = """
import json, viewbox
from hearts import Hearts
print(len(viewbox.make("hearts:Hearts", num_tasks=50).tasks))
for coordinates in ("unit", "per_mille", "pixel"):
    env = Hearts(coordinates=coordinates)
    answers = [(env.read_answer(json.dumps(env.gold_answer(task)), task), task) for task in env.tasks[:20]]
    print(min(env.reward(answer, task.reference) for answer, task in answers))
"""
    count, *scores = map(float, run(code).splitlines())
    assert (count, len(scores)) == (50, 3)
    assert min(scores) >= 0.95
