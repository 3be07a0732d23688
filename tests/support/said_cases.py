"""The kit of two tables of cases, `core/test_what_is_said.py` and `rollouts/test_what_is_read.py`.

A row is what somebody brings, what is asked of viewbox, and the right outcome with where it comes from. Right values
are worked out by hand, from a standard, or with the library that is named, never by the code under test.
"""

import contextlib
import csv
import io
import json
import logging
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from PIL import Image

import viewbox
from tests.support.servers import make_response, serve
from viewbox.cli import app
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.errors import ViewboxError
from viewbox.network.connection import Connection


class Row(NamedTuple):
    """`given` is what somebody brings, `ask` gets it and a folder of its own; `report`: the bug report it stands for.

    The name begins with the id of the kind of case.
    """

    name: str
    given: Any
    ask: Callable[[Any, Path], Any]
    right: Any
    source: str
    report: str = ""


class Table(list[Row]):
    """Rows, added by calling the table."""

    def __call__(self, *fields: Any) -> None:
        self.append(Row(*fields))

    def begin(self, kind: str) -> None:
        """What is added from here on is of this kind."""
        self.kind = kind

    def add(self, ask: Callable[[Any, Path], Any], *cases: tuple[Any, ...]) -> None:
        """Add rows that ask the same: each is what is given, what is right, and where that is from, if it is said."""
        for given, right, *origins in cases:
            self(f"{self.kind}-{len(self)} {given!r:.80}", given, ask, right, "; ".join(origins))

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(row.name.split("-")[0] for row in self))

    def check_names(self) -> None:
        """Check that no name comes twice, and that every kind has a case and at least three relatives."""
        names = [row.name for row in self]
        assert len(names) == len(set(names))
        assert min(sum(name.split("-")[0] == kind for name in names) for kind in self.kinds) >= 4

    def check(self, kind: str, folder: Path) -> None:
        """Try every row of a kind, each in a folder of its own; the error names all that fail."""
        rows = [row for row in self if row.name.split("-")[0] == kind]
        failures = []
        for number, row in enumerate(rows):
            (folder / str(number)).mkdir()
            if (problem := try_row(row, folder / str(number))) is not None:
                failures.append(f"{row.name}: {problem}")
        assert not failures, f"{len(failures)} of {len(rows)} rows:\n" + "\n".join(failures)


def try_row(row: Row, folder: Path) -> str | None:
    """Return what is wrong with a row; None if its outcome is right."""
    with contextlib.chdir(folder):
        try:
            got = row.ask(row.given, folder)
        except ViewboxError as error:
            got = Refusal(str(error))
        except Exception as error:
            got = error
    if fits(got, row.right):
        return None
    return f"got {got!r:.700}; right: {row.right!r:.300} ({row.source}{row.report and '; ' + row.report})"


# ---------------------------------------------------------------------- what is right
class Refusal(str):
    """What viewbox said when it refused."""


@dataclass(frozen=True)
class Words:
    """Text with all of the patterns and none of `without`; as a refusal, if it must be one."""

    patterns: tuple[str, ...]
    refusal: bool = False
    without: str = ""

    def fits(self, got: Any) -> bool:
        if not isinstance(got, str) or (self.refusal and not isinstance(got, Refusal)):
            return False
        found = all(re.search(pattern, got, re.IGNORECASE | re.DOTALL) for pattern in self.patterns)
        return found and not (self.without and re.search(self.without, got, re.IGNORECASE))


@dataclass(frozen=True)
class Below:
    """A number from 0 to less than this."""

    bound: float

    def fits(self, got: Any) -> bool:
        return isinstance(got, int | float) and 0 <= got < self.bound


@dataclass(frozen=True)
class Either:
    """Any of these."""

    ways: tuple[Any, ...]

    def fits(self, got: Any) -> bool:
        return any(fits(got, way) for way in self.ways)


@dataclass(frozen=True)
class Ended:
    """How a command ended: one of these statuses, with these words."""

    statuses: tuple[int, ...]
    words: Words

    def fits(self, got: Any) -> bool:
        return isinstance(got, Outcome) and got.status in self.statuses and self.words.fits(got.said)


def fits(got: Any, right: Any) -> bool:
    """Whether an outcome is the right one; numbers may differ by rounding, and True is not 1."""
    if hasattr(right, "fits"):
        return bool(right.fits(got))
    if isinstance(right, dict):
        return isinstance(got, dict) and got.keys() == right.keys() and all(fits(got[key], right[key]) for key in right)
    if isinstance(right, list | tuple):
        same = isinstance(got, list | tuple) and len(got) == len(right)
        return same and all(map(fits, got, right))
    if isinstance(right, bool | str) or right is None:
        return type(got) is type(right) and got == right
    is_number = isinstance(got, int | float) and not isinstance(got, bool)
    return is_number and bool(np.isclose(got, right, rtol=0, atol=1e-9, equal_nan=True))


def refused(*patterns: str, without: str = "") -> Words:
    return Words(patterns, True, without)


def says(*patterns: str, without: str = "") -> Words:
    return Words(patterns, False, without)


def either(*ways: Any) -> Either:
    return Either(ways)


def ends(*statuses: int, says: Iterable[str] = (), without: str = "viewbox failed") -> Ended:
    return Ended(statuses, Words(tuple(says), without=without))


# ---------------------------------------------------------------------- tables of rows
def write_rows(path: Path, rows: Iterable[Mapping[str, Any] | str], **options: Any) -> Path:
    """Write a table of rows by the ending of its name; `options` are those of `csv`, or pyarrow's columns by name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = list(rows)
    if path.suffix == ".jsonl":
        text = "".join((row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)) + "\n" for row in rows)
        path.write_text(text, encoding="utf-8")
    elif path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",", **options)
            writer.writeheader()
            writer.writerows(rows)
    else:
        import pyarrow as pa
        from pyarrow import parquet

        names = list(dict.fromkeys([*(name for row in rows for name in row), *options]))
        columns = {name: options.get(name, [row.get(name) for row in rows]) for name in names}
        parquet.write_table(pa.table(columns), path)
    return path


def write_images(folder: Path, count: int = 6) -> None:
    (folder / "img").mkdir(exist_ok=True)
    for number in range(count):
        Image.new("L", (32, 32), 40 * number).save(folder / "img" / f"{number}.png")


def question(answer: Any, **more: Any) -> dict[str, Any]:
    """A row of `vqa`."""
    return {"id": "t0", "image": "0.png", "question": "What is seen?", "answer": answer, **more}


FIELDS = ("id", "image", "question", "answer", "choices", "kind", "category")


def make_vqa(folder: Path, source: str, names: Iterable[str], data: Mapping[str, Any] = {}, **settings: Any) -> Any:
    """A `vqa` environment of a table; its columns are those of `names` that are fields."""
    write_images(folder)
    columns = {name: name for name in FIELDS if name in names} | dict(data.get("columns", {}))
    where = {"source": str(folder / source), "images": str(folder / "img")}
    return viewbox.make("vqa", data={**where, **data, "columns": columns}, **settings)


# ---------------------------------------------------------------------- episodes
def play(env: BaseMultiTurnEnv, *replies: Any, number: int = 0) -> Any:
    """Play a task with these replies, the last of them for ever."""
    return env.play(env.tasks[number], ScriptedPolicy([*replies, *[replies[-1]] * 12]))


def read_messages(episode: Any) -> str:
    """What the model was told after the first message: nudges and results of tools."""
    told = [turn.content for turn in episode.turns[1:] if turn.role == "user"]
    results = [result.text for turn in episode.turns for result in turn.tool_results]
    return "\n".join([*told, *results])


# ---------------------------------------------------------------------- commands
class Outcome(NamedTuple):
    """How a command ended, and what it said."""

    status: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return self.out + self.err


def run(*arguments: object) -> Outcome:
    """Run the command `viewbox` in this process, in the current folder."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["viewbox", *map(str, arguments)]),
        mock.patch.object(logging.getLogger(), "handlers", []),  # warnings go to stderr, as in a process of its own
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        status = 0
        try:
            app.main()
        except SystemExit as ended:
            status = ended.code or 0
    return Outcome(int(status), out.getvalue(), err.getvalue())


CONFIG = """model: {{name: package:tiny_viewer, dtype: float32}}
env:
  name: vqa
  max_turns: 4
  data:
    source: {source}
    images: img
    columns: {{id: id, image: image, question: question, answer: answer{more}}}
{rest}"""


def write_config(folder: Path, source: str, more: str = "", rest: str = "", name: str = "c.yaml") -> Path:
    """Write a config of `vqa` over a table in this folder; `rest` is YAML below `data`, indented by four spaces."""
    write_images(folder)
    (folder / name).write_text(CONFIG.format(source=source, more=more, rest=rest))
    return folder / name


def write_six(folder: Path) -> Path:
    """Six tasks, each right with {"answer": "yes"}."""
    rows = [{"id": f"c{i}", "image": f"{i}.png", "question": "Is it gray?", "answer": "yes"} for i in range(6)]
    write_rows(folder / "six.csv", rows)
    return write_config(folder, "six.csv", name="six.yaml")


# ---------------------------------------------------------------------- servers
GOOD = '{"answer": "yes"}'


def refuse(status: int, message: str, code: str | None = None, **headers: Any) -> Callable[[Any], None]:
    return make_response(status, {"error": {"message": message, "code": code}}, **headers)


def page(status: int, text: str, **headers: Any) -> Callable[[Any], None]:
    return make_response(status, text, Content_Type="text/html", **headers)


class Roll(NamedTuple):
    """A rollout against a server: how it ended, its stored episodes, the bodies of the requests, and the folder."""

    ended: Outcome
    episodes: list[Any]
    bodies: list[dict[str, Any]]
    folder: Path


def roll(
    answer: Callable[[Any, int], Any] | Any, folder: Path, *more: str, tasks: int = 6, concurrency: int = 1
) -> Roll:
    """Roll six tasks out against a server, with pauses of milliseconds.

    `answer` is what it always answers (a completion, or a function of the handler), or a function of the request's
    body and its number from 0.
    """
    by = answer if getattr(answer, "by_request", False) else lambda body, number: answer
    config, out = write_six(folder), folder / "run"
    with serve(by) as server, haste():
        url = f"http://127.0.0.1:{server.server_port}/v1"
        size = ("--tasks", tasks, "--concurrency", concurrency)
        ended = run("rollout", "--config", config, "--endpoint", url, "--model", "m", *size, "--out", out, *more)
        bodies = [body for body in server.bodies if body]
    return Roll(ended, list(viewbox.load(out)) if (out / "episodes").exists() else [], bodies, out)


def by_request(answer: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
    """Mark a function of (body, number) as a server's answer."""
    answer.by_request = True  # type: ignore[attr-defined]
    return answer


@contextlib.contextmanager
def haste():
    """Let a client wait for milliseconds only before it tries again."""
    with mock.patch.dict(Connection.__init__.__kwdefaults__, {"first_pause": 0.002}):
        yield
