"""`viewbox reward`: tries a reward on one answer.

`viewbox reward try` takes an answer from the command line or from a saved episode, and prints the score of every
component and its reason.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from ..errors import ConfigError
from ..utils.files import read_regular
from ..utils.terminal import make_line

if TYPE_CHECKING:
    from ..records import Episode
    from ..rewards.explain import ComponentScore, ExplainedScore
    from ..rollouts.scoring.trust import Trust

_ALLOWED = "allowed: a JSON object, or @file.json"
_WIDTH = 1000  # characters of a reason
_HEADINGS = ("component", "weight", "score", "gate", "why")
app = typer.Typer(
    name="reward",
    help="Try a reward on one answer.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)


@app.command("try")
def try_reward(
    reward: Annotated[str, typer.Argument(help="Reward: a YAML file (also a run's), module:name or file.py:name.")],
    answer: Annotated[str | None, typer.Option(help="Answer as a JSON object or @file.json; null: no answer.")] = None,
    reference: Annotated[str | None, typer.Option(help="Reference of the task as a JSON object or @file.json.")] = None,
    episode: Annotated[
        str | None, typer.Option(help="A saved episode instead, as RUN#LINE: a run and a line in it, from 1.")
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Run code that a YAML file in a run's folder names. Only if you trust it.")
    ] = False,
    ask_judge: Annotated[
        bool, typer.Option("--ask-judge", help="Ask the judge that a YAML file in a run's folder names.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the score of one answer: every component, and why.

    Example: `viewbox reward try reward.yaml --answer '{"label": "six"}' --reference '{"label": "seven"}'`
    """
    from ..rollouts.scoring.trust import Trust

    trial = run_trial(
        reward, answer=answer, reference=reference, episode=episode, trust=Trust(code=trust, judge=ask_judge)
    )
    if as_json:
        typer.echo(json.dumps(trial.to_dict()))
    else:
        print_trial(trial)


@app.callback()
def describe() -> None:
    """Try a reward on one answer."""


def run_trial(
    reward: str,
    *,
    answer: str | None = None,
    reference: str | None = None,
    episode: str | None = None,
    trust: "Trust | None" = None,
) -> "ExplainedScore":
    """Tries a reward on an answer and a reference.

    Args:
        reward: a YAML file, module:name or file.py:name.
        answer, reference: JSON objects, or `@file.json`; `null` means no answer.
        episode: RUN#LINE, a saved episode. Its own answer and reference are used unless they are given as well.
        trust: what a YAML file in a run's folder may do; default: nothing.

    Raises:
        ConfigError, StoreError: an argument is missing, cannot be read or is not allowed.
    """
    from ..rewards.explain import explain_score
    from ..rollouts.scoring.reward_source import find_reward
    from ..rollouts.scoring.trust import NO_TRUST

    trust = trust or NO_TRUST
    source = find_reward(reward, trust=trust)
    if episode is not None:
        saved = _load_episode(episode, source.reward, trust)
        if answer is not None:
            saved = replace(saved, answer=_parse_object("answer", answer))
        if reference is not None:
            saved = replace(saved, task=replace(saved.task, reference=_parse_reference(reference)))
        return explain_score(source.reward, saved.answer, saved.task.reference, saved)
    if answer is None or reference is None:
        both = {"answer": answer, "reference": reference}
        missing = " and ".join(f"--{name}" for name, text in both.items() if text is None)
        raise ConfigError(f"{missing}: missing; give --answer and --reference, or --episode RUN#LINE")
    return explain_score(source.reward, _parse_object("answer", answer), _parse_reference(reference))


def print_trial(trial: "ExplainedScore") -> None:
    """Prints the components and the total: a table on a terminal, aligned columns for another program."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    lines = [_format_cells(row) for row in trial.components]
    console = Console(highlight=False, soft_wrap=True)
    if console.is_terminal:
        table = Table()
        for heading in _HEADINGS:
            table.add_column(heading, justify="right" if heading in ("weight", "score") else "left")
        for line in lines:
            table.add_row(*map(escape, line))
        console.print(table, soft_wrap=False)
    else:
        _print_lines([_HEADINGS, *lines])
    missing = "has no score, because a component failed" if trial.problems else "does not apply, as no component does"
    total = missing if trial.total is None else _format_number(trial.total)
    print(f"{make_line(trial.reward)}: {total}")
    for problem in trial.problems:
        print(f"warning: {make_line(problem, _WIDTH)}", file=sys.stderr)


def _format_cells(row: "ComponentScore") -> tuple[str, ...]:
    why = make_line(row.why, _WIDTH)  # it may quote the model
    name = "  " * row.name.count(".") + make_line(row.name, _WIDTH)
    return name, f"{row.weight:g}", _format_number(row.score), "closed" if row.closed else "", why


def _format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _print_lines(lines: Iterable[tuple[str, ...]]) -> None:
    lines = list(lines)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, weight, score, gate, why in lines:
        cells = [name.ljust(widths[0]), weight.rjust(widths[1]), score.rjust(widths[2]), gate.ljust(widths[3]), why]
        print("  ".join(cells).rstrip())


def _parse_reference(text: str) -> dict[str, Any]:
    value = _parse_object("reference", text)
    if value is None:
        raise ConfigError(f"--reference is null; {_ALLOWED}")
    return value


def _parse_object(option: str, text: str) -> dict[str, Any] | None:
    """The JSON object of an option, or of the file it names; NaN and infinities can be tried too."""
    from ..core.parsing.strict_json import build_object
    from ..rollouts.store.lines import MAX_LINE

    place = f"--{option}"
    if text.startswith("@"):
        place = f"{place} {text}"
        try:
            text = read_regular(text[1:], limit=MAX_LINE).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{place}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    try:
        value = json.loads(text, object_pairs_hook=build_object)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place} is {text[:80]!r}: not JSON: {error}; {_ALLOWED}") from error
    if value is not None and not isinstance(value, dict):
        raise ConfigError(f"{place} is {text[:80]!r}; {_ALLOWED}")
    return value


def _load_episode(place: str, reward: Any, trust: "Trust") -> "Episode":
    """The episode RUN#LINE, if the reward may see it."""
    from ..rollouts.scoring.data_policy import build_sharing_check
    from .saved_episode import NAME, load_episode, split_name

    run, line = split_name(place, "--episode")
    if line is None:
        raise ConfigError(f"--episode {place!r}; allowed: {NAME}")
    episode, folder = load_episode(run, line)
    build_sharing_check(reward, Path(run), folder, trust)(episode)
    return episode
