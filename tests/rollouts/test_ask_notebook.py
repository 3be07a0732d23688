"""A session in the kernel of a notebook, which has an event loop of its own."""

import os
import sys
from pathlib import Path

import pytest

import viewbox

nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

CELLS = (
    """
import numpy as np, viewbox
film = np.random.default_rng(0).integers(0, 255, (60, 70)).astype(np.uint8)
model = viewbox.ScriptedPolicy([
    '<tool_call>{"name": "zoom", "arguments": {"factor": 2}}</tool_call>',
    '{"ask": "Left or right?"}', '{"answer": "an effusion", "bbox": [0.1, 0.1, 0.5, 0.5]}', '{"answer": "or a scar"}',
])
session = viewbox.open_session("chest_xray", model)
session.ask("An effusion?", film)
""",
    'session.ask("left")',
    'session.ask("alternatives?")',
    """
task = viewbox.Task(images=film, prompt={"question": "?"})
print(viewbox.make("vqa").play(task, lambda messages: '{"answer": "yes"}').answer)
print(await viewbox.ask_async("vqa", film, "?", lambda messages: '{"answer": "no"}'))
session.close()
""",
)


def test_a_conversation_in_a_notebook_shows_pictures_boxes_and_answers(monkeypatch):
    folder = str(Path(viewbox.__file__).parent.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "1")
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    kernel = {"kernelspec": {"name": "python3", "display_name": sys.executable, "language": "python"}}
    book = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    nbclient.NotebookClient(book, timeout=120).execute()
    shown = [cell.outputs[-1].get("data", {}).get("text/html", "") for cell in book.cells[:3]]
    assert ["Left or right?" in page for page in shown] == [True, False, False]
    assert "an effusion" in shown[1]
    assert "width:40.00%" in shown[1]
    assert "or a scar" in shown[2]
    assert all("data:image/png" in page for page in shown)
    assert "{'answer': 'yes'}\nno" in book.cells[3].outputs[0]["text"]
