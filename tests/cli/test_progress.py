"""What the person sees who watches `viewbox rollout`: the line on a terminal, those of a file, and what is left."""

import asyncio
import io

from rich.console import Console

from tests.support.tables import each
from viewbox.cli.progress import Progress
from viewbox.engines.generator import Load
from viewbox.records import Episode, Scores, Task, Turn


def episode(number=0):
    return Episode(Task(f"t{number}"), end_reason="answered", scores=Scores(0.5, {"label": 1.0}))


async def watched(progress, episodes):
    """Shows the progress while episodes end: what had been written when the last one had."""
    with progress.show():
        await asyncio.sleep(0)
        for one in episodes:
            progress.add(one)
        await asyncio.sleep(0.6)
        return progress.printer.console.file.getvalue()


LINES = [  # episodes of this session and of an earlier one, the load of the generator; the line after two seconds
    (1, 0, None, 4, "1/4  reward 0.50  tool rate 0.00  0.5 episodes/s  0:06 left  answered 1"),
    (0, 1, None, 4, "1/4  reward 0.50  tool rate 0.00  0.0 episodes/s  answered 1"),  # for the means, not the speed
    (0, 0, Load(7), 4, "0/4  reward -  tool rate 0.00  0.0 episodes/s  7 requests"),  # of an endpoint
    (0, 0, Load(8, slots=8, waiting=3), 4, "0/4  reward -  tool rate 0.00  0.0 episodes/s  8 of 8 slots  3 waiting"),
    (1, 0, Load(0, slots=8, tokens=10), 1, "1/1  reward 0.50  tool rate 0.00  0.5 episodes/s  5 tokens/s  answered 1"),
]


@each("new, earlier, load, total, line", LINES)
def test_the_line_has_the_means_the_speed_and_the_time_left(new, earlier, load, total, line):
    progress = Progress(total, get_load=load and (lambda: load))
    for number in range(new + earlier):
        progress.add(episode(), earlier=number < earlier)
    assert progress.render_line(2.0) == line


def test_a_terminal_shows_one_line_that_changes_tells_the_first_error_above_it_and_keeps_the_last():
    progress = Progress(2, Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None))
    failed = Episode(Task("t7"), end_reason="error", turns=(Turn("user", "q"),), info={"error": "HTTP 400: full"})
    during = asyncio.run(watched(progress, [episode(), failed]))
    assert all(words in during for words in ("0/2", "first error, task t7: HTTP 400: full", "answered 1"))
    after = progress.printer.console.file.getvalue()[len(during) :]
    kept = after.rpartition("\x1b[2K")[2]  # what stands after the last line was wiped
    assert kept.strip().startswith("2/2  reward 0.50")
    assert kept.endswith("answered 1, error 1\n")


def test_a_file_gets_plain_lines(monkeypatch):
    monkeypatch.setattr("viewbox.cli.progress.EVERY", 0.05)
    progress = Progress(2, Console(file=io.StringIO(), width=120), get_load=lambda: Load(1, slots=2, tokens=5))
    during = asyncio.run(watched(progress, [episode()]))
    lines = during.splitlines()
    assert lines
    assert all(line.startswith("1/2  reward 0.50") and "1 of 2 slots" in line for line in lines)
    assert "\x1b" not in during
