"""What a model is told of a tool, an answer and an environment is the same where Python has left docstrings out."""

import json
import subprocess
import sys
from pathlib import Path

import viewbox

AUTHORS = '''
import enum, functools, json, sys
import viewbox
from pydantic import BaseModel
from viewbox.tools import Tool
from viewbox.utils.docstrings import read_docstring

class Side(enum.Enum):
    """Of the patient, not of the picture."""
    left = "left"

class Finding(BaseModel):
    """One for each place."""
    side: Side

class Read(BaseModel):
    """All that is seen."""
    best: Finding
    others: list[Finding] = []

def keep(function):
    @functools.wraps(function)
    def inner(*given, **named):
        return function(*given, **named)
    return inner

@keep
def look(name: str) -> str:
    """Look
    again.

    name: of what
    """
    return name

async def wait(seconds: int) -> str:
    """Wait."""

class Ask:
    """Not this one."""
    def __call__(self, question: str) -> str:
        """Ask a colleague."""

def bare(word: str) -> str:
    return word

def make():
    def inner(word: str) -> str:
        """Within."""
    return inner

def said(word: str) -> str: ...
said.__doc__ = "By hand."

given = Tool.from_function(bare, name="given", description="Given.")
tools = [look, wait, make(), said, bare, Tool.from_function(Ask(), name="ask"), given]
for one in tools:
    one = one if isinstance(one, Tool) else Tool.from_function(one)
    print(json.dumps(one.build_schema()))

class Own(viewbox.BaseMultiTurnEnv):
    """Mine."""
    name, answer = "own", Read
    tasks = [viewbox.Task("a")]
    def images(self, task):
        return ()

envs = [Own(reward=lambda answer, reference: 1.0), *map(viewbox.make, ("digits", "grounding", "software_adviser"))]
for env in envs:
    print(read_docstring(type(env)), env.answer_format.text, env.answer_format.schema, env.tool_schemas)
    if env.name != "grounding":
        print([message.text for message in env.reset(env.tasks[0], seed=0).messages])
'''
OWN = ["Look again.", "Wait.", "Within.", "By hand.", "", "Ask a colleague.", "Given."]


def test_a_prompt_is_the_same_without_docstrings(tmp_path):
    (tmp_path / "own.py").write_text(AUTHORS)
    env = {"PYTHONPATH": str(Path(viewbox.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
    options = {"cwd": tmp_path, "env": env, "capture_output": True, "check": True}
    lines = [[sys.executable, *flags, "own.py"] for flags in ((), ("-O",), ("-OO",))]
    said = [subprocess.run(line, **options).stdout for line in lines]
    assert said[0] == said[1] == said[2]
    lines = said[0].decode().splitlines()
    assert [json.loads(line)["function"]["description"] for line in lines[: len(OWN)]] == OWN
    assert b"One for each place." in said[0]


def test_a_docstring_that_cannot_be_read_is_not_left_out_without_a_word():
    code = 'from viewbox.tools import tool\n@tool\ndef look(name: str) -> str:\n    """Look."""'
    env = {"PYTHONPATH": str(Path(viewbox.__file__).parents[1])}
    ended = subprocess.run([sys.executable, "-OO", "-c", code], env=env, capture_output=True, text=True, check=False)
    assert "look: python -OO has taken its docstring out, and its source cannot be read" in ended.stderr
