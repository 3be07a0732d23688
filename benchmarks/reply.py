"""Times the parser on adversarial replies: every family at 64 KB, and the growth of time from 1 KB to 64 KB.

    python benchmarks/reply.py

Each family repeats a scrap of text. It is read alone, as the value of an object's first key, inside a tool call, and
cut off on the last turn; the slowest of these counts. `exponent` is the slope of log(time) over log(size) from 1 to
64 KB (1: linear), and `ratio` the time of 64 KB over that of 32 KB. Each time is processor time, the best of five,
which excludes other load on the machine. The bars are 50 ms for any reply of 64 KB, and a ratio of 2.5 for any that
takes more than 5 ms. A family beyond a bar is measured again, at most three times, until a round is within: another
job on the machine slows a round, a parser that is too slow misses each. The last line is one JSON object; the status is
1 if a bar is missed.
"""

import json
import math
import statistics
import sys
import time
from typing import Any

from viewbox.core.parsing.objects import AnswerFields
from viewbox.core.parsing.reply import parse_reply

SIZES = [1024 << power for power in range(7)]
BAR, MAX_RATIO, ROUNDS = 0.050, 2.5, 4
MEASURABLE = 0.005  # seconds: the ratio of shorter times says nothing
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "box": {"type": "array", "items": {"type": "number"}}},
    "required": ["a"],
}
FIELDS = AnswerFields.from_schema(SCHEMA)
FAMILIES = {
    "open braces": "{", "braces with keys": '{"a":', "lists of objects": "[{", "open lists": "[", "closers": "}]",
    "quotes": '"', "half strings": '{"a": "b', "backslashes": "\\", "escaped quotes": '{"\\', "escapes": '\\"',
    "single quotes": "{'a': '", "apostrophes": "'", "escaped apostrophes": "{a: \\'", "typographic": "{a: “}",
    "typographic keys": "{“", "CJK": "{「a」：「", "fences": "```", "fenced calls": "```tool\n{", "bare keys": "{a:",
    "open comments": "{/*}", "comments": "{//\n", "ellipses": "{...,", "empty objects": "{}", "objects": '{"a": 1} ',
    "mended objects": "{a: 1} ", "open pairs": '{"a": 1,', "mended pairs": "'a': 1, ", "two strings": '{"a": "b" "c" ',
    "numbers": "1,", "mended numbers": ".5,", "digits": "9", "words": "oops ", "mended words": "x,", "spaces": "{ ",
    "tags": "<tool_call>", "calls": '<tool_call>{"name": "zoom", "arguments": "{}"}</tool_call>',
    "open calls": "<tool_call>{'name': ", "closing tags": "</tool_call>{a", "thinking": "<think>{",
    "thought": "</think>{a: 1", "lists of lists": "[],", "mended lists": "[.1,],",
    "actions": '{"tool": "zoom", "arguments": {', "crossed": "{a: [1}",
    "XML heads": "<function=a>", "XML": "<function=a><parameter=b>", "XML values": "<parameter=b>x</parameter>y",
    "GLM": "<tool_call>a<arg_key>k</arg_key><arg_value>", "Mistral": "[TOOL_CALLS]a[ARGS]{", "Python": "a(b=1), ",
    "Python lists": "[a(b)]\n", "open Python": "<|tool_call_start|>[a(b='", "Gemma": '<|tool_call>call:a{b:<|"|>',
    "bare Gemma": "call:a{b:", "surrogates": "\ud800", "accents": "é",
    "prose": "The lesion is on the left. ", "thoughts in lists": '{"a":["</think>","",', "Kimi": "functions.a:0{",
    "DeepSeek": "a<｜tool▁sep｜>{", "gpt-oss": "<|channel|>commentary to=a {", "analysis": "<|channel|>analysis",
    "Claude": '<invoke name="a"><parameter name="b">', "ReAct": "Action: a\nAction Input: {", "last lines": "a(b)\n",
    "quotes of tools": "[data 01234567]", "other keys": '{"a": {"name": {', "tools as keys": '{"zoom": {"a": ',
    "dashes": "a-", "slashes": "a/", "namespaces": "/functions.a", "tildes": "~~~ ",
    "objects as arguments": '"k%d":{},', "misspelt arguments": '"paramete%d":{},',
}  # fmt: skip
SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("{}", {}),
    ('{{"a": {}', {"answer_fields": FIELDS}),
    ("{{'a': .5, \"box\": [{}", {"answer_fields": FIELDS}),
    ('{{"a": "b", "box": [{}1]}}', {"answer_fields": FIELDS}),
    ("{{a: 'b', box: [{}.1]}}", {"answer_fields": FIELDS}),
    ("<tool_call>{{'name': 'zoom', 'arguments': {{{}", {}),
    ("<tool_call>\n<function=zoom>\n{}", {}),
    ('{{"name": "zoom", {}"id": 1}}', {}),
    ("<|tool_call_start|>[{}", {}),
    ("{{a: 'b', {}", {"finish_reason": "length", "last": True, "answer_fields": FIELDS}),
)


def build_text(scrap: str, frame: str, size: int) -> str:
    """Return a reply of exactly `size` bytes or a few less."""
    room = size - len(frame.format("").encode())
    if "%d" in scrap:
        return frame.format("".join(scrap % number for number in range(room // (len(scrap) + 3))))
    return frame.format(scrap * (room // len(scrap.encode("utf-8", "surrogatepass"))))


def time_reply(text: str, options: dict[str, Any], repeats: int = 5) -> float:
    """CPU seconds: the best of `repeats` readings."""
    best = math.inf
    for _ in range(repeats):
        begin = time.thread_time()
        parse_reply(text, **options)
        best = min(best, time.thread_time() - begin)
    return best


def measure_family(scrap: str) -> tuple[float, float, float, float]:
    """Worst and median seconds of a family at the largest size, its exponent, and the worst ratio of the last sizes."""
    times = [[time_reply(build_text(scrap, frame, size), options) for frame, options in SETTINGS] for size in SIZES]
    logs = [math.log(max(each)) for each in times]
    exponent = statistics.linear_regression([math.log(size) for size in SIZES], logs).slope
    ratios = [long / short for short, long in zip(*times[-2:], strict=True) if long > MEASURABLE]
    return max(times[-1]), statistics.median(times[-1]), exponent, max(ratios, default=0.0)


def main() -> int:
    """Print a line for each family, then the report."""
    rows = {}
    for family, scrap in FAMILIES.items():
        for _ in range(ROUNDS):
            worst, median, exponent, ratio = rows[family] = measure_family(scrap)
            if worst < BAR and ratio <= MAX_RATIO:
                break
        times = f"worst {worst * 1e3:6.2f} ms  median {median * 1e3:6.2f} ms"
        print(f"{family:20s} {times}  exponent {exponent:4.2f}  ratio {ratio:4.2f}")
    slowest = max(rows, key=lambda family: rows[family][0])
    steepest = max(rows, key=lambda family: rows[family][3])
    report = {
        "families": len(rows),
        "bytes": SIZES[-1],
        "worst_ms": round(rows[slowest][0] * 1e3, 2),
        "worst_family": slowest,
        "median_ms": round(statistics.median(each[1] for each in rows.values()) * 1e3, 2),
        "largest_exponent": round(max(each[2] for each in rows.values()), 2),
        "largest_ratio": round(rows[steepest][3], 2),
        "steepest_family": steepest,
        "bar_ms": BAR * 1e3,
        "passed": rows[slowest][0] < BAR and rows[steepest][3] <= MAX_RATIO,
    }
    print(json.dumps(report))
    return 0 if report["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
