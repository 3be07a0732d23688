"""Lines of JSON that somebody else may have written: bounded, and with nothing in them that later code trips over."""

import json
import re
import string
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

import msgspec

from ...errors import StoreError
from ...records import Episode, Scores
from ...utils.files import open_regular
from ...utils.frozen import FrozenDict
from .layout import LINES, MAX_FILE

MAX_LINE = 2**25  # bytes of a line: an episode's text; its images and tokens are other files
MAX_BRACKETS = 1_000_000  # in a line: in memory, each list or object takes a hundred times its two bytes
MAX_COMMAS = 8_000_000  # in a line: a number between them may take eight times its bytes
MAX_SKIPPED = 2**31  # bytes that are read to find the end of a longer line
MAX_DEPTH = 64  # objects and lists inside each other
MAX_COMPONENTS = 256  # of a line's scores: each name is a column of numbers when the run is scored
MAX_SCORE = 1e9
MAX_COUNT = 2**53  # of replies, samples and tasks
COUNTS = ("index", "sample", "malformed")  # what viewbox itself writes into `info`
_INVISIBLE = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\uffff]")
_CONTAINERS = frozenset({FrozenDict, tuple})
_HASH_BYTES = (string.ascii_letters + string.digits).encode()
_EPISODE = msgspec.json.Decoder(Episode)


class LinePart(NamedTuple):
    """A part of the lines: where it begins, how many lines it has (None: all that follow), the number of the first."""

    start: int = 0
    lines: int | None = None
    first: int = 1


def open_lines(folder: Path) -> BinaryIO:
    """Return the lines of a folder of episodes; raise `StoreError` if they cannot be read."""
    try:
        return open_regular(folder / LINES, limit=MAX_FILE, inside=folder)
    except OSError as error:
        raise StoreError(f"{folder / LINES}: cannot be read ({error.strerror})") from error


def read_lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Yield the lines of a file with their line breaks; None for a line longer than `MAX_LINE`, which is not kept.
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


def is_passed_over(line: bytes | None) -> bool:
    """Return whether a line is blank, or the partial last line of a killed process."""
    if line is None:
        return False
    return (not line.endswith(b"\n") and not is_json(line)) or line.isspace()


def is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError, MemoryError):
        return False
    return True


def encode_line(text: str) -> bytes:
    r"""Return a line of JSON as the bytes of a file that every reader opens, and that acts on no terminal.
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


def parse_line(line: bytes) -> dict[str, object]:
    """Return the JSON object in a line; raise `ValueError` if it is none, or holds NaN or an infinity. A mark of the
    byte order before it is passed over.

    >>> parse_line(b'{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> parse_line(b'{"a": NaN}')
    Traceback (most recent call last):
    ValueError: NaN is not a JSON number
    """
    check_values(line)
    try:
        data = _DECODER.decode(line.removeprefix(BOM_UTF8).decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise ValueError(f"nested more than {MAX_DEPTH} deep") from None
    if not isinstance(data, dict):
        raise ValueError(f"a {type(data).__name__}, not an object")
    return data


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def decode_episode(line: bytes) -> Episode:
    """Return the episode in a line, as the line says, without tokens; raise `ValueError` that says what is wrong.

    >>> decode_episode(b'{"task": {"id": "a"}, "end_reason": "won"}')
    Traceback (most recent call last):
    msgspec.ValidationError: Invalid enum value 'won' - at `$.end_reason`
    """
    check_values(line)
    try:
        try:
            episode = _EPISODE.decode(line)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:  # no JSON, or half a surrogate pair, which only Python reads
            data = parse_line(line)
            data.pop("stored_tokens", None)
            episode = msgspec.convert(data, Episode)
        _check_values(episode)
    except RecursionError:
        raise ValueError(f"nested more than {MAX_DEPTH} deep") from None
    for name in COUNTS:
        value = episode.info.get(name, 0)
        if not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
            raise ValueError(f"info.{name} = {value!r:.80}; allowed: a whole number from 0 to {MAX_COUNT}")
    if episode.scores is not None:
        check_scores(episode.scores, episode.num_turns)
    return episode


def check_scores(scores: Scores, replies: int | None = None) -> None:
    """Raise `ValueError` for more names, or larger numbers, than any reward gives: sums of them must be finite; or if
    `turns` are not those of so many replies."""
    if replies is not None and len(scores.turns) not in (0, replies):
        raise ValueError(f"scores.turns has {len(scores.turns)} numbers; allowed: one for each of {replies} replies")
    for key, values in (("components", scores.components), ("faults", scores.faults)):
        if len(values) > MAX_COMPONENTS:
            raise ValueError(f"scores.{key} has {len(values)} names; allowed: {MAX_COMPONENTS}")
    for name, value in (("total", scores.total), *scores.components.items(), *(("turns", one) for one in scores.turns)):
        if value is not None and not -MAX_SCORE <= value <= MAX_SCORE:
            raise ValueError(f"score {name!r:.80} is {value!r:.80}; allowed: at most {MAX_SCORE:g}")


def check_values(line: bytes) -> None:
    """Raise `ValueError` if JSON may hold so many values that they take many times its bytes in memory."""
    if len(line) > MAX_BRACKETS:
        brackets, commas = line.count(b"[") + line.count(b"{"), line.count(b",")
        if brackets > MAX_BRACKETS or commas > MAX_COMMAS:
            allowed = f"{MAX_BRACKETS:,} lists and objects, {MAX_COMMAS:,} commas"
            raise ValueError(f"{brackets:,} lists and objects, {commas:,} commas; allowed: {allowed}")


def _check_values(episode: Episode) -> None:
    """Raise `ValueError` for a value nested more than `MAX_DEPTH` deep, or a hash that is not of letters and digits."""
    task = episode.task
    hashes = [ref.hash for ref in task.images]
    values: list[Any] = [task.prompt, task.reference, task.metadata, episode.answer, episode.info]
    for turn in episode.turns:
        if turn.images:
            hashes += [ref.hash for ref in turn.images]
        for call in turn.tool_calls:
            values.append(call.arguments)
        for result in turn.tool_results:
            values += (result.facts, result.arguments)
            if result.image is not None:
                hashes.append(result.image.hash)
    if "".join(hashes).encode(errors="replace").translate(None, _HASH_BYTES):  # a path is made of each
        wrong = next(hash_ for hash_ in hashes if not (hash_.isascii() and hash_.isalnum()))
        raise ValueError(f"{wrong[:80]!r} is not the hash of an image")
    try:
        msgspec.convert((values,), _Shallow)
    except msgspec.ValidationError:
        _check_depth(values)


_Values: Any = str | int | float | bool | None
for _ in range(4):
    _Values = str | int | float | bool | None | list[_Values] | dict[str, _Values]


class _Shallow(msgspec.Struct, array_like=True, gc=False):
    """Values as nearly all lines hold them: what msgspec makes of them at once needs no slower look."""

    values: list[_Values]


def _check_depth(layer: list[Any]) -> None:
    for _ in range(MAX_DEPTH + 1):
        layer = [value for value in layer if type(value) in _CONTAINERS]
        if not layer:
            return
        layer = [item for value in layer for item in (value.values() if type(value) is FrozenDict else value)]
    raise ValueError(f"nested more than {MAX_DEPTH} deep")
