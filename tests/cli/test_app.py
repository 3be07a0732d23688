"""The `viewbox` command: what it prints, and how it ends where something given is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import viewbox as viewbox_package
from tests.support.tables import each
from viewbox.cli.command_builder import CommandGroup, build_command, read_summary
from viewbox.cli.commands import COMMANDS

MODULE = [sys.executable, "-m", "viewbox"]


def run(*line, **more):
    return subprocess.run(line, capture_output=True, text=True, check=False, **more)


@pytest.mark.slow
@each("line, status, said", [
    ([Path(sys.executable).with_name("viewbox"), "config", "envs"], 0,  # the installed command
     "digits: A real handwritten digit on a large noisy canvas"),
    ([*MODULE, "--version"], 0, f"viewbox {viewbox_package.__version__}"),
    ([*MODULE, "scor"], 2, "No such command 'scor' (did you mean 'score'?)."),
    ([*MODULE, "xyzzy"], 2, "No such command 'xyzzy'."),
])  # fmt: skip
def test_the_module_is_the_command_says_its_version_and_suggests_the_nearest_command(line, status, said):
    ended = run(*line)
    assert ended.returncode == status
    assert said in ended.stdout + ended.stderr


def test_without_a_command_the_help_names_every_command(viewbox):
    said = viewbox()[1:]
    assert all(name in "".join(said) for name in COMMANDS)
    assert len(COMMANDS) <= 19


def test_the_help_is_fast_it_loads_neither_numpy_nor_torch():
    code = "import sys\nfrom viewbox.cli import app\ntry: app.main()\nexcept SystemExit: pass\n"
    code += "print({'numpy', 'torch', 'PIL', 'scipy', 'pydantic'} & set(sys.modules))"
    assert run(sys.executable, "-c", code, "--help").stdout.splitlines()[-1] == "set()"


def list_rows(table=COMMANDS, words=()):
    """(words of the command, its row)."""
    for name, row in table.items():
        yield from list_rows(row.commands, (*words, name)) if isinstance(row, CommandGroup) else [((*words, name), row)]


BARE = """
import json, sys
from viewbox.cli.app import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["viewbox", *words]
    try: main()
    except SystemExit as ended: print(ended.code)
"""


@pytest.mark.slow
def test_without_docstrings_every_help_is_whole_and_what_needs_transformers_says_so():
    played = ("train", "quickstart", "--dry-run"), ("rollout", "--config", "quickstart", "--tasks", "2")
    commands = [words for words, _ in list_rows()]
    ended = run(sys.executable, "-OO", "-c", BARE, json.dumps([*((*words, "--help") for words in commands), *played]))
    said = " ".join(ended.stdout.split())
    assert said.lower().count("usage: ") == len(commands)
    examples = {words: f"Example: viewbox {' '.join(words).removesuffix(' list')}" for words in commands}
    assert [words for words, example in examples.items() if example not in said] == [("train",)]
    assert ended.stderr.count("transformers reads; allowed: python, or python -O") == ended.stderr.count("\n") == 2


def test_every_command_explains_itself_and_its_options():
    for command, row in [(" ".join(words), row) for words, row in list_rows() if words != ("train",)]:
        built = build_command(row, command)
        first, *_ = built.help.split("\n\n")
        assert " ".join(first.split()) == read_summary(row)  # what the list of commands says
        for parameter in built.params:
            text = parameter.help or ""
            assert (text[:1].isupper(), text[-1:]) == (True, "."), (command, parameter.name)


def test_the_help_of_train_is_that_of_training(viewbox):
    status, out, _ = viewbox("train", "--help")
    sections = [f"  {name}: " for name in ("model", "env", "reward", "rollout", "train", "lora", "log")]
    assert status == 0
    assert all(words in out for words in ("key.path=value", "--dry-run", *sections))
