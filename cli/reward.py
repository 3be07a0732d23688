"""`viewbox reward try`: a reward on one answer that is typed, or saved, and what every component says about it."""

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from viewbox.envs.parsing.strict_json import describe_duplicate
from viewbox.errors import ConfigError
from viewbox.records import Episode
from viewbox.rewards.explain import ComponentScore, ExplainedScore, explain_score
from viewbox.rollouts.scoring.data_policy import build_sharing_check
from viewbox.rollouts.scoring.reward_source import find_reward
from viewbox.rollouts.store.reader import load

_ALLOWED = "allowed: a JSON object, or @file.json"
_HEADINGS = ("component", "weight", "score", "gate", "why")


def run(
    reward: str, *, answer: str | None = None, reference: str | None = None, episode: str | None = None
) -> ExplainedScore:
    """The reward in a YAML file, or at an import path, on an answer and a reference.

    Both are JSON objects, or `@file.json`; `null` is no answer. `episode` is RUN:NUMBER, a saved episode, counted
    from 0; its answer and reference are those of the episode unless they are given as well. Raises `ConfigError` and
    `StoreError`.
    """
    judge = find_reward(reward, Path("."), Path("."))
    if episode is not None:
        played = _saved(episode, judge.reward)
        if answer is not None:
            played = replace(played, answer=_object("answer", answer))
        if reference is not None:
            played = replace(played, task=replace(played.task, reference=_given_reference(reference)))
        return explain_score(judge.reward, played.answer, played.task.reference, played)
    if answer is None or reference is None:
        missing = " and ".join(f"--{name}" for name, text in _both(answer, reference) if text is None)
        raise ConfigError(f"{missing}: missing; allowed: --answer and --reference, or --episode RUN:NUMBER")
    return explain_score(judge.reward, _object("answer", answer), _given_reference(reference))


def print_trial(trial: ExplainedScore) -> None:
    """The components and the total: a table where a person looks on, lines where another program reads."""
    lines = [_cells(row) for row in trial.components]
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
    total = "does not apply, since no component does" if trial.total is None else _number(trial.total)
    print(f"{trial.reward}: {total}")
    for problem in trial.problems:
        print(f"warning: {problem}; it counts 0", file=sys.stderr)


def _cells(row: ComponentScore) -> tuple[str, ...]:
    why = "".join(character if character.isprintable() else " " for character in row.why)  # others' words: one line
    name = "  " * row.name.count(".") + row.name
    return name, f"{row.weight:g}", _number(row.score), "shut" if row.closed else "", why


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _print_lines(lines: Iterable[tuple[str, ...]]) -> None:
    lines = list(lines)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, weight, score, gate, why in lines:
        cells = [name.ljust(widths[0]), weight.rjust(widths[1]), score.rjust(widths[2]), gate.ljust(widths[3]), why]
        print("  ".join(cells).rstrip())


def _both(answer: str | None, reference: str | None) -> tuple[tuple[str, str | None], ...]:
    return ("answer", answer), ("reference", reference)


def _given_reference(text: str) -> dict[str, Any]:
    found = _object("reference", text)
    if found is None:
        raise ConfigError(f"--reference is null; {_ALLOWED}")
    return found


def _object(option: str, text: str) -> dict[str, Any] | None:
    """The JSON object of an option, or of the file it names; NaN and infinities are read, to be tried."""
    place = f"--{option}"
    if text.startswith("@"):
        place = f"{place} {text}"
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{place}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place} is {text[:80]!r}: no JSON: {error}; {_ALLOWED}") from error
    if found is not None and not isinstance(found, dict):
        raise ConfigError(f"{place} is {text[:80]!r}; {_ALLOWED}")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object without repeated keys: a reply that repeats one is no answer, so this is a slip of the pen."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(describe_duplicate(next(name for name in names if names.count(name) > 1)))
    return found


def _saved(given: str, reward: Any) -> Episode:
    """The episode RUN:NUMBER, if the reward may see it."""
    run, colon, number = given.rpartition(":")
    if not colon or not run or not number.isdecimal() or len(number) > 12:
        raise ConfigError(f"--episode {given!r}: allowed: RUN:NUMBER, a folder of saved episodes and a number from 0")
    episodes = load(run, errors="skip")
    found = next(islice(episodes, int(number), None), None)
    if found is None:
        count = sum(1 for _ in load(run, errors="skip"))
        allowed = f"allowed: 0 to {count - 1}" if count else "none can be tried"
        raise ConfigError(f"--episode {given!r}: {run} holds {count} episodes that can be read; {allowed}")
    build_sharing_check(reward, Path(run), episodes.folder)(found)
    return found
