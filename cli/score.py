"""What `viewbox score` prints: a table where a person looks on, aligned columns where another program reads."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from viewbox.rollouts.scoring.bootstrap import CONFIDENCE, Interval
from viewbox.rollouts.scoring.rescore import ScoreChange, ScoreReport

_NAMED = 5  # unreadable lines that are named
_HEADINGS = ("episodes", "stored", "new", "change")


def print_report(report: ScoreReport) -> None:
    """The report in words."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{escape(report.run)}: {report.episodes} episodes of {report.tasks} tasks", *_where(report))
    rows = [("reward", report.total), *report.components.items()]
    _print(console, [("", *_HEADINGS), *((name, *_cells(row)) for name, row in rows)])
    if report.group_by is not None:
        groups = [(group.value, *_cells(group.total)) for group in report.groups]
        console.print(f"\nreward by {escape(report.group_by)}")
        _print(console, [(report.group_by, *_HEADINGS), *groups])
    for line in _notes(report):
        console.print(escape(line))
    console.print()
    _print(console, [("", "value"), *_metrics(report)])


def _where(report: ScoreReport) -> list[str]:
    return [escape(f"where {' and '.join(report.where)}")] if report.where else []


def _metrics(report: ScoreReport) -> Iterable[tuple[str, str]]:
    """What the environment declares first; end reasons that did not occur are left out."""
    for name in sorted(report.metrics, key=lambda name: not name.startswith("metrics/")):
        if report.metrics[name].mean or not name.startswith("end/"):
            drawn = f" ({report.fewer[name]} draws)" if name in report.fewer else ""
            yield name.removeprefix("metrics/"), report.metrics[name].format() + drawn


def _cells(row: ScoreChange) -> tuple[str, ...]:
    return str(row.episodes), _shown(row.stored), _shown(row.new), _shown(row.change, sign="+")


def _shown(interval: Interval | None, sign: str = "") -> str:
    return "-" if interval is None else interval.format(sign)


def _print(console: Console, lines: Sequence[tuple[str, ...]]) -> None:
    if console.is_terminal:
        table = Table()
        for i, heading in enumerate(lines[0]):
            table.add_column(escape(heading), justify="right" if i else "left")
        for line in lines[1:]:
            table.add_row(*map(escape, line))
        console.print(table, soft_wrap=False)  # on a narrow terminal cells are folded, the frame stays
        return
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *rest in lines:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
        print("  ".join(cells).rstrip())


def _notes(report: ScoreReport) -> Iterable[str]:
    if report.resamples:
        yield (
            f"in brackets: {100 * CONFIDENCE:.0f} % percentile intervals, {report.resamples} bootstrap draws over "
            f"tasks; the change is paired"
        )
    if report.column is not None:
        yield f"written: {report.column}  (viewbox.load({report.run!r}, scores={report.name!r}))"
    for problem in report.problems:
        yield f"warning: {problem}"
    if report.failures:
        first = report.first_failure
        assert first is not None
        yield (
            f"warning: the reward failed on {report.failures} episodes, which count 0 there; the first: "
            f"line {first.line}, task {first.task!r}: {first.error}"
        )
    if report.counts:
        yield ", ".join(f"{name}: {count:g}" for name, count in report.counts.items())
    if report.skipped:
        yield f"warning: {report.skipped} lines of {report.file} cannot be read and were skipped"
        for line, why in list(report.unreadable.items())[:_NAMED]:
            yield f"  line {line}: {why:.200}"
        if report.skipped > _NAMED:
            yield f"  and {report.skipped - _NAMED} more"
