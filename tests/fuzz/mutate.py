"""Damage to good bytes, texts and JSON values. All chance comes from a `random.Random`, so a seed repeats it."""

import copy
import json
import random
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

STRETCH = 64  # bytes that one change touches at most
MAX_TEXT = 2**22  # characters of a damaged value
MAX_PLACES = 5_000  # values in a value that is still multiplied
NUMBERS = (0, 1, 127, 128, 254, 255)
WORDS = (b"\0\0\0\0", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f")
ODD_TEXTS = (
    "", " ", "\x00", "\ud800", "\\ud800", "\u202e", "\x1b]52;c;eA==\x07", "é", "－7", "../../x", "/etc/hostname",
    "nan", "1e999", "-0", "true", "null", "~", "{{ 1 }}", "{% for a in b %}", "!!python/object:os.system", "*a",
    "&a", "<<", ": ", "- ", "|", ">", "no", "not", "without", "n't", ", ", ";", "“", "：", "(-)", "{", "}", "[",
    "]", "(", ")", '"', "'", "`", "\n", "\t", "\r\n", "<think>", "</think>", "<tool_call>", "</tool_call>",
    "```json\n", "```", "<|im_end|>", "<|image_pad|>", "[/data", "%s", "%", "#", "a.b:c", "file:///etc/passwd",
    "http://192.0.2.1/", "data:image/png;base64,AAAA", "digits", "judge", "python",
)  # fmt: skip
ODD_VALUES = (
    None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e308, -1e308, 5e-324, 2**31, 2**53 + 1, 2**63, -(2**63), 10**30,
    10**400, float("nan"), float("inf"), float("-inf"), [], {}, [[]], [{}], {"": {}}, [None], "",
)  # fmt: skip


def mutate_bytes(chance: random.Random, content: bytes, others: Sequence[bytes]) -> bytes:
    """Bytes and stretches are changed, copied, cut out, put in, or taken from another."""
    damaged = bytearray(content)
    reach = min(len(damaged), chance.choice([64, 400, 2000, len(damaged)]))  # headers are near the beginning
    for _ in range(chance.choice([1, 1, 2, 5, 30])):
        place, size = chance.randrange(max(1, min(reach, len(damaged)))), chance.randrange(1, STRETCH)
        kind = chance.randrange(8)
        if kind <= 2:
            damaged[place : place + 1] = bytes([chance.choice([*NUMBERS, chance.randrange(256)])])
        elif kind == 3:
            damaged[place : place + 4] = chance.choice(WORDS)
        elif kind == 4:
            del damaged[place : place + size]
        elif kind == 5:
            damaged[place:place] = damaged[place : place + size] * chance.choice([1, 2, 500])
        elif kind == 6:
            other = chance.choice(others)
            start = chance.randrange(max(1, len(other)))
            damaged[place : place + size] = other[start : start + size]
        else:
            damaged[place : place + 1] = bytes([damaged[place] ^ 1 << chance.randrange(8)]) if damaged else b""
        if not damaged:
            break
    if chance.random() < 0.1:
        del damaged[chance.randrange(len(damaged) + 1) :]
    return bytes(damaged)


def mutate_text(chance: random.Random, text: str, others: Sequence[str]) -> str:
    """Stretches are cut out, repeated, replaced by odd ones, or taken from another text."""
    for _ in range(chance.choice([1, 1, 2, 4, 12])):
        place, size = chance.randrange(len(text) + 1), chance.choice([0, 1, 4, 40])
        before, stretch, after = text[:place], text[place : place + size], text[place + size :]
        kind = chance.randrange(5)
        if kind == 0:
            text = before + after
        elif kind == 1:
            text = before + stretch * chance.choice([2, 2, 3, 50, 1000]) + after
        elif kind == 2:
            text = before + chance.choice(ODD_TEXTS) * chance.choice([1, 1, 1, 3, 400]) + after
        elif kind == 3:
            other = chance.choice(others)
            start = chance.randrange(len(other) + 1)
            text = before + other[start : start + chance.choice([5, 50, 500])] + after
        else:
            letters = [chance.randrange(128), chance.randrange(0x3000), chance.randrange(0x110000)]
            text = before + chr(chance.choice(letters)) + after
    return text[: chance.randrange(len(text) + 1)] if chance.random() < 0.1 else text


def mutate_value(chance: random.Random, value: Any) -> Any:
    """A copy of a JSON value in which parts are replaced, removed, repeated, renamed, nested or exchanged."""
    whole = [copy.deepcopy(value)]
    for _ in range(chance.choice([1, 1, 2, 4, 10])):
        places = list(islice(_iter_places(whole), MAX_PLACES + 1))  # a repeated list is one object at many places
        size = sum(len(inner[name]) if isinstance(inner[name], str) else 1 for inner, name in places)
        if size > MAX_TEXT // 8 or len(places) > MAX_PLACES:
            break
        holder, key = chance.choice(places)
        kind = chance.randrange(7)
        if kind == 0:
            holder[key] = chance.choice([*ODD_VALUES, *ODD_TEXTS])
        elif kind == 1:
            other, name = chance.choice(places)
            with suppress(RecursionError):  # too deep to be copied
                holder[key] = copy.deepcopy(other[name])
        elif kind == 2 and isinstance(holder, dict):
            holder[chance.choice(ODD_TEXTS)] = holder.pop(key)
        elif kind == 3 and holder is not whole:
            del holder[key]
        elif kind == 4:
            for _ in range(chance.choice([1, 2, 70, 700])):
                holder[key] = [holder[key]] if chance.random() < 0.5 else {"a": holder[key]}
        elif kind == 5 and isinstance(holder[key], str):
            holder[key] = mutate_text(chance, holder[key], ODD_TEXTS)
        elif kind == 6 and isinstance(holder[key], list):
            holder[key] = holder[key] * (2 if size > MAX_TEXT // 300 else chance.choice([2, 300]))
    return whole[0]


def _iter_places(whole: list[Any]) -> Any:
    """Every (container, key) in a value, without recursion: values may be deep."""
    waiting = [whole]
    while waiting:
        holder = waiting.pop()
        for key in range(len(holder)) if isinstance(holder, list) else list(holder):
            yield holder, key
            if isinstance(holder[key], list | dict):
                waiting.append(holder[key])


def write_json(value: Any, replacement: str = "[[]]", most: int = MAX_TEXT) -> str:
    """JSON in ASCII; lone surrogates are escaped. What is too deep or too long becomes `replacement`."""
    try:
        text = json.dumps(value)
    except RecursionError:
        return replacement
    return text if len(text) <= most else replacement
