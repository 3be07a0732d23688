"""Reads JSON as the standard defines it, with limits on what one reply may hold, and the faulty JSON that models write.

`decode_json` is the standard library's decoder; what that accepts against the standard is refused: NaN, infinities and
duplicate keys. `parse_lenient_json` reads what it cannot, if only one reading is possible. It accepts single,
typographic, CJK and Gemma's quotes (<|"|>), CJK punctuation, = for a colon, keys and single words without quotes, the
arguments of a Python call (those without a name have their place as key), Python's literals and tuples, comments,
trailing commas, raw line breaks in strings, a comma missing at a line's end, a trailing ellipsis among the keys,
closing brackets missing at the end. It refuses, with a reason, what could mean two things: a quote inside a string, a
missing or omitted value (…), a bare word that may be text or a literal (yes, none, nan), crossing brackets. Nothing is
filled in: if the text ends right after a bare word or a number, the value may be cut off, so it is dropped and the
object counts as incomplete.

The libraries are quadratic on adversarial text (json_repair), invent values (fast_json_repair), or read neither
Python's literals nor missing brackets. This reader is a pass of one regular expression; benchmarks/reply.py times it.
"""

import json
import math
import re
from collections.abc import Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from threading import local
from typing import Any, NamedTuple

from ...errors import show_json
from ...utils.sanitize import map_texts, replace_surrogates

MAX_DEPTH = 64  # objects and lists inside each other
MAX_VALUES = 3_000  # in one object, at any depth: a schema checks so many in about 30 ms
MAX_DIGITS = 308  # of an integer: a float can still hold it


class ReadJson(NamedTuple):
    """The value at a position: `value` is None if there is no JSON; `complaint` says why it cannot be used; it ends, or
    cannot be read further, at `end`, `depth` brackets deep. If the text ended inside the value, `complete` is False and
    `written` is the part that was written completely."""

    value: Any
    end: int
    complaint: str | None
    depth: int = 0
    complete: bool = True
    written: Any = None


class _Decoder(local):
    """The decoder of a thread: making one takes as long as reading a short reply. It notes what it lets pass."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.decoder = json.JSONDecoder(
            object_pairs_hook=self._build_object,
            parse_constant=lambda name: self.complaints.append(f"{name} is not a JSON number"),
            parse_int=lambda digits: self._note(*parse_integer(digits)),
            parse_float=self._read_float,
        )

    def _build_object(self, pairs: list[tuple[str, Any]]) -> Any:
        try:
            return build_object(pairs)
        except ValueError as error:
            return self._note(dict(pairs), str(error))

    def _read_float(self, digits: str) -> Any:
        value = float(digits)
        return value if math.isfinite(value) else self._note(*parse_float(digits))

    def _note(self, value: object, complaint: str | None) -> object:
        if complaint is not None:
            self.complaints.append(complaint)
        return value


_THREAD = _Decoder()


def decode_json(text: str, begin: int = 0) -> ReadJson:
    """Return the JSON value at `begin` of `text`, where it ends, and what is wrong with it; never raises.

    >>> decode_json('so: {"a": 1} yes', 4)[:3]
    ({'a': 1}, 12, None)
    >>> decode_json('{"a": NaN}').complaint
    'NaN is not a JSON number'
    """
    _THREAD.complaints.clear()
    try:
        value, end = _THREAD.decoder.raw_decode(text, begin)
    except json.JSONDecodeError as error:
        return ReadJson(None, error.pos, f"{error.msg} at character {error.pos}")
    except RecursionError:
        return ReadJson(None, len(text), f"nested more than {MAX_DEPTH} deep")
    is_short = end - begin < MAX_VALUES and text.count("{", begin, end) + text.count("[", begin, end) <= MAX_DEPTH
    excess = None if is_short or not isinstance(value, dict | list) else _describe_excess(value)
    complaint = _THREAD.complaints[0] if _THREAD.complaints else excess
    if complaint is None and text.find("\\u", begin, end) >= 0:  # an escape may be half of a surrogate pair
        value = map_texts(value, replace_surrogates)
    return ReadJson(value, end, complaint)


def parse_integer(digits: str) -> tuple[int, str | None]:
    """Return the integer, or 0 and why it cannot be used."""
    if len(digits) <= MAX_DIGITS:
        return int(digits), None
    return 0, f"a number of {len(digits)} digits is too large"


def parse_float(digits: str) -> tuple[float, str | None]:
    """Return the finite number, or 0.0 and why it cannot be used."""
    value = float(digits)
    return (value, None) if math.isfinite(value) else (0.0, f"the number {digits[:32]} is too large")


def build_object(pairs: list[tuple[str, Any]]) -> dict[str, object]:
    """Return a JSON object from its pairs, as an `object_pairs_hook`; raise `ValueError` if a key is given twice.

    >>> json.loads('{"a": 1, "a": 2}', object_pairs_hook=build_object)
    Traceback (most recent call last):
    ValueError: the key "a" is given twice
    """
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(describe_duplicate(twice))
    return value


def describe_duplicate(key: str) -> str:
    """Return the complaint about a key that an object has twice."""
    return f"the key {show_json(key[:64])} is given twice"


def _describe_excess(value: Any) -> str | None:
    """Return what exceeds a limit in `value`: its nesting, or the number of its values."""
    layer, count, depth = [value], 1, 0
    while layer:
        if depth > MAX_DEPTH:
            return f"nested more than {MAX_DEPTH} deep"
        inner = [item for outer in layer for item in (outer.values() if isinstance(outer, dict) else outer)]
        count += len(inner)
        if count > MAX_VALUES:
            return f"holds more than {MAX_VALUES} values"
        layer = [item for item in inner if isinstance(item, dict | list)]
        depth += 1
    return None


# No alternative reads beyond its token, except an unclosed " or ': at most one of each can run to the end.
_TOKEN = re.compile(
    r"""(?P<skip>[\s\ufeff]++|//[^\n]*+|\#[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?)
    |(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+"|'[^'\\]*+(?:\\.[^'\\]*+)*+'
        |<\|"\|>(?:(?!<\|"\|>).)*+<\|"\|>|[“”](?:[^“”\\]|\\.)*+[“”]|[‘’](?:[^‘’\\]|\\.)*+[‘’]|「(?:[^「」\\]|\\.)*+」)
    |(?P<comma>[,，、])|(?P<colon>[:：=])|(?P<open>[{\[(｛［])|(?P<close>[}\])｝］])
    |(?P<number>[-+]?(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][-+]?[0-9]++)?+(?![\w.%]))
    |(?P<word>[^\W\d]\w*+)|(?P<dots>\.\.\.|…)|(?P<fence>```)|(?P<unclosed><\|"\|>|["'“”‘’「])
    |(?P<odd>[-+.0-9][\w.+%/-]*+)|(?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
_ARGUMENT_NAME = re.compile(r"[^\W\d]\w*+\s*+=")
_CLOSERS = {"{": "}", "[": "]", "(": ")"}
_WIDE = str.maketrans("｛｝［］", "{}[]")
_LITERALS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_LITERALS |= dict.fromkeys(("null", "Null", "NULL", "None"))  # type: ignore[arg-type]
_AMBIGUOUS = frozenset(
    {"yes", "no", "on", "off", "y", "n", "t", "f", "true", "false", "none", "nil", "null", "undefined"}
)
_UNAMBIGUOUS = frozenset({("continue", "yes"), ("continue", "no")})  # (key, word): text and literal mean the same
_NOT_NUMBERS = frozenset({"nan", "inf", "infinity"})
_CROSSED = "brackets cross: a list is not closed with ]"
_QUOTES = {'"': '\\"', "\\'": "'"}  # inside a JSON string, a double quote is escaped, and a single one is not
_QUOTE_OR_ESCAPE = re.compile(r'\\.|"', re.DOTALL)
_CONTINUES = re.compile(r"\s*+[,:}\])]")


def parse_lenient_json(text: str, begin: int, limit: int, *, cut: bool = False) -> ReadJson:
    """Return the object, list or ( ) of a call from `begin` to `limit`; `cut`: the token budget ended it there.

    >>> text = "{'side': “left”, seen: True, box: [0.1, .5,], // sure\\n}"
    >>> parse_lenient_json(text, 0, len(text)).value
    {'side': 'left', 'seen': True, 'box': [0.1, 0.5]}
    >>> print(parse_lenient_json('{"a": "said "left"}', 0, 19).complaint)
    a " inside a string must be written \\", before 'left"}'
    """
    reader = _Reader(text)
    for token in _TOKEN.finditer(text, begin, limit):
        kind = token.lastgroup
        if kind == "skip":
            reader.after_newline = reader.after_newline or "\n" in token[0]
        elif kind == "fence":
            return reader.finish_unclosed(token.start(), cut=False)
        elif kind == "unclosed" and reader.state in ("key", "value"):
            return reader.finish_unclosed(limit, cut=True, complaint="a string is never closed")
        elif kind == "odd" and cut and token.end() == limit and reader.state == "value":
            return reader.finish_unclosed(limit, cut=True)
        else:
            reader.read_token(str(kind), token)
            if reader.complaint is not None:
                return ReadJson(None, token.start(), reader.complaint, len(reader.containers))
            if not reader.containers:
                return reader.finish_closed(token.end(), limit)
    return reader.finish_unclosed(limit, cut=cut)


class _Container:
    """An object or a list that is not closed yet."""

    __slots__ = ("closer", "key", "value")

    def __init__(self, bracket: str, is_object: bool) -> None:
        self.closer = _CLOSERS[bracket]
        self.value: Any = {} if is_object else []
        self.key: Any = ""

    def add(self, value: object) -> None:
        if isinstance(self.value, dict):
            self.value[self.key] = value
        else:
            self.value.append(value)


class _Reader:
    """The open containers, and what may come next: a key, the colon after it, a value, or what follows a value."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.containers: list[_Container] = []
        self.root: Any = None
        self.state = "value"
        self.after_newline = False  # since the last token
        self.complaint: str | None = None
        self._values = 0
        self._last: re.Match[str] | None = None  # the last token
        self._crossed = False  # a list was closed by the bracket of its object

    def read_token(self, kind: str, token: re.Match[str]) -> None:
        """Read one more token; what is wrong with it becomes the `complaint`."""
        if self.state == "key":
            self._read_key(kind, token[0], token.start())
        elif self.state == "colon" and kind == "colon":
            self.state = "value"
        elif self.state == "colon":
            self.complaint = f"the key {show_json(self.containers[-1].key[:64])} is not followed by a colon"
        elif self.state == "value":
            self._read_value(kind, token[0])
        elif self.state == "next":
            self._read_after_value(kind, token[0])
        elif kind == "close":  # after an ellipsis
            self._close_bracket(token[0])
        elif kind != "comma":
            self.complaint = "a part is left out (...): write all of it"
        if self.complaint is not None:
            near = self.text[token.start() : token.start() + 24].partition("\n")[0]
            self.complaint = f"{self.complaint}, before '{near}'"
        self._last = token
        self.after_newline = False

    def finish_unclosed(self, end: int, *, cut: bool, complaint: str | None = None) -> ReadJson:
        """Return the text ended before the last bracket closed: complete if only closing brackets are missing."""
        unfinished = self.state == "next" and self._ends_in_bare_token(end, cut)
        if unfinished:
            inside = self.containers[-1].value
            if isinstance(inside, dict):
                inside.popitem()
            else:
                inside.pop()
        complete = not cut and not unfinished and self.state == "next" and not self._crossed
        while len(self.containers) > 1:
            inner = self.containers.pop().value
            if complete or _is_worth_keeping(inner, is_field=len(self.containers) == 1):
                self.containers[-1].add(inner)
        value = self.containers[0].value if self.containers else None
        if complete:
            return ReadJson(value, end, None)
        return ReadJson(None, end, complaint or "it is not finished", 0, False, value)

    def _ends_in_bare_token(self, end: int, cut: bool) -> bool:
        """Return whether the text ends right after a number or a bare word, so that the token may be cut off.
        A literal (true, null) is complete if the model ended the reply by itself."""
        last = self._last
        if last is None or last.lastgroup not in ("number", "word") or last.end() != end:
            return False
        return cut or (end == len(self.text) and last[0] not in _LITERALS)

    def finish_closed(self, end: int, limit: int) -> ReadJson:
        """Return the last bracket closed."""
        if self._crossed and _CONTINUES.match(self.text, end, limit):
            return ReadJson(None, end, _CROSSED)
        return ReadJson(self.root, end, None)

    def _read_key(self, kind: str, word: str, begin: int = 0) -> None:
        if kind == "close":
            self._close_bracket(word)
        elif self.containers[-1].closer == ")" and _ARGUMENT_NAME.match(self.text, begin) is None:  # a value only
            self.containers[-1].key = len(self.containers[-1].value)
            self._read_value(kind, word)
        elif kind == "dots":
            self.state = "elided"
        elif kind in ("string", "word"):
            key = self._parse_string(word) if kind == "string" else word
            if key in self.containers[-1].value:
                self.complaint = describe_duplicate(key)
            self.containers[-1].key = key
            self.state = "colon"
        else:
            escaped = 'write the quotes around keys and values as ", not \\"'
            self.complaint = escaped if word == "\\" else "a key in double quotes is expected"

    def _read_value(self, kind: str, word: str) -> None:
        if kind == "open":
            bracket = word.translate(_WIDE)
            is_object = bracket == "{" or (bracket == "(" and not self.containers)
            self.containers.append(_Container(bracket, is_object))
            self.state = "key" if is_object else "value"
            if len(self.containers) > MAX_DEPTH:
                self.complaint = f"nested more than {MAX_DEPTH} deep"
        elif kind == "string":
            self._add_value(self._parse_string(word))
        elif kind == "number":
            self._add_value(self._parse_number(word))
        elif kind == "word":
            self._add_value(self._parse_word(word))
        elif kind == "close" and self.containers and isinstance(self.containers[-1].value, list):
            self._close_bracket(word)
        elif kind == "dots":
            self.complaint = "a value is left out (...): write the value"
        elif kind == "odd":
            self.complaint = f"{word[:32]} is not a JSON number"
        else:
            self.complaint = "a value is missing" if kind in ("comma", "close") else "a JSON value is expected"

    def _read_after_value(self, kind: str, word: str) -> None:
        inside = self.containers[-1]
        if self._crossed and kind != "close":
            self.complaint = _CROSSED
        elif kind == "comma":
            self.state = "key" if isinstance(inside.value, dict) else "value"
        elif kind == "close":
            self._close_bracket(word)
        elif kind == "string" and self.after_newline and inside.closer == "}":  # a comma is missing at the line's end
            self._read_key(kind, word)
        elif self._last is not None and self._last.lastgroup == "string":
            double = 'a " inside a string must be written \\"'
            self.complaint = double if self._last[0][0] == '"' else "a string ends early: write it in double quotes"
        else:
            self.complaint = f"a comma or {inside.closer} is expected"

    def _close_bracket(self, bracket: str) -> None:
        bracket = bracket.translate(_WIDE)
        closers = [container.closer for container in self.containers[-2:]]
        if bracket == "}" and closers == ["}", "]"] and self.state == "next" and not self._crossed:
            self._crossed = True  # {"box": [1, 2}: clear if nothing but closing brackets follows
            self._pop_container()
        if bracket != self.containers[-1].closer:
            self.complaint = f"found {bracket}, but {self.containers[-1].closer} is expected"
        elif bracket == ")" and isinstance(self.containers[-1].value, list) and len(self.containers[-1].value) < 2:
            self.complaint = "( ) is not JSON: a list is written [ ]"
        else:
            self._pop_container()

    def _pop_container(self) -> None:
        value = self.containers.pop().value
        self.state = "next"
        if self.containers:
            self._add_value(value)
        else:
            self.root = value

    def _add_value(self, value: Any) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            self.complaint = f"holds more than {MAX_VALUES} values"
        self.containers[-1].add(value)
        self.state = "next"

    def _parse_string(self, quoted: str) -> str:
        if quoted[0] == "<":  # Gemma's quotes: nothing inside is escaped
            return quoted[5:-5]
        inside = quoted[1:-1]
        if "\\" not in inside:
            return inside
        try:
            escaped = _QUOTE_OR_ESCAPE.sub(lambda match: _QUOTES.get(match[0], match[0]), inside)
            text: str = scanstring(f'{escaped}"', 0, False)[0]
            return replace_surrogates(text)
        except ValueError as error:
            self.complaint = f"a string cannot be read ({getattr(error, 'msg', error)}): a backslash is written \\\\"
            return ""

    def _parse_number(self, written: str) -> int | float:
        digits = written.lstrip("+-")
        if digits[0] == "0" and digits[1:2].isdigit():
            self.complaint = f"{written[:32]} is not a JSON number: it begins with 0"
            return 0
        value, complaint = parse_integer(written) if digits.isdigit() else parse_float(written)
        self.complaint = self.complaint or complaint
        return value

    def _parse_word(self, word: str) -> Any:
        if word in _LITERALS:
            return _LITERALS[word]
        plain = word.lower()
        if plain in _NOT_NUMBERS:
            self.complaint = f"{word} is not a JSON number"
        elif plain in _AMBIGUOUS and (self.containers[-1].key, plain) not in _UNAMBIGUOUS:
            self.complaint = f"{word} may be text or a literal: write it in double quotes, or true, false or null"
        return word


def _is_worth_keeping(inner: Any, *, is_field: bool) -> bool:
    """Return whether a container that was never closed is worth keeping: half a point, in a list or an object, is
    not."""
    if isinstance(inner, dict) or is_field:
        return bool(inner)
    return any(not isinstance(item, int | float) or isinstance(item, bool) for item in inner)


def read_by_schema(text: str, schema: object) -> object:
    """Return the value that a parameter's schema makes of a text.

    >>> read_by_schema("2", {"type": "integer"}), read_by_schema("2", {"type": "string"}), read_by_schema("2", None)
    (2, '2', '2')
    >>> read_by_schema("two", {"type": "integer"}), read_by_schema("['a', True]", {"type": "array"})
    ('two', ['a', True])
    >>> read_by_schema("500, 500", {"type": "array"}), read_by_schema("500, 500", {"type": "number"})
    ([500, 500], '500, 500')
    """
    if _allows_text(schema):
        return text
    listed = f"[{text}]"
    value, end, complaint, *_ = decode_json(listed)
    if value is None:
        value, end, complaint, *_ = parse_lenient_json(listed, 0, len(listed))
    if complaint is not None or end != len(listed) or not value:
        return text
    is_list = isinstance(schema, Mapping) and schema.get("type") == "array" and len(value) > 1
    if is_list and all(type(item) in (int, float) for item in value):
        return value
    return value[0] if len(value) == 1 else text


def _allows_text(schema: object) -> bool:
    if not isinstance(schema, Mapping):
        return True
    kinds, options = schema.get("type"), [*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())]
    return any(map(_allows_text, options)) if kinds is None and options else kinds is None or "string" in kinds
