"""What README.md shows works as printed, and commands of all pages have the options that the pages use."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from PIL import Image

import viewbox
from tests.support.clean_python import run_python

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def run_block(words, folder):
    """What the first Python block of the README with these words prints."""
    return run_python("-c", next(block for block in blocks("python") if words in block), cwd=folder)


def test_the_authors_environment_runs_as_printed(tmp_path):
    assert run_block("class Dots", tmp_path).strip() == "answered 1.0"


@pytest.fixture
def saved(tmp_path):
    """A folder in which `runs/quickstart-seed0` holds an episode of step 90, as the README has it."""
    env = viewbox.make("digits")
    episode = env.play(env.tasks[0], lambda messages: '{"label": "one", "bbox": [0, 0, 1, 1]}')
    with viewbox.EpisodeWriter(tmp_path / "runs" / "quickstart-seed0" / "episodes") as writer:
        writer.append(replace(episode, info={**episode.info, "step": 90}))
    return tmp_path


def test_the_analysts_example_reads_saved_episodes(saved):
    assert run_block("viewbox.load", saved).startswith("digits-train-0 ")


COMMANDS = re.findall(
    r"^viewbox ((?:score|reward try|view runs/quickstart-seed0) .*)", README.replace("\\\n", " "), re.M
)
PRINTED = {"score": ("1 episodes of 1 tasks", "label", "box"), "view": ("report.html",),
           "reward try": ("label: 'six' is 'six'", "box", "combined: ")}  # fmt: skip


@pytest.mark.parametrize("command", [shlex.split(one, comments=True) for one in COMMANDS], ids=COMMANDS)
def test_the_analysts_commands_run_as_printed(command, saved, monkeypatch, capsys):
    from viewbox.cli.app import app

    monkeypatch.chdir(saved)
    (saved / "strict.yaml").write_text(next(block for block in blocks("yaml") if "threshold" in block))
    (saved / "my_rewards.py").write_text("def closeness(answer, reference):\n    return 0.5\n")
    app(command, standalone_mode=False)
    shown = capsys.readouterr().out
    expected = PRINTED[" ".join(command[: 2 if command[0] == "reward" else 1])]
    assert all(word in shown for word in expected), shown


def test_the_picture_of_an_episode_is_drawn_with_its_boxes(saved, monkeypatch):
    run = str(saved / "runs" / "quickstart-seed0")
    monkeypatch.setattr(sys, "argv", ["episode_sheet.py", run, "1", str(saved / "a.png")])
    runpy.run_path(str(ROOT / "docs" / "episode_sheet.py"), run_name="__main__")
    drawn = {color for _, color in Image.open(saved / "a.png").getcolors(2**24)}
    assert (0, 220, 0) in drawn
    assert (255, 40, 40) not in drawn  # it has no answer


PAGES = {path: path.read_text() for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))}


def list_commands(text: str) -> set[tuple[str, str]]:
    """(command, rest of the line) of every `viewbox …` in code: a fenced or an indented block, or between backticks."""
    text = text.replace("\\\n", " ")
    fenced = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.S | re.M))
    prose = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    indented = "\n".join(re.findall(r"^ {4}(.*)", prose, re.M))
    inline = "\n".join(" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose))
    return set(re.findall(r"^(?:\$ )?viewbox ([a-z]+)\b ?([^#>\n]*)", "\n".join((fenced, indented, inline)), re.M))


WITH_COMMANDS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")]
USED = sorted((page.name, *line) for page in WITH_COMMANDS for line in list_commands(PAGES[page]))


def list_options(name: str, rest: str) -> tuple[set[str], str]:
    """The options of a command, and what follows its words: `viewbox reward try …`, `viewbox runs FOLDER`."""
    from viewbox.cli.command_builder import CommandGroup, build_command
    from viewbox.cli.commands import COMMANDS

    row = COMMANDS[name]
    if name == "train":  # which parses its own arguments
        return set(re.findall(r'"(--[\w-]+)"', (ROOT / "training" / "command.py").read_text())), rest
    if isinstance(row, CommandGroup):
        inner, _, others = rest.partition(" ")
        row, rest = (row.commands[inner], others) if inner in row.commands else (row.commands[row.default], rest)
    return {option for one in build_command(row, name).params for option in (*one.opts, *one.secondary_opts)}, rest


def test_every_option_that_a_page_uses_exists():
    assert len(USED) > 100
    for page, name, words in USED:
        known, rest = list_options(name, words)
        assert set(re.findall(r"(?<!\S)--[\w-]+", rest)) <= known, (page, name, words)


def test_every_file_that_a_page_links_to_or_the_readme_names_exists_and_the_makefile_has_the_two_commands():
    links = [(page, link) for page, text in PAGES.items() for link in re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", text)]
    assert len(links) > 100
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []
    for path in set(re.findall(r"(?:configs|docs)/[\w.]+\.\w+", README)):
        assert (ROOT / path).is_file(), path
    for target in ("quickstart", "test"):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)
