"""The `viewbox` command: what it prints, and how it ends where something given is wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import viewbox as viewbox_package
from viewbox.cli.app import COMMANDS
from viewbox.cli.commands import Group, build_command, read_summary


def test_the_installed_command_lists_the_environments_with_their_first_line():
    command = Path(sys.executable).with_name("viewbox")
    said = subprocess.run([command, "config", "envs"], capture_output=True, text=True, check=True).stdout
    assert "digits: A real handwritten digit on a large noisy canvas" in said


def test_without_a_command_the_help_names_every_command(viewbox):
    said = viewbox()[1:]
    assert all(name in "".join(said) for name in COMMANDS)


def test_the_help_is_fast_it_loads_neither_numpy_nor_torch():
    code = "import sys\nfrom viewbox.cli import app\ntry: app.main()\nexcept SystemExit: pass\n"
    code += "print({'numpy', 'torch', 'PIL', 'scipy', 'pydantic'} & set(sys.modules))"
    line = [sys.executable, "-c", code, "--help"]
    assert subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines()[-1] == "set()"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--version"], 0, f"viewbox {viewbox_package.__version__}"),
        (["scor"], 2, "No such command 'scor' (did you mean 'score'?)."),
        (["xyzzy"], 2, "No such command 'xyzzy'."),
    ],
)
def test_the_module_is_the_command_says_its_version_and_suggests_the_nearest_command(arguments, status, said):
    line = [sys.executable, "-m", "viewbox", *arguments]
    ended = subprocess.run(line, capture_output=True, text=True, check=False)
    assert ended.returncode == status
    assert said in ended.stdout + ended.stderr


def list_rows(table=COMMANDS, words=()):
    """(words of the command, its row)."""
    for name, row in table.items():
        yield from list_rows(row.commands, (*words, name)) if isinstance(row, Group) else [((*words, name), row)]


ROWS = [(" ".join(words), row) for words, row in list_rows() if words != ("train",)]


HELP = """
from typer.testing import CliRunner
from viewbox.cli.app import app
import sys
for words in [[], *(line.split() for line in sys.argv[1:])]:
    print(CliRunner().invoke(app, [*words, "--help"]).stdout)
"""


def test_the_help_is_the_same_without_docstrings():
    commands = [" ".join(words) for words, _ in list_rows()]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    lines = [[sys.executable, *flags, "-c", HELP, *commands] for flags in ((), ("-OO",))]
    said = [subprocess.run(line, capture_output=True, text=True, check=True, env=env).stdout for line in lines]
    assert said[0] == said[1]
    assert said[0].lower().count("usage: ") == len(commands) + 1


def test_what_needs_transformers_says_so_without_docstrings():
    words = ("train", "quickstart", "--dry-run"), ("rollout", "--config", "quickstart", "--tasks", "2")
    code = "import sys; from viewbox.cli.app import main; sys.argv = ['viewbox', *sys.argv[1:]]; main()"
    for given in words:
        ended = subprocess.run([sys.executable, "-OO", "-c", code, *given], capture_output=True, text=True)
        assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
        assert "transformers reads; allowed: python, or python -O" in ended.stderr


def test_there_are_at_most_nineteen_commands():
    assert len(COMMANDS) <= 19


def test_every_command_explains_itself_its_options_and_an_example():
    for command, row in ROWS:
        built = build_command(row, command)
        first, *_, last = built.help.split("\n\n")
        assert " ".join(first.split()) == read_summary(row)  # what the list of commands says
        assert last.startswith(f"Example: `viewbox {command.removesuffix(' list')}")
        for parameter in built.params:
            text = parameter.help or ""
            assert text[:1].isupper(), (command, parameter.name)
            assert text.endswith("."), (command, parameter.name)


def test_the_help_is_printed(viewbox):
    for words in ("score", "runs", "data show"):
        status, out, _ = viewbox(*words.split(), "--help")
        assert status == 0
        assert f"Example: viewbox {words}" in " ".join(out.split())


def test_the_help_of_train_is_that_of_training(viewbox):
    status, out, _ = viewbox("train", "--help")
    assert status == 0
    assert "key.path=value" in out
    assert "--dry-run" in out
    assert all(f"  {section}: " in out for section in ("model", "env", "reward", "rollout", "train", "lora", "log"))


@pytest.mark.slow
def test_overrides_and_options_reach_training(viewbox, tiny_folder):
    status, out, _ = viewbox(
        "train",
        "quickstart",
        "--dry-run",
        "--json",
        f"model.name={tiny_folder}",
        "rollout.slots=3",
        "env.num_tasks=500",
    )
    assert status == 0
    assert '"slots": 3' in out
