"""What README.md shows works as printed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import viewbox

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def test_the_authors_environment_runs_as_printed(tmp_path):
    code = next(block for block in blocks("python") if "class Dots" in block)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout.strip() == "answered 1.0", done.stderr


@pytest.fixture
def saved(tmp_path):
    """A folder in which `runs/quickstart-seed0` holds an episode, as the README has it."""
    env = viewbox.make("digits")
    with viewbox.EpisodeWriter(tmp_path / "runs" / "quickstart-seed0" / "episodes") as writer:
        writer.append(env.play(env.tasks[0], lambda messages: '{"label": "one", "bbox": [0, 0, 1, 1]}'))
    return tmp_path


def test_the_analysts_example_reads_saved_episodes(saved):
    code = next(block for block in blocks("python") if "viewbox.load" in block)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=saved, check=False)
    assert done.stdout.startswith("digits-train-0 "), done.stderr


def test_the_analysts_reward_scores_them(saved, monkeypatch, capsys):
    from viewbox.cli.app import app

    monkeypatch.chdir(saved)
    (saved / "strict.yaml").write_text(next(block for block in blocks("yaml") if "threshold" in block))
    (command,) = re.findall(r"^viewbox (score .*?) --where", README, re.M)
    app(command.split(), standalone_mode=False)
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("label", "box", "strict")), shown


@pytest.mark.parametrize("line", re.findall(r"^viewbox (\w+) ([^#\n]*)", README.replace("\\\n", " "), re.M))
def test_every_option_the_readme_uses_exists(line):
    from viewbox.cli.app import LazyGroup

    name, rest = line
    command = LazyGroup().get_command(None, name)
    while hasattr(command, "commands"):  # `viewbox reward try …`
        name, _, rest = rest.partition(" ")
        command = command.commands[name]
    known = {option for one in command.params for option in one.opts}
    if name == "train":  # which parses its own arguments
        known = set(re.findall(r'"(--[\w-]+)"', (ROOT / "train.py").read_text()))
    assert set(re.findall(r"(?<!\S)--[\w-]+", rest)) <= known


@pytest.mark.parametrize("path", sorted(set(re.findall(r"(?:configs|docs)/[\w.]+\.\w+", README))))
def test_every_file_the_readme_names_exists(path):
    assert (ROOT / path).is_file()


@pytest.mark.parametrize("target", ["quickstart", "test"])
def test_the_makefile_has_the_two_commands(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)
