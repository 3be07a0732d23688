"""Every example runs as its docstring says."""

from pathlib import Path

import pytest

from tests.support.clean_python import run_python
from tests.support.servers import make_completion, make_script, serve

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name, *arguments):
    return run_python(EXAMPLES / f"{name}.py", *arguments).splitlines()


def test_an_own_tool_is_called_and_its_numbers_are_read():
    measured, end = run("own_tool")
    assert measured.startswith("[data ") or "left" in measured
    assert end == "answered 1.0"


def test_a_text_answer_is_compared_word_by_word():
    whole, part = run("text_answer")
    assert whole == "1.00  A white circle on a black background."
    assert 0 < float(part.split()[0]) < 1


def test_a_judge_is_asked_for_a_score():
    with serve(make_script(make_completion('{"reason": "same", "score": 0.75}'))) as server:
        (line,) = run("llm_judge", server.url, "judge")
    assert line == "{'label': 1.0, 'report': 0.75}"
    assert "9 mm" in str(server.bodies[0]["messages"])


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_every_example_is_short_and_tested(path):
    if path.name not in ("snapshot.py", "specialist_server.py"):  # test_snapshot.py, test_specialist_server.py
        assert len(path.read_text().splitlines()) < 60
        assert f'run("{path.stem}"' in Path(__file__).read_text()
