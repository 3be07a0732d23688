"""What the results of scoring, comparing, evaluating and listing show: sentences and tables."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..rollouts.scoring import INTERVALS, MIN_TASKS, RULE
from .command_builder import PrintedTable, say

if TYPE_CHECKING:
    from ..rewards.explain import ExplainedScore
    from ..rollouts.listing import RunFigures, RunList
    from ..rollouts.scoring.compare import Comparison, Difference
    from ..rollouts.scoring.rescore import ScoreChange, ScoreReport

MAX_LISTED = 5  # unreadable lines, and tasks that only one side solves
SHORT = 40  # letters of a cell in a list of runs
SIDES = ("tasks", "first", "second", "difference", "wins", "ties", "losses")
Blocks = Iterator[PrintedTable | str]


class Tasks(int):
    """A number of tasks, marked if they are few."""

    def format(self, sign: str = "") -> str:
        return f"{self} (< {MIN_TASKS})" if self < MIN_TASKS else str(self)


def show_scores(report: "ScoreReport") -> Blocks:
    """Score as stored and as computed now, the environment's metrics, and what is missing."""
    from ..rollouts.store.run_folder import describe_view

    heads = ("tasks", "episodes", "stored", "new", "change")
    filters = f" where {' and '.join(report.where)}" if report.where else ""
    yield say(f"{report.run}: {report.episodes} episodes of {report.tasks} tasks{filters}")
    rows = [("reward", report.total), *report.components.items()]
    yield PrintedTable("", (RULE, *heads), [_list_change(*entry) for entry in rows], signed=("change",))
    if report.group_by is not None:
        cells = [_list_change(entry.value, entry.total) for entry in report.groups]
        head = f"{report.group_by} ({RULE})"
        yield PrintedTable(f"reward by {report.group_by}", (head, *heads), cells, signed=("change",))
    yield from map(say, _list_notes(report))
    from ..rewards.looks import explain_verdicts

    yield from explain_verdicts({name: figure.mean for name, figure in report.metrics.items()})
    for head, overall in (("of all episodes", True), (RULE, False)):
        if cells := list(_list_metrics(report, overall)):
            yield PrintedTable("", (head, "value", "tasks", "episodes"), cells)
    yield say(describe_view(report.run))


def _list_change(name: str, one: "ScoreChange") -> Sequence[Any]:
    return name, Tasks(one.tasks), one.episodes, one.stored, one.new, one.change


def _list_metrics(report: "ScoreReport", own: bool) -> Iterator[tuple[str, str, Tasks, int]]:
    """Yield the environment's own metrics, or the means; end reasons that did not occur are left out."""
    for name, figure in report.metrics.items():
        if name.startswith(("metrics/", "replies/")) == own and (
            figure.mean or not name.startswith(("end/", "verdict/"))
        ):
            draws = f" ({report.fewer_draws[name]} draws)" if name in report.fewer_draws else ""
            yield name.removeprefix("metrics/"), figure.format() + draws, Tasks(figure.tasks), figure.count


def _list_notes(report: "ScoreReport") -> Iterator[str]:
    if report.resamples:
        yield INTERVALS
    if report.saved:
        yield f"the run stores a part of its training episodes: {report.saved} of each step; figures are over these"
    if not report.changed:
        yield "no score differs from the stored one"
    if report.column is not None:
        yield f"written: {report.column}  (viewbox.load({report.run!r}, scores={report.name!r}))"
    for problem in report.problems:
        yield f"warning: {problem}"
    without = report.episodes - report.total.episodes - report.failures
    if without > 0:
        yield f"{without} episodes have no score (a fault ended them, or no component applies); means leave them out"
    if report.first_failure is not None:
        first = report.first_failure
        yield (
            f"warning: the reward failed on {report.failures} episodes, which have no score; the first: "
            f"line {first.line}, task {first.task!r}: {first.error}"
        )
    if report.counts:
        yield ", ".join(f"{name}: {count:g}" for name, count in report.counts.items())
    if report.skipped:
        yield f"warning: {report.skipped} lines of {report.file} cannot be read and were skipped"
        yield from (f"  line {line}: {why:.200}" for line, why in list(report.unreadable.items())[:MAX_LISTED])
        if report.skipped > MAX_LISTED:
            yield f"  and {report.skipped - MAX_LISTED} more"


def show_comparison(found: "Comparison") -> Blocks:
    """Score of two runs side by side, tasks that only one of them solves, and the finding."""
    a, b = found.a, found.b
    yield say(f"first:  {a.run} ({_count(a.episodes, 'episode')} of {_count(a.tasks, 'task')})")
    yield say(f"second: {b.run} ({_count(b.episodes, 'episode')} of {_count(b.tasks, 'task')})")
    yield f"{_count(found.tasks, 'task')} in both; of each, the mean of its episodes\n"
    yield PrintedTable("", (RULE, *SIDES), [*map(_list_cells, *_list_shown(found))], signed=("difference",))
    if found.by is not None:
        rows = [_list_cells(*entry) for entry in found.groups.items()]
        yield PrintedTable(f"reward by {found.by}", (f"{found.by} ({RULE})", *SIDES), rows, signed=("difference",))
    if found.moved:
        after = list(dict.fromkeys(name for counts in found.moved.values() for name in counts))
        rows = [(name, *(counts.get(other) for other in after)) for name, counts in found.moved.items()]
        yield PrintedTable("tasks by verdict: of the first run, and across of the second", ("", *after), rows)
    for title, flips in (("only the second solves", found.gained), ("only the first solves", found.lost)):
        if flips:
            shown = f", {MAX_LISTED} of them" if len(flips) > MAX_LISTED else ""
            rows = [
                (entry.task, f"{entry.a:.3f}", f"{entry.b:.3f}", f"{a.run}#{entry.a_line} {b.run}#{entry.b_line}")
                for entry in flips[:MAX_LISTED]
            ]
            yield PrintedTable(
                f"{title} {_count(len(flips), 'task')}{shown}:", ("task", "first", "second", "episodes"), rows
            )
    yield f"\n{found.explain()}"
    if any(entry.difference.low is not None for entry in found.scores.values()):
        yield INTERVALS
    yield from (say(f"warning: {warning}") for warning in found.warnings)


def _list_cells(name: str, one: "Difference") -> Sequence[Any]:
    return name, Tasks(one.difference.tasks), one.a, one.b, one.difference, one.wins, one.ties, one.losses


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def show_summary(summary: Mapping[str, Any]) -> Blocks:
    """Reward, components, tool rate, turns and end reasons of a rollout; below them the errors."""
    from ..rewards.looks import VERDICTS
    from ..rollouts.scoring.metrics import END_REASONS

    metrics = summary["metrics"]
    yield say(f"{summary['environment']}, {summary['model']}: {summary['episodes']} episodes")
    components = {name: name.split("/")[1] for name in metrics if name.startswith("rewards/")}
    names = {"reward": "reward", **components, "tools/rate": "tool rate", "episodes/turns": "turns"}
    names |= {f"verdict/{name}": f"verdict: {name}" for name in VERDICTS if metrics.get(f"verdict/{name}")}
    faults = [name for name in metrics if name.startswith("tools/") and name.endswith("/faults") and metrics[name]]
    ends = {f"end/{reason}": reason for reason in END_REASONS if metrics[f"end/{reason}"]}
    rows = [
        (title, f"{metrics[name]:.3f}", summary.get("counts", {}).get(name, summary["episodes"]))
        for name, title in {**names, **dict(zip(faults, faults, strict=True)), **ends}.items()
        if name in metrics
    ]
    yield PrintedTable("", (RULE, "mean", "episodes"), rows)
    unanswered = summary.get("unanswered", 0)
    if unanswered:
        yield f"{_count(unanswered, 'row')} without an answer {'is' if unanswered == 1 else 'are'} played, not scored"
    without = round((1 - metrics["episodes/scored"]) * summary["episodes"]) - unanswered
    if without > 0:
        yield f"{without} episodes have no score, and are left out of the means"
    yield from (say(f"{count} × {reason}") for reason, count in summary["errors"].items())


class Evaluation(NamedTuple):
    """What an evaluation found, and what is said after it."""

    result: Any
    says: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = self.result.to_dict()
        return values


def show_evaluation(one: Evaluation) -> Blocks:
    """Yield each score in the other ways and as the tasks are, and how each tool was used; or the share right by scale;
    then the findings."""
    result = one.result
    if hasattr(result, "right"):
        rows = [(f"{at:g}", Tasks(one.tasks), one, f"{result.answered[at]:.3f}") for at, one in result.right.items()]
        yield PrintedTable("", ("pixels shown for one", "tasks", "right", "answered"), rows)
        yield from (*result.explain(), *one.says)
        return
    for name, compared in result.found.items():
        heads = (RULE, "tasks", *(way.replace("_", " ") for way in (name, result.base)), *SIDES[3:])
        yield PrintedTable("", heads, [*map(_list_cells, *_list_shown(compared))], signed=("difference",))
    if result.uses:
        rows = [(name, *map(_format_use, use, use.values())) for name, use in result.uses.items()]
        yield PrintedTable(
            "", ("tool", "calls", "per episode", "episodes that call it", "calls that succeed", "faults"), rows
        )
    yield from result.explain()
    yield from one.says


def _format_use(name: str, value: float | None) -> str | None:
    shape = {"per_episode": ".2f", "episodes": ".0%", "success": ".0%"}.get(name, "d")
    return None if value is None else f"{value:{shape}}"


def _list_shown(found: "Comparison") -> tuple[list[str], list["Difference"]]:
    """Return the scores that a terminal shows: the page has `looks/…`, too."""
    names = [name for name in found.scores if not name.startswith("looks/")]
    return names, [found.scores[name] for name in names]


def show_runs(found: "RunList") -> Blocks:
    """Yield a row for each run; what cannot be read goes to stderr."""
    heads = [*("run", "environment", "model", "method", "steps", "episodes"), f"reward ({RULE})", "not found"]
    heads += ["date", "size"]
    if not found.runs and not found.broken:
        yield say(f"{found.folder}: no runs here")
    if found.runs:
        yield PrintedTable("", heads, [_list_figures(run) for run in found.runs], widest=200)
    for path, reason in found.broken.items():
        warn(f"{path} cannot be read: {reason:.300}")
    for run in found.runs:
        if run.skipped:
            warn(f"{run.path}: {run.skipped:,} lines of its episodes cannot be read")


def _list_figures(run: "RunFigures") -> Sequence[Any]:
    from ..rollouts.scoring.metrics import format_part

    rewards = [f"{value:.3f}" for value in (run.first_reward, run.last_reward) if value is not None]
    note = f" ({run.saved} a step)" if run.saved else ""
    reward = " → ".join(rewards[:1] if len(set(rewards)) == 1 else rewards)
    searches = [f"{value:.0%}" for value in (run.first_search, run.last_search) if value is not None]
    return (
        run.path,
        *(say(name, SHORT) if name else None for name in (run.environment, run.model, run.method)),
        run.steps,
        None if run.episodes is None else f"{run.episodes:,}{note}",
        reward + format_part(run.scored) if reward else None,
        " → ".join(dict.fromkeys(searches)) or None,
        (run.modified or "-")[:16].replace("T", " "),
        _format_size(run.size),
    )


def _format_size(size: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def show_trial(trial: "ExplainedScore") -> Blocks:
    """Yield every component of a reward with its score and reason, and the total."""
    rows = []
    for row in trial.components:
        name, gate = "  " * row.name.count(".") + row.name, "closed" * row.closed
        rows.append((name, f"{row.weight:g}", _format_score(row.score), gate, row.why))
    yield PrintedTable("", ("component", "weight", "score", "gate", "why"), rows, left=("gate", "why"), widest=1000)
    missing = "has no score, because a component failed" if trial.problems else "does not apply, as no component does"
    yield say(f"{trial.reward}: {missing if trial.total is None else _format_score(trial.total)}")
    for problem in trial.problems:
        warn(problem)


def _format_score(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"


def warn(text: str) -> None:
    """Print a warning to stderr."""
    import typer

    typer.echo(say(f"warning: {text}"), err=True)
