"""Hostile replies of a server: each costs at most its episode. The run goes on and every episode is stored.

One row is one reply to one task of five; the server repeats it for each attempt. `end` is how that episode may end.
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
    return raw(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\n\r\n",
        b"%x\r\n%s\r\n0\r\n" % (len(content), content),
        b"".join(trailers),
        b"\r\n",
    )


HUGE = "9" * 400
ANSWERED, ERROR = {"answered"}, {"error"}
GOES_ON = {"answered"}  # the reply is malformed or a call; the model answers next

# ---------------------------------------------------------------------- the parts of a completion
PARTS = {
    "finish_reason is a list": (reply({"content": RIGHT}, finish=["stop"]), ANSWERED),
    "finish_reason is an object": (reply({"content": RIGHT}, finish={}), ANSWERED),
    "finish_reason is a nested list": (reply({"content": RIGHT}, finish=[["length"]]), ANSWERED),
    "finish_reason is a number": (reply({"content": RIGHT}, finish=7), ANSWERED),
    "finish_reason is a boolean": (reply({"content": RIGHT}, finish=True), ANSWERED),
    "finish_reason is budget": (reply({"content": RIGHT}, finish="budget"), ANSWERED),
    "finish_reason is a megabyte": (reply({"content": RIGHT}, finish="x" * 1_000_000), ANSWERED),
    "finish_reason acts on the terminal": (reply({"content": RIGHT}, finish=OSC52), ANSWERED),
    "choices is an object": ({"choices": {"0": {"message": {"content": RIGHT}}}}, ERROR),
    "choices is empty": ({"choices": []}, ERROR),
    "choices is null": ({"choices": None}, ERROR),
    "choices is text": ({"choices": RIGHT}, ERROR),
    "choices holds null": ({"choices": [None]}, ERROR),
    "choices holds lists": ({"choices": [[[]]]}, ERROR),
    "a thousand choices": ({"choices": reply({"content": RIGHT})["choices"] * 1000}, ANSWERED),
    "a thousand empty choices": ({"choices": [{}] * 1000}, ERROR),
    "the message is null": ({"choices": [{"message": None}]}, ERROR),
    "the message is text": ({"choices": [{"message": RIGHT}]}, ERROR),
    "the message is a list": ({"choices": [{"message": [RIGHT]}]}, ERROR),
    "the message is empty": (reply({}), GOES_ON),
    "the role is another": (reply({"role": "system", "content": RIGHT}), ANSWERED),
    "the role is a list": (reply({"role": [], "content": RIGHT}), ANSWERED),
    "the content is an object": (reply({"content": {"text": RIGHT}}), ERROR),
    "the content is a number": (reply({"content": 1e308}), ERROR),
    "the content is a boolean": (reply({"content": True}), ERROR),
    "content parts of all types": (reply({"content": [None, 1, True, [], {}, "x", {"text": RIGHT}]}), ANSWERED),
    "content parts whose text is no text": (reply({"content": [{"text": [RIGHT]}, {"text": {"a": 1}}]}), GOES_ON),
    "a hundred thousand content parts": (reply({"content": [{"text": "x"}] * 100_000}), GOES_ON),
    "content nested 400 deep": (reply({"content": nest(400)}), GOES_ON),
    "content is a lone surrogate": (reply({"content": LONE}), GOES_ON),
    "an answer with a lone surrogate beside it": (reply({"content": LONE + RIGHT}), ANSWERED),
    "content acts on the terminal": (reply({"content": OSC52 + CSI + C1 + BIDI}), GOES_ON),
    "content is NUL": (reply({"content": "\x00" * 1000}), GOES_ON),
    "the reply is a list": ([reply()], ERROR),
    "the reply is null": (body("null"), ERROR),
    "the reply is a number": (body("1e5"), ERROR),
    "the reply is an error with status 200": ({"error": {"message": OSC52 + LONE + BIDI}}, ERROR),
    "keys are doubled": (body('{"choices": 1, "choices": 2}'), ERROR),
    "keys are doubled, the last is good": (body(b'{"choices": 1, ' + right_body()[1:]), ANSWERED),
    "NaN": (body('{"choices": [{"message": {"content": NaN}}]}'), ERROR),
    "Infinity in a field beside": (body(b'{"x": -Infinity, ' + right_body()[1:]), ANSWERED),
    "a number that overflows": (body(b'{"x": 1e999, ' + right_body()[1:]), ANSWERED),
    "an integer of 5,000 digits": (body(b'{"x": ' + b"9" * 5000 + b", " + right_body()[1:]), ERROR),
    "a body nested 100,000 deep": (body("[" * 100_000 + "]" * 100_000), ERROR),
    "a body nested 500 deep beside the reply": ({"x": nest(500), **make_completion(RIGHT)}, ANSWERED),
    "reasoning of a megabyte": (reply({"content": RIGHT, "reasoning_content": "x" * 1_000_000}), ANSWERED),
    "reasoning is a nested list": (reply({"content": RIGHT, "reasoning_content": nest(400)}), ANSWERED),
    "a refusal of odd type": (reply({"content": None, "refusal": {"a": [1]}}), GOES_ON),
}

# ---------------------------------------------------------------------- calls
CALLS = {
    "arguments are an object 400 deep": (calling(call(nest(400, "dict"))), GOES_ON),
    "arguments are an object 900 deep": (calling(call(nest(900, "dict"))), GOES_ON | ERROR),
    "arguments are a list 400 deep": (calling(call(nest(400))), GOES_ON),
    "arguments are text 400 deep": (calling(call(json.dumps(nest(400, "dict")))), GOES_ON),
    "arguments are text 20,000 deep": (calling(call('{"a":' * 20_000 + "1" + "}" * 20_000)), GOES_ON),
    "arguments are a list": (calling(call([1, 2])), GOES_ON),
    "arguments are a number": (calling(call(3)), GOES_ON),
    "arguments are null": (calling(call(None)), GOES_ON),
    "arguments are a boolean": (calling(call(True)), GOES_ON),
    "arguments hold an integer of 400 digits": (body(json.dumps(calling(call({"query": 7}))).replace("7", HUGE)),
        GOES_ON),
    "arguments hold 100,000 values": (calling(call({"query": list(range(100_000))})), GOES_ON),
    "arguments of a megabyte": (calling(call(json.dumps({"query": "x" * 1_000_000}))), GOES_ON),
    "arguments of a megabyte in an object": (calling(call({"query": "x" * 1_000_000})), GOES_ON),
    "256 calls of 60 KB": (calling(*[call(json.dumps({"query": "x" * 60_000}), identity=f"i{n}") for n in range(256)]),
        GOES_ON | ERROR),
    "arguments hold a lone surrogate": (calling(call({"query": LONE})), GOES_ON),
    "arguments hold an escaped lone surrogate": (calling(call('{"query": "\\ud800"}')), GOES_ON),
    "arguments name a lone surrogate": (calling(call({LONE: 1})), GOES_ON),
    "arguments act on the terminal": (calling(call({"query": OSC52 + C1 + BIDI})), GOES_ON),
    "a name of a megabyte": (calling(call(name="x" * 1_000_000)), GOES_ON),
    "a name with newlines and escapes": (calling(call(name="search\n" + OSC52 + BIDI)), GOES_ON),
    "a name that is a lone surrogate": (calling(call(name=LONE)), GOES_ON),
    "a name that is a list": (calling(call(name=["search"])), GOES_ON),
    "a name that is null": (calling(call(name=None)), GOES_ON),
    "an id of a megabyte": (calling(call(identity="x" * 1_000_000)), GOES_ON),
    "an id with escapes": (calling(call(identity=OSC52 + "\n" + LONE)), GOES_ON),
    "an id that is an object": (calling(call(identity={"a": nest(300)})), GOES_ON),
    "an id that is a number": (calling(call(identity=7)), GOES_ON),
    "the same id 200 times": (calling(*[call('{"query": "x"}')] * 200), GOES_ON),
    "a thousand calls with one id": (calling(*[call()] * 1000), ERROR),
    "a hundred thousand calls": (calling(*[{}] * 100_000), ERROR),
    "tool_calls is an object": (reply({"content": RIGHT, "tool_calls": {"0": call()}}), ANSWERED),
    "tool_calls is text": (reply({"content": RIGHT, "tool_calls": "search"}), ANSWERED),
    "tool_calls holds anything": (calling(None, 1, "x", [], {}, {"function": []}, {"function": {}}), GOES_ON),
    "the function is a list": (calling({"id": "a", "function": ["search", "{}"]}), GOES_ON),
    "the type is a list": (calling(call('{"query": "x"}', type=[])), GOES_ON),
}  # fmt: skip

# ---------------------------------------------------------------------- usage
USAGE = {
    "usage of 400 digits": int(HUGE), "usage above 2**53": 2**60, "usage is negative": -5, "usage is a float": 1.5,
    "usage is a huge float": 1e308, "usage is a boolean": True, "usage is text": "7", "usage is a list": [7],
    "usage is an object": {"a": nest(400)}, "usage is null": None,
}  # fmt: skip
USAGES = {
    name: (reply({"content": RIGHT}, usage={"prompt_tokens": count, "completion_tokens": count}), ANSWERED)
    for name, count in USAGE.items()
} | {
    "usage itself is a list": (reply({"content": RIGHT}, usage=[1, 2]), ANSWERED),
    "usage itself is a number": (reply({"content": RIGHT}, usage=int(HUGE)), ANSWERED),
}

# ---------------------------------------------------------------------- statuses, errors, headers, transport
ERRORS = {
    "302 without Location": (make_response(302), ERROR),
    "304": (make_response(304), ERROR),
    "300 without Location": (make_response(300), ERROR),
    "307 to another host": (make_response(307, Location="http://192.0.2.1/v1"), ERROR),
    "308 to a file": (make_response(308, Location="file:///etc/passwd"), ERROR),
    "301 to itself": (make_response(301, Location="/v1/chat/completions"), ERROR),
    "302 to something that is no URL": (make_response(302, Location="http://[::1:99999999/\u00e9"), ERROR),
    "302 to an escape": (raw(b"HTTP/1.1 302 Found\r\nLocation: \x9b2J\xc2\x9b\r\nContent-Length: 0\r\n\r\n"), ERROR),
    "399": (make_response(399), ERROR),
    "204": (make_response(204), ERROR),
    "418": (make_response(418, OSC52), ERROR),
    "599": (make_response(599, CSI), ERROR),
    "999": (raw(b"HTTP/1.1 999 No\r\nContent-Length: 0\r\n\r\n"), ERROR),
    "101 switching protocols": (raw(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), ERROR),
    "an error that is a lone surrogate": (make_response(400, {"error": {"message": LONE}}), ERROR),
    "an error that writes the clipboard": (make_response(400, {"error": {"message": OSC52}}), ERROR),
    "an error with C1 controls": (make_response(400, {"error": {"message": C1}}), ERROR),
    "an error with bidi marks": (make_response(500, {"error": {"message": BIDI}}), ERROR),
    "an error with rich markup": (make_response(400, {"error": {"message": "[link=http://x]a[/link][/]"}}), ERROR),
    "an error with format codes": (make_response(400, {"error": {"message": "%s %d {0} %(x)s {error}"}}), ERROR),
    "an error that is a list": (make_response(400, ["no", {"a": 1}]), ERROR),
    "an error that is a nested list": (make_response(400, {"error": nest(400)}), ERROR),
    "an error that is a number": (make_response(400, {"error": 7, "detail": int(HUGE)}), ERROR),
    "an error of 5,000 digits": (send_bytes(400, b'{"error": ' + b"9" * 5000 + b"}"), ERROR),
    "an error that is HTML": (make_response(400, "<html><script>alert(1)</script>" + CSI), ERROR),
    "an error that is binary": (send_bytes(400, bytes(range(256)) * 10), ERROR),
    "an error of 10 MB": (send_bytes(400, b"x" * 10_000_000), ERROR),
    "an error of 10 MB of JSON": (send_bytes(400, json.dumps({"error": {"message": "x" * 10_000_000}}).encode()),
        ERROR),
    "an error of nothing": (send_bytes(400, b""), ERROR),
    "an error of newlines": (make_response(400, "a\r\n\x0b\x0c\x85\u2028b"), ERROR),
    "Set-Cookie": (body(right_body(), Set_Cookie="id=1; Path=/; Max-Age=999999"), ANSWERED),
    "Set-Cookie on an error": (make_response(503, "no", Set_Cookie="id=1; Path=/"), ERROR),
    "Retry-After -1": (make_response(503, "no", Retry_After="-1"), ERROR),
    "Retry-After nan": (make_response(429, "no", Retry_After="nan"), ERROR),
    "Retry-After of odd dates": (make_response(429, "no", Retry_After="Mon, 99 Foo 0000 99:99:99 +9999999"), ERROR),
    "Retry-After of year 1": (make_response(429, "no", Retry_After="Mon, 01 Jan 0001 00:00:00 -0000"), ERROR),
    "Retry-After is empty": (make_response(429, "no", Retry_After=""), ERROR),
    "Retry-After of 5,000 digits": (make_response(429, "no", Retry_After="9" * 5000), ERROR),
    "Retry-After in other digits": (make_response(429, "no", Retry_After="0x10"), ERROR),
    "HTTP/0.9": (raw(right_body()), ERROR),
    "HTTP/9.9": (raw(b"HTTP/9.9 200 OK\r\n\r\n" + right_body()), ANSWERED | ERROR),
    "no HTTP at all": (raw(b"\x16\x03\x01\x02\x00\x01\x00" * 100), ERROR),
    "SSH": (raw(b"SSH-2.0-OpenSSH_9.9\r\n"), ERROR),
    "headers of a megabyte": (raw(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000 + b"\r\n\r\n"), ERROR),
    "a hundred thousand headers": (raw(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000 + b"\r\n"), ERROR),
    "a header with an escape": (
        raw(b"HTTP/1.1 200 OK\r\nX: \x1b[2J\xff\r\nContent-Length: %d\r\n\r\n" % len(right_body()), right_body()),
        ANSWERED | ERROR,
    ),
    "two lengths": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nxxxxxxx"), ERROR),
    "a negative length": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"), ERROR),
    "a length of 400 digits": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: " + HUGE.encode() + b"\r\n\r\n{}"), ERROR),
    "a status of letters": (raw(b"HTTP/1.1 abc OK\r\n\r\n"), ERROR),
    "a reason with an escape": (raw(b"HTTP/1.1 400 \x1b[2J\r\nContent-Length: 0\r\n\r\n"), ERROR),
    "a reason in Latin-1": (raw(b"HTTP/1.1 400 n\xe9\x9b2J\r\nContent-Length: 0\r\n\r\n"), ERROR),
    "a bad chunk size": (raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nxx\r\n"), ERROR),
    "a chunk size of 400 digits": (
        raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + HUGE.encode() + b"\r\nxx"),
        ERROR,
    ),
    "trailers": (chunked(b"X: y\r\n", b"Set-Cookie: id=2\r\n"), ANSWERED),
    "trailers of a megabyte": (chunked(b"X: " + b"y" * 1_000_000 + b"\r\n"), ANSWERED | ERROR),
    "a body cut in the middle": (cut_body, ERROR),
    "no response": (hang_up, ERROR),
    "an event stream": (body(b"data: " + right_body() + b"\n\ndata: [DONE]\n\n", Content_Type="text/event-stream"),
        ERROR),
}  # fmt: skip

BODIES = {
    "text/html": (body(right_body(), Content_Type="text/html"), ANSWERED),
    "an unknown charset": (body(right_body(), Content_Type="application/json; charset=\x22nope\x22"), ANSWERED),
    "a charset that is code": (body(right_body(), Content_Type="application/json; charset=zlib"), ANSWERED),
    "no content type of text": (body(right_body(), Content_Type="\u00e9\u00e9/;;;=,"), ANSWERED),
    "a BOM": (body(b"\xef\xbb\xbf" + right_body()), ANSWERED),
    "two BOMs": (body(b"\xef\xbb\xbf" * 2 + right_body()), ERROR),
    "UTF-16": (body(right_body().decode().encode("utf-16")), ANSWERED),
    "UTF-32": (body(right_body().decode().encode("utf-32")), ANSWERED),
    "UTF-7": (body("{+AGE-}"), ERROR),
    "invalid UTF-8": (body(right_body().replace(b"chat", b"\xff\xfe\xc0\x80")), ANSWERED),
    "raw surrogates": (body(json.dumps(make_completion(LONE + RIGHT), ensure_ascii=False)), ANSWERED),
    "gzip": (body(gzip.compress(right_body()), Content_Encoding="gzip"), ERROR),
    "a gzip bomb": (body(gzip.compress(b"x" * 50_000_000), Content_Encoding="gzip"), ERROR),
    "gzip that is not said": (body(gzip.compress(right_body())), ERROR),
    "gzip that is none": (body(right_body(), Content_Encoding="gzip"), ERROR),
    "encodings in a row": (body(right_body(), Content_Encoding="br, zstd, gzip" + ", gzip" * 100), ERROR),
    "identity, written oddly": (body(right_body(), Content_Encoding=" Identity "), ANSWERED),
    "an empty body": (body(b""), ERROR),
    "NULs": (body(b"\x00" * 100_000), ERROR),
    "spaces before the reply": (body(b" " * 1_000_000 + right_body()), ANSWERED),
    "text after the reply": (body(right_body() + b"x"), ERROR),
    "5 MB of spaces": (body(b" " * 5_000_000), ERROR),
    "5 MB of quotes": (body(b'"' * 5_000_000), ERROR),
    "5 MB of backslashes": (body(b'"' + b"\\" * 5_000_000), ERROR),
    "5 MB of open brackets": (body(b"[" * 5_000_000), ERROR),
    "5 MB of empty objects": (body(b'{"x": [' + b"{}," * 1_700_000 + b"{}]}"), ERROR),
}

TABLES = {"parts": PARTS, "calls": CALLS, "usages": USAGES, "errors": ERRORS, "bodies": BODIES}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_hostile_reply_costs_its_episode_at_most(tmp_path, table):
    rows = dict(enumerate(table, 3))  # the first tasks are answered
    replies = {number: (table[name][0],) * 2 for number, name in rows.items()}
    outcome = play_hostile(tmp_path, table=replies, tasks=3 + len(rows), timeout=120.0)
    check_outcome(outcome, 3 + len(rows), rows)
    ended = {name: outcome.episodes[number].end_reason for number, name in rows.items()}
    assert [(name, reason) for name, reason in ended.items() if reason not in table[name][1]] == []


WAITING = {
    "a slow drip": drip_body,
    "informational responses without end": send_hints,
    "Retry-After 1e9": make_response(503, "no", Retry_After="1e9"),
    "Retry-After of year 9999": make_response(429, "no", Retry_After="Fri, 31 Dec 9999 23:59:59 -1200"),
}


@pytest.mark.parametrize("name", WAITING)
def test_what_makes_the_client_wait_costs_its_episode_no_more_than_the_timeout(tmp_path, name):
    outcome = play_hostile(tmp_path, *[WAITING[name]] * 50, timeout=3.0, attempts=50)
    check_outcome(outcome)
    assert outcome.hostile.end_reason == "timeout"


def test_the_table_is_long_and_its_words_are_hostile():
    assert sum(map(len, TABLES.values())) >= 150
    assert all(ACTIVE.search(text) for text in (OSC52, CSI, C1, BIDI, LONE))
