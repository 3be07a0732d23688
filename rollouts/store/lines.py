"""Lines of JSON that somebody else may have written: bounded, and with nothing in them that later code trips over."""

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn

MAX_LINE = 2**25  # bytes of a line: an episode's text; its images and tokens are other files
MAX_BRACKETS = 1_000_000  # in a line: in memory, each list or object takes a hundred times its two bytes
MAX_SKIPPED = 2**31  # bytes that are read to find the end of a longer line
MAX_DEPTH = 64  # objects and lists inside each other
MAX_COMPONENTS = 256  # of a line's scores: each name is a column of numbers when the run is scored
MAX_SCORE = 1e9
MAX_COUNT = 2**53  # of replies, samples and tasks
COUNTS = ("index", "sample", "malformed")  # what viewbox itself writes into `info`
_INVISIBLE = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\uffff]")
_BESIDE = ("tokens",)  # fields of an episode that are not part of its line


def read_lines(file: BinaryIO) -> Iterator[bytes | None]:
    """The lines of a file with their line breaks; None for a line longer than `MAX_LINE`, which is not kept.

    Of a line without an end, `MAX_SKIPPED` bytes are read; it is then the last one.

    >>> import io
    >>> list(read_lines(io.BytesIO(b"one\\ntwo")))
    [b'one\\n', b'two']
    """
    while line := file.readline(MAX_LINE + 1):
        if len(line) <= MAX_LINE:
            yield line
            continue
        skipped = 0
        while line and not line.endswith(b"\n") and skipped <= MAX_SKIPPED:
            line = file.readline(MAX_LINE)
            skipped += len(line)
        yield None
        if skipped > MAX_SKIPPED:
            return


def encode_line(text: str) -> bytes:
    r"""A line of JSON as the bytes of a file that every reader opens, and that acts on no terminal.

    Control characters and marks of direction are written as escapes; JSON reads them as before. A lone surrogate
    becomes U+FFFD: many readers refuse its escape, too.

    >>> encode_line('{"a": "\ud800\u202e"}').decode()
    '{"a": "\ufffd\\u202e"}\n'
    """
    if not text.isascii() or "\x7f" in text:
        text = _INVISIBLE.sub(_write_out, text)
    return text.encode() + b"\n"


def _write_out(match: re.Match[str]) -> str:
    return "\ufffd" if "\ud800" <= match[0] <= "\udfff" else f"\\u{ord(match[0]):04x}"


def parse_line(line: bytes) -> dict[str, Any]:
    """The JSON object in a line; raises `ValueError` if it is none, or holds NaN or an infinity.

    >>> parse_line(b'{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> parse_line(b'{"a": NaN}')
    Traceback (most recent call last):
    ValueError: NaN is not a JSON number
    """
    brackets = line.count(b"[") + line.count(b"{")
    if brackets > MAX_BRACKETS:
        raise ValueError(f"{brackets:,} lists and objects; allowed: {MAX_BRACKETS:,}")
    try:
        data = _DECODER.decode(line.decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise ValueError(f"nested more than {MAX_DEPTH} deep") from None
    if not isinstance(data, dict):
        raise ValueError(f"a {type(data).__name__}, not an object")
    return data


def check_episode(data: dict[str, Any]) -> None:
    """Raise `ValueError` if the fields of an episode that may hold anything hold what no episode holds.

    Its other fields are checked by their types when the record is made.
    """
    for name in _BESIDE:
        data.pop(name, None)
    task, info = data["task"], data.get("info") or {}
    parts = [task.get("prompt"), task.get("reference"), task.get("metadata"), data.get("answer"), info]
    for turn in data.get("turns", ()):
        if turn.get("tool_calls"):
            parts += [call.get("arguments") for call in turn["tool_calls"]]
        if turn.get("tool_results"):
            parts += [result.get(name) for result in turn["tool_results"] for name in ("facts", "arguments")]
    check_depth(parts)
    for name in COUNTS:
        value = info.get(name, 0)
        if not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
            raise ValueError(f"info.{name} = {value!r:.80}; allowed: a whole number from 0 to {MAX_COUNT}")
    if data.get("scores") is not None:
        check_scores(data["scores"])


def check_scores(scores: dict[str, Any]) -> None:
    """Raise `ValueError` for more names, or larger numbers, than any reward gives: sums of them must be finite."""
    components, faults = scores.get("components") or {}, scores.get("faults") or {}
    for key, values, kind in (("components", components, "numbers"), ("faults", faults, "reasons")):
        if not isinstance(values, dict):
            raise ValueError(f"scores.{key} = {values!r:.80}; allowed: {kind} by name")
        if len(values) > MAX_COMPONENTS:
            raise ValueError(f"scores.{key} has {len(values)} names; allowed: {MAX_COMPONENTS}")
    for name, value in (("total", scores.get("total")), *components.items()):
        if isinstance(value, int | float) and not -MAX_SCORE <= value <= MAX_SCORE:
            raise ValueError(f"score {name!r:.80} is {value!r:.80}; allowed: at most {MAX_SCORE:g}")


def check_depth(values: list[Any]) -> None:
    """Raise `ValueError` if any value is nested more than `MAX_DEPTH` deep."""
    layer, depth = values, -1
    while layer:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} deep")
        containers = [item for item in layer if type(item) is dict or type(item) is list]
        layer = []
        for outer in containers:
            layer += outer.values() if type(outer) is dict else outer


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
