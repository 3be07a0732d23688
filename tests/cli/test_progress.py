"""What the person sees who watches `viewbox rollout`: the live table, the lines of a file, and what is left behind."""

import asyncio
import io

import pytest
from rich.console import Console

from tests.support.tables import each
from viewbox.cli.progress import Progress
from viewbox.engines.generator import Load
from viewbox.records import Episode, Scores, Task, Turn

LONG = "a_component_of_the_reward_with_a_very_long_name"


def episode(number=0, end="answered", **components):
    return Episode(Task(f"t{number}"), end_reason=end, scores=Scores(0.5, {"label": 1.0, **components}))


def drawn(progress, seconds=10.0, width=80):
    """What is shown live as text, line by line."""
    console = Console(width=width, file=io.StringIO(), record=True)
    progress.console = console
    console.print(progress.render_live(seconds))
    return console.export_text().splitlines()


def terminal(width=80):
    return Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)


async def watched(progress, episodes):
    """Shows the progress while episodes end: what had been written when the last one had."""
    with progress.show():
        await asyncio.sleep(0)
        for one in episodes:
            progress.add(one)
        await asyncio.sleep(0.6)
        return progress.console.file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_shows_speed_slots_reward_components_and_end_reasons(width):
    progress = Progress(40, heading="digits, m", get_load=lambda: Load(48, slots=64, waiting=3, tokens=8120))
    for number in range(9):
        progress.add(episode(number, "max_turns" if number == 0 else "answered", box=0.25))
    lines = drawn(progress, width=width)
    whole = "\n".join(lines)
    assert all(len(line) <= width for line in lines)
    assert lines[0].split() + lines[1].split() == ["digits,", "m", "9/40", "0:10", "0:34", "left"]
    for words in ("0.9 episodes/s", "812 tokens/s", "48 of 64 slots", "3 waiting", "0.50 reward"):
        assert words in whole
    for words in ("1.00 label", "0.25 box", "0.00 tool rate", "8 answered", "1 max_turns"):
        assert words in whole


def test_the_bar_fills_as_episodes_end():
    progress = Progress(4)
    empty = drawn(progress)
    progress.add(episode())
    progress.add(episode())
    half = drawn(progress)
    assert empty[1].startswith("0/4")
    assert half[1].startswith("2/4")
    assert empty[2].count("━") < half[2].count("━") or "╸" in half[2] or "╺" in half[2]


def test_a_component_keeps_its_number_and_is_the_mean_of_the_episodes_it_applies_to():
    progress = Progress(4)
    for value in (None, 0.5, 1.0):
        progress.add(episode(**{LONG: value}))
    lines = drawn(progress, width=60)
    assert any("0.75 a_comp" in line and "…" in line for line in lines)
    assert all(len(line) <= 60 for line in lines)


LINES = [  # episodes of this session and of an earlier one, the load of the generator; the line after two seconds
    (1, 0, None, 4, "1/4  reward 0.50  tool rate 0.00  0.5 episodes/s  0:06 left  answered 1"),
    (0, 1, None, 4, "1/4  reward 0.50  tool rate 0.00  0.0 episodes/s  answered 1"),  # for the means, not the speed
    (0, 0, Load(7), 4, "0/4  reward -  tool rate 0.00  0.0 episodes/s  7 requests"),  # of an endpoint
    (1, 0, Load(0, slots=8, tokens=10), 1, "1/1  reward 0.50  tool rate 0.00  0.5 episodes/s  5 tokens/s  answered 1"),
]


@each("new, earlier, load, total, line", LINES)
def test_the_line_has_the_means_the_speed_and_the_time_left(new, earlier, load, total, line):
    progress = Progress(total, get_load=load and (lambda: load))
    for number in range(new + earlier):
        progress.add(episode(), earlier=number < earlier)
    assert progress.render_line(2.0) == line
    assert load or "slots" not in "\n".join(drawn(progress))


def test_a_terminal_shows_the_table_while_it_plays_and_keeps_one_line():
    progress = Progress(2, terminal(), heading="digits, m")
    during = asyncio.run(watched(progress, [episode(), episode(1)]))
    assert "digits, m" in during
    assert "2 answered" in during
    after = progress.console.file.getvalue()[len(during) :]
    kept = after.rpartition("\x1b[2K")[2]  # what stands after the last line of the table was wiped
    assert kept.strip().startswith("2/2  reward 0.50")
    assert kept.endswith("answered 2\n")


def test_a_file_gets_plain_lines(monkeypatch):
    monkeypatch.setattr("viewbox.cli.progress.EVERY", 0.05)
    progress = Progress(2, Console(file=io.StringIO(), width=120), get_load=lambda: Load(1, slots=2, tokens=5))
    during = asyncio.run(watched(progress, [episode()]))
    lines = during.splitlines()
    assert len(lines) > 3
    assert all(line.startswith("1/2  reward 0.50") and "1 of 2 slots" in line for line in lines)
    assert "\x1b" not in during


def test_the_first_error_is_told_while_the_table_stands():
    progress = Progress(2, terminal())
    failed = Episode(Task("t7"), end_reason="error", turns=(Turn("user", "q"),), info={"error": "HTTP 400: full"})
    during = asyncio.run(watched(progress, [failed]))
    assert "first error, task t7: HTTP 400: full" in during
