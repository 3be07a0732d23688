"""Hostile replies of a server: each costs at most its episode. The run goes on and every episode is stored.

A row is a reply to one task, and how its episode may end; the server repeats the reply for each attempt.
"""

import gzip
import json

import pytest

from tests.support.hostile_rollout import ACTIVE, LONE, RIGHT, call, calling, check_outcome, nest, play_hostile, reply
from tests.support.servers import cut_body, drip_body, hang_up, make_completion, make_response, send_bytes, send_hints
from tests.support.servers import send_body as body
from tests.support.servers import send_raw as raw

OSC52 = "\x1b]52;c;cm0gLXJmIH4=\x07"
CSI = "\x1b[2J\x1b[31m"
C1 = "\x9d52;c;cm0=\x9c\x9b2J"
BIDI = "\u202egnp.exe\u2066\u2069\u200f\u2028"


def right_body():
    return json.dumps(make_completion(RIGHT)).encode()


def chunked(*trailers):
    content = right_body()
    start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\n\r\n"
    return raw(start, b"%x\r\n%s\r\n0\r\n" % (len(content), content), b"".join(trailers), b"\r\n")


def say(content=RIGHT, finish="stop", **more):
    return reply({"content": content, **more}, finish)


def beside(text):
    """A good reply with a field beside it, written as it is."""
    return body(b'{"x": ' + text + b", " + right_body()[1:])


def answer(headers, *parts, status=b"HTTP/1.1 200 OK"):
    return raw(status + b"\r\n" + headers + b"\r\n\r\n", *parts)


def fail(message, status=400):
    return make_response(status, {"error": {"message": message}})


def refuse(status=503, **headers):
    return make_response(status, "no", **headers)


HUGE = "9" * 400
ANSWERED, ERROR, EITHER = {"answered"}, {"error"}, {"answered", "error"}
GOES_ON = ANSWERED  # the reply is malformed or a call; the model answers next
MB = 1_000_000

# ---------------------------------------------------------------------- the parts of a completion
PARTS = [
    *((say(finish=finish), ANSWERED) for finish in ([["length"]], {}, 7, "x" * MB, OSC52)),
    *(({"choices": choices}, ERROR) for choices in ({"0": {"message": {"content": RIGHT}}}, [], None, RIGHT, [[[]]],
        [{"message": None}], [{"message": [RIGHT]}])),
    ({"choices": say()["choices"] * 1000}, ANSWERED), (reply({}), GOES_ON), (say(role=[]), ANSWERED),
    *((say(content), ERROR) for content in ({"text": RIGHT}, True)), (say(LONE + RIGHT), ANSWERED),
    (say([None, 1, True, [], {}, "x", {"text": RIGHT}]), ANSWERED),
    *((say(content), GOES_ON) for content in ([{"text": [RIGHT]}, {"text": {"a": 1}}], [{"text": "x"}] * 100_000,
        nest(400), OSC52 + CSI + C1 + BIDI + LONE, "\x00" * 1000)),
    ([reply()], ERROR), ({"error": {"message": OSC52 + LONE + BIDI}}, ERROR),
    *((body(text), ERROR) for text in ("null", '{"choices": [{"message": {"content": NaN}}]}',
        "[" * 100_000 + "]" * 100_000)),
    (body(b'{"choices": 1, ' + right_body()[1:]), ANSWERED), (beside(b"-Infinity"), ANSWERED),
    (beside(b"9" * 5000), ERROR), ({"x": nest(500), **make_completion(RIGHT)}, ANSWERED),
    (say(reasoning_content="x" * MB), ANSWERED), (say(reasoning_content=nest(400)), ANSWERED),
    (say(None, refusal={"a": [1]}), GOES_ON),
]  # fmt: skip

# ---------------------------------------------------------------------- calls
CALLS = [
    *((calling(call(arguments)), GOES_ON) for arguments in (
        nest(400, "dict"), json.dumps(nest(400, "dict")), '{"a":' * 20_000 + "1" + "}" * 20_000, [1, 2], 3, None,
        {"query": list(range(100_000))}, json.dumps({"query": "x" * MB}), '{"query": "\\ud800"}', {LONE: 1},
        {"query": OSC52 + C1 + BIDI})),
    (calling(call(nest(900, "dict"))), EITHER),
    (body(json.dumps(calling(call({"query": 7}))).replace("7", HUGE)), GOES_ON),
    (calling(*[call(json.dumps({"query": "x" * 60_000}), identity=f"i{n}") for n in range(256)]), EITHER),
    *((calling(call(name=name)), GOES_ON) for name in ("x" * MB, "search\n" + OSC52 + BIDI + LONE, ["search"], None)),
    *((calling(call(identity=name)), GOES_ON) for name in ("x" * MB, OSC52 + "\n" + LONE, {"a": nest(300)})),
    (calling(*[call('{"query": "x"}')] * 200), GOES_ON), (calling(*[{}] * 100_000), ERROR),
    (say(tool_calls={"0": call()}), ANSWERED),
    (calling(None, 1, "x", [], {}, {"function": []}, {"function": {}}), GOES_ON),
    (calling({"id": "a", "function": ["search", "{}"]}), GOES_ON), (calling(call('{"query": "x"}', type=[])), GOES_ON),
]  # fmt: skip

# ---------------------------------------------------------------------- usage
COUNTS = [int(HUGE), 2**60, -5, 1.5, True, "7", {"a": nest(400)}, None]
USAGES = [
    (reply({"content": RIGHT}, usage=usage), ANSWERED)
    for usage in [*({"prompt_tokens": n, "completion_tokens": n} for n in COUNTS), [1, 2], int(HUGE)]
]

# ---------------------------------------------------------------------- statuses, errors, headers, transport
LENGTH = b"Content-Length: "
CHUNKED = b"Transfer-Encoding: chunked"
FAILURES = [
    *map(make_response, (304, 399, 204)), make_response(599, CSI), make_response(301, Location="/v1/chat/completions"),
    make_response(302, Location="http://[::1:99999999/\u00e9"), make_response(308, Location="file:///etc/passwd"),
    answer(b"Location: \x9b2J\xc2\x9b\r\nContent-Length: 0", status=b"HTTP/1.1 302 Found"),
    answer(b"Upgrade: x\r\nConnection: upgrade", status=b"HTTP/1.1 101 Switching"),
    *map(fail, (LONE + OSC52 + C1, "[link=http://x]a[/link][/]", "%s %d {0} %(x)s {error}")), fail(BIDI, 500),
    make_response(400, ["no", {"a": 1}]), make_response(400, {"error": nest(400)}),
    make_response(400, {"error": 7, "detail": int(HUGE)}), make_response(400, "a\r\n\x0b\x0c\x85\u2028b"),
    *(send_bytes(400, content) for content in (b'{"error": ' + b"9" * 5000 + b"}", bytes(range(256)) * 10, b"",
        json.dumps({"error": {"message": "x" * 10 * MB}}).encode())),
    *(refuse(429, Retry_After=pause) for pause in ("nan", "-1", "Mon, 99 Foo 0000 99:99:99 +9999999",
        "Mon, 01 Jan 0001 00:00:00 -0000", "9" * 5000)),
    raw(right_body()), raw(b"\x16\x03\x01\x02\x00\x01\x00" * 100), answer(b"X: " + b"x" * MB),
    raw(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000 + b"\r\n"),
    answer(LENGTH + b"5\r\nContent-Length: 7", b"xxxxxxx"), answer(LENGTH + HUGE.encode(), b"{}"),
    answer(LENGTH + b"0", status=b"HTTP/1.1 400 n\xe9\x9b2J"), answer(CHUNKED, b"zz\r\nxx\r\n"), cut_body, hang_up,
    body(b"data: " + right_body() + b"\n\ndata: [DONE]\n\n", Content_Type="text/event-stream"),
]  # fmt: skip
ERRORS = [
    *((failure, ERROR) for failure in FAILURES),
    (body(right_body(), Set_Cookie="id=1; Path=/; Max-Age=999999"), ANSWERED),
    (raw(b"HTTP/9.9 200 OK\r\n\r\n" + right_body()), EITHER),
    (answer(b"X: \x1b[2J\xff\r\nContent-Length: %d" % len(right_body()), right_body()), EITHER),
    (chunked(b"X: y\r\n", b"Set-Cookie: id=2\r\n"), ANSWERED), (chunked(b"X: " + b"y" * MB + b"\r\n"), EITHER),
]  # fmt: skip

BODIES = [
    *((body(right_body(), Content_Type=type), ANSWERED) for type in (
        "text/html", "application/json; charset=zlib", "\u00e9\u00e9/;;;=,")),
    *((body(text), ANSWERED) for text in (b"\xef\xbb\xbf" + right_body(), right_body().decode().encode("utf-16"),
        right_body().replace(b"chat", b"\xff\xfe\xc0\x80"), b" " * MB + right_body(),
        json.dumps(make_completion(LONE + RIGHT), ensure_ascii=False))),
    *((body(text), ERROR) for text in (b"\xef\xbb\xbf" * 2 + right_body(), gzip.compress(right_body()), b"",
        right_body() + b"x", b" " * 5 * MB, b'"' + b"\\" * 5 * MB, b"[" * 5 * MB,
        b'{"x": [' + b"{}," * 1_700_000 + b"{}]}")),
    *((body(content, Content_Encoding=coding), ERROR) for content, coding in (
        (gzip.compress(b"x" * 50 * MB), "gzip"), (right_body(), "br, zstd, gzip" + ", gzip" * 100))),
    (body(right_body(), Content_Encoding=" Identity "), ANSWERED),
]  # fmt: skip
TABLES = {"parts": PARTS, "calls": CALLS, "usages": USAGES, "errors": ERRORS, "bodies": BODIES}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_hostile_reply_costs_its_episode_at_most(tmp_path, table):
    rows = dict(enumerate(table, 3))  # the first tasks are answered
    replies = {number: (answer,) * 2 for number, (answer, _) in rows.items()}
    outcome = play_hostile(tmp_path, table=replies, tasks=3 + len(rows), timeout=120.0)
    check_outcome(outcome, 3 + len(rows), rows)
    ended = {number: outcome.episodes[number].end_reason for number in rows}
    wrong = {number: reason for number, reason in ended.items() if reason not in rows[number][1]}
    assert [(str(rows[number][0])[:200], reason) for number, reason in wrong.items()] == []


@pytest.mark.parametrize("reply", [
    drip_body, send_hints, refuse(Retry_After="1e9"), refuse(429, Retry_After="Fri, 31 Dec 9999 23:59:59 -1200"),
])  # fmt: skip
def test_what_makes_the_client_wait_costs_its_episode_no_more_than_the_timeout(tmp_path, reply):
    outcome = play_hostile(tmp_path, *[reply] * 50, timeout=3.0, attempts=50)
    check_outcome(outcome)
    assert outcome.hostile.end_reason == "timeout"


def test_the_words_of_the_table_are_hostile():
    assert all(ACTIVE.search(text) for text in (OSC52, CSI, C1, BIDI, LONE))
