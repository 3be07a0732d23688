"""What README.md shows works as printed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def test_the_authors_environment_runs_as_printed(tmp_path):
    code = next(block for block in blocks("python") if "class Dots" in block)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout.strip() == "answered 1.0", done.stderr


def test_the_analysts_example_reads_saved_episodes(tmp_path):
    import viewbox

    env = viewbox.make("digits")
    folder = tmp_path / "episodes"
    with viewbox.Writer(folder) as writer:
        writer.append(env.play(env.tasks[0], lambda messages: '{"label": "one", "bbox": [0, 0, 900, 900]}'))
    code = next(block for block in blocks("python") if "viewbox.load" in block)
    code = code.replace("runs/quickstart-seed0/episodes", str(folder))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout.startswith("digits-train-0 "), done.stderr


@pytest.mark.parametrize("path", sorted(set(re.findall(r"(?:configs|docs)/[\w.]+\.\w+", README))))
def test_every_file_the_readme_names_exists(path):
    assert (ROOT / path).is_file()


@pytest.mark.parametrize("target", ["quickstart", "test"])
def test_the_makefile_has_the_two_commands(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)
