"""JSON as models write it when they write it wrong, read where only one reading is possible.

Mended are: single, typographic and CJK quotes and punctuation, keys and single words without quotes, Python's literals
and tuples, comments, trailing commas, raw line breaks in strings, a comma missing at a line's end, a trailing ellipsis
among the keys, closing brackets missing at the end. Refused, with a reason, is what could mean two things: a quote
inside a string, a value that is missing or left out (…), a bare word that may be text or a literal (yes, none, nan),
brackets that cross. Nothing is filled in.

It is our own because the libraries do not pass on 64 KB of adversarial text. json_repair 0.64.5 is quadratic (over 5 s
for 64 KB of "{", 1.5 s for 8 KB), raises RecursionError on deep nesting, and needs 300 ms for half strings;
fast_json_repair 0.2.3 is linear (under 7 ms) but invents: '{"a": 50%}' becomes {"a": 50, "%": null}; pyjson5 2.0.1 is
fast and strict, and knows neither Python's literals nor missing closers, nor does pydantic_core's allow_partial. All
keep the last of two equal keys. This one is a pass of one regular expression; benchmarks/reply.py times it.
"""

import re
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from viewbox.envs.parsing.strict_json import MAX_DEPTH, MAX_VALUES, given_twice, integer, real

# No alternative reads further than its token, but for an unclosed " or ': one of each at most can run to the end.
_TOKEN = re.compile(
    r"""(?P<skip>[\s\ufeff]++|//[^\n]*+|\#[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?)
    |(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+"|'[^'\\]*+(?:\\.[^'\\]*+)*+'
        |[“”](?:[^“”\\]|\\.)*+[“”]|[‘’](?:[^‘’\\]|\\.)*+[‘’]|「(?:[^「」\\]|\\.)*+」)
    |(?P<comma>[,，、])|(?P<colon>[:：])|(?P<open>[{\[(｛［])|(?P<close>[}\])｝］])
    |(?P<number>[-+]?(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][-+]?[0-9]++)?+(?![\w.%]))
    |(?P<word>[^\W\d]\w*+)|(?P<dots>\.\.\.|…)|(?P<fence>```)|(?P<unclosed>["'“”‘’「])
    |(?P<odd>[-+.0-9][\w.+%/-]*+)|(?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
_CLOSERS = {"{": "}", "[": "]", "(": ")"}
_WIDE = str.maketrans("｛｝［］", "{}[]")
_LITERALS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_LITERALS |= dict.fromkeys(("null", "Null", "NULL", "None"))  # type: ignore[arg-type]
_EITHER = frozenset({"yes", "no", "on", "off", "y", "n", "t", "f", "true", "false", "none", "nil", "null", "undefined"})
_SAME = frozenset({("continue", "yes"), ("continue", "no")})  # means the same either way
_NOT_NUMBERS = frozenset({"nan", "inf", "infinity"})
_CROSSED = "brackets cross: a list is not closed with ]"
_QUOTE_OR_ESCAPE = re.compile(r'\\.|"', re.DOTALL)
_GOES_ON = re.compile(r"\s*+[,:}\])]")


@dataclass(frozen=True, slots=True)
class Mended:
    """What was read: `value` up to `end`, or `complaint`, and then how `deep` in brackets the reading stopped.

    Where the text ended inside it, `whole` is False and `value` is what had been said until then (None: nothing).
    """

    value: Any
    end: int
    complaint: str | None = None
    whole: bool = True
    deep: int = 0


def mend(text: str, begin: int, limit: int, *, cut: bool = False) -> Mended:
    """The object or list that begins at `begin` and ends before `limit`; `cut` says that the writing broke off there.

    >>> text = "{'side': “left”, seen: True, box: [0.1, .5,], // sure\\n}"
    >>> mend(text, 0, len(text)).value
    {'side': 'left', 'seen': True, 'box': [0.1, 0.5]}
    >>> print(mend('{"a": "said "left"}', 0, 19).complaint)
    a " inside a string must be written \\", before 'left"}'
    """
    reading = _Reading(text)
    for token in _TOKEN.finditer(text, begin, limit):
        kind = token.lastgroup
        if kind == "skip":
            reading.new_line = reading.new_line or "\n" in token[0]
        elif kind == "fence":
            return reading.ended(token.start(), cut=False)
        elif kind == "unclosed" and reading.state in ("key", "value"):
            return reading.ended(limit, cut=True, complaint="a string is never closed")
        elif kind == "odd" and cut and token.end() == limit and reading.state == "value":
            return reading.ended(limit, cut=True)
        else:
            reading.take(str(kind), token)
            if reading.complaint is not None:
                return Mended(None, token.start(), reading.complaint, deep=len(reading.open))
            if not reading.open:
                return reading.closed(token.end(), limit)
    return reading.ended(limit, cut=cut)


class _Open:
    """A container that is not closed yet."""

    __slots__ = ("closer", "key", "value")

    def __init__(self, bracket: str) -> None:
        self.closer = _CLOSERS[bracket]
        self.value: Any = {} if bracket == "{" else []
        self.key = ""

    def add(self, value: Any) -> None:
        if self.closer == "}":
            self.value[self.key] = value
        else:
            self.value.append(value)


class _Reading:
    """The open containers and what may come next: a key, the colon after it, a value, or what follows a value."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.open: list[_Open] = []
        self.root: Any = None
        self.state = "value"
        self.new_line = False  # since the last token
        self.complaint: str | None = None
        self._values = 0
        self._last: re.Match[str] | None = None  # the last token
        self._crossed = False  # a list was closed by the bracket of its object

    def take(self, kind: str, token: re.Match[str]) -> None:
        """One more token; what is wrong with it is then the `complaint`."""
        if self.state == "key":
            self._key(kind, token[0])
        elif self.state == "colon":
            self._expect(kind == "colon", "value", f"the key {self.open[-1].key[:64]!r} is not followed by a colon")
        elif self.state == "value":
            self._value(kind, token[0])
        elif self.state == "next":
            self._next(kind, token[0])
        elif kind == "close":  # after an ellipsis
            self._close(token[0])
        else:
            self._expect(kind == "comma", "elided", "something is left out (...): write it out")
        if self.complaint is not None:
            near = self.text[token.start() : token.start() + 24].partition("\n")[0]
            self.complaint = f"{self.complaint}, before {near!r}"
        self._last = token
        self.new_line = False

    def ended(self, end: int, *, cut: bool, complaint: str | None = None) -> Mended:
        """The text ended before the last bracket closed: whole if only closing brackets are missing."""
        whole = not cut and self.state == "next" and not self._crossed
        last = self._last
        ends_bare = last is not None and last.lastgroup in ("number", "word") and last.end() == end
        if cut and self.state == "next" and ends_bare:  # more of it may have been to come
            self._drop()
        while len(self.open) > 1:
            inner = self.open.pop().value
            if whole or _worth(inner):
                self.open[-1].add(inner)
        value = self.open[0].value if self.open else None
        if whole:
            return Mended(value, end)
        return Mended(value or None, end, complaint or "it is not finished", whole=False)

    def closed(self, end: int, limit: int) -> Mended:
        """The last bracket closed."""
        if self._crossed and _GOES_ON.match(self.text, end, limit):
            return Mended(None, end, _CROSSED)
        return Mended(self.root, end)

    def _expect(self, right: bool, state: str, otherwise: str) -> None:
        if right:
            self.state = state
        else:
            self.complaint = otherwise

    def _key(self, kind: str, word: str) -> None:
        if kind == "close":
            self._close(word)
        elif kind == "dots":
            self.state = "elided"
        elif kind in ("string", "word"):
            key = self._string(word) if kind == "string" else word
            if key in self.open[-1].value:
                self.complaint = given_twice(key)
            self.open[-1].key = key
            self.state = "colon"
        else:
            escaped = 'the quotes around keys and values are written ", not \\"'
            self.complaint = escaped if word == "\\" else "a key in double quotes is expected"

    def _value(self, kind: str, word: str) -> None:
        if kind == "open":
            bracket = word.translate(_WIDE)
            self.open.append(_Open(bracket))
            self.state = "key" if bracket == "{" else "value"
            if len(self.open) > MAX_DEPTH:
                self.complaint = f"nested more than {MAX_DEPTH} deep"
        elif kind == "string":
            self._add(self._string(word))
        elif kind == "number":
            self._add(self._number(word))
        elif kind == "word":
            self._add(self._word(word))
        elif kind == "close" and self.open and self.open[-1].closer != "}":
            self._close(word)
        elif kind == "dots":
            self.complaint = "a value is left out (...): write it out"
        elif kind == "odd":
            self.complaint = f"{word[:32]} is not a JSON number"
        else:
            self.complaint = "a value is missing" if kind in ("comma", "close") else "a JSON value is expected"

    def _next(self, kind: str, word: str) -> None:
        inside = self.open[-1]
        if self._crossed and kind != "close":
            self.complaint = _CROSSED
        elif kind == "comma":
            self.state = "key" if inside.closer == "}" else "value"
        elif kind == "close":
            self._close(word)
        elif kind == "string" and self.new_line and inside.closer == "}":  # a comma is missing at the line's end
            self._key(kind, word)
        elif self._last is not None and self._last.lastgroup == "string":
            double = 'a " inside a string must be written \\"'
            self.complaint = double if self._last[0][0] == '"' else "a string ends early: write it in double quotes"
        else:
            self.complaint = f"a comma or {inside.closer} is expected"

    def _close(self, bracket: str) -> None:
        bracket = bracket.translate(_WIDE)
        inside = [one.closer for one in self.open[-2:]]
        if bracket == "}" and inside == ["}", "]"] and self.state == "next" and not self._crossed:
            self._crossed = True  # {"box": [1, 2}: clear if nothing but closing brackets follows
            self._pop()
        if bracket != self.open[-1].closer:
            self.complaint = f"{bracket} stands where {self.open[-1].closer} is expected"
        elif bracket == ")" and len(self.open[-1].value) < 2:
            self.complaint = "( ) is not JSON: a list is written [ ]"
        else:
            self._pop()

    def _pop(self) -> None:
        value = self.open.pop().value
        self.state = "next"
        if self.open:
            self._add(value)
        else:
            self.root = value

    def _add(self, value: Any) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            self.complaint = f"holds more than {MAX_VALUES} values"
        self.open[-1].add(value)
        self.state = "next"

    def _drop(self) -> None:
        inside = self.open[-1].value
        if isinstance(inside, dict):
            inside.popitem()
        else:
            inside.pop()

    def _string(self, quoted: str) -> str:
        inside = quoted[1:-1]
        if "\\" not in inside:
            return inside
        try:
            return scanstring(f'{_QUOTE_OR_ESCAPE.sub(_escaped, inside)}"', 0, False)[0]
        except ValueError as error:
            self.complaint = f"a string cannot be read ({getattr(error, 'msg', error)}): a backslash is written \\\\"
            return ""

    def _number(self, written: str) -> int | float:
        digits = written.lstrip("+-")
        if digits[0] == "0" and digits[1:2].isdigit():
            self.complaint = f"{written[:32]} is not a JSON number: it begins with 0"
            return 0
        value, complaint = integer(written) if digits.isdigit() else real(written)
        self.complaint = self.complaint or complaint
        return value

    def _word(self, word: str) -> Any:
        if word in _LITERALS:
            return _LITERALS[word]
        plain = word.lower()
        if plain in _NOT_NUMBERS:
            self.complaint = f"{word} is not a JSON number"
        elif plain in _EITHER and (self.open[-1].key, plain) not in _SAME:
            self.complaint = f"{word} may be text or a literal: write it in double quotes, or true, false or null"
        return word


def _escaped(found: re.Match[str]) -> str:
    """What stands for `found` inside a JSON string: a plain double quote is escaped, a single one is not."""
    return {'"': '\\"', "\\'": "'"}.get(found[0], found[0])


def _worth(inner: Any) -> bool:
    """Whether a container that was never finished says something: half a box does not."""
    if isinstance(inner, dict):
        return bool(inner)
    return any(not isinstance(item, int | float) or isinstance(item, bool) for item in inner)
