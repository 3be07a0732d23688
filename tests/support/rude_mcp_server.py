"""An MCP server without the library, which keeps a server from writing rubbish: `python rude_mcp_server.py [MODE]`.

MODE is how it fails at its start; a call of `fail` says how it fails then.
"""

import json
import os
import signal
import sys
import time

MODE = sys.argv[1] if len(sys.argv) > 1 else ""
SCHEMA = {"type": "object", "properties": {"how": {"type": "string"}}, "required": ["how"]}


def write(data):
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def send(number, **body):
    write(json.dumps({"jsonrpc": "2.0", "id": number, **body}).encode() + b"\n")


def send_text(number, text):
    send(number, result={"content": [{"type": "text", "text": text}]})


def list_tools(number):
    tools = [{"name": name, "description": f"{name}s.", "inputSchema": SCHEMA} for name in ("say", "fail")]
    if MODE == "too many tools":
        tools *= 400
    if MODE == "a hostile schema":
        tools[1]["inputSchema"] = {"type": "object", "properties": {"how": {"$ref": "http://127.0.0.1:9/s"}}}
    if MODE == "another schema":
        tools[1]["inputSchema"] = {**SCHEMA, "required": ["how", "why"], "properties": {"how": {}, "why": {}}}
    if MODE == "another argument":
        tools[1]["inputSchema"] = {"type": "object", "properties": {"wow": {"type": "string"}}}
    if MODE == "no tool":
        tools = tools[:1]
    more = {"nextCursor": "again"} if MODE == "endless pages" else {}
    send(number, result={"tools": [{}] if MODE == "tools of another shape" else tools, **more})


def repeat(act):
    while True:
        act()


def end(status, last):
    write(last)
    os._exit(status)


def ignore_end(number):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    repeat(lambda: time.sleep(600))


def give(number, result):
    write(b'{"jsonrpc": "2.0", "id": %d, "result": %s}\n' % (number, result))


NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 2**14}}
RESOURCE = {"uri": "file:///r.txt", "mimeType": "text/plain", "text": "a nodule of 7 mm"}
PICTURE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
REFUSED = {"content": [], "isError": True, "structuredContent": {"code": "RATE_LIMITED"}}
FAULTS = {  # before the reply
    "rubbish before the reply": lambda n: write(b"DEBUG: loaded\n\x00\xff{}\n[1, 2\n\n" * 100),
    "rubbish without end": lambda n: repeat(lambda: write(b"x" * 2**16 + b"\n")),
    "messages without end": lambda n: repeat(lambda: write(json.dumps(NOTE).encode() + b"\n")),
    "errors without end": lambda n: repeat(lambda: os.write(2, b"e" * 2**16)),
    "JSON 100,000 deep": lambda n: give(n, b"[" * 10**5 + b"]" * 10**5),
    "half a message": lambda n: end(0, b'{"jsonrpc": "2.0", "id": '),
    "a result of another shape": lambda n: send(n, result={"content": "text"}),
    "a result that is a list": lambda n: send(n, result=[1]),
    "an error": lambda n: send(n, error={"code": -32000, "message": "out of film"}),
    "NaN": lambda n: give(n, b'{"content": [], "structuredContent": {"ratio": NaN, "more": [-Infinity]}}'),
    "a refusal in structure": lambda n: send(n, result=REFUSED),
    "an embedded text": lambda n: send(n, result={"content": [{"type": "resource", "resource": RESOURCE}]}),
    "a picture that is none": lambda n: send(n, result={"content": [PICTURE]}),
    "no reply": lambda n: time.sleep(600),
    "no reply, and no end": ignore_end,
    "its death": lambda n: os._exit(3),
    "a reply, then its death": lambda n: send_text(n, "a reply, then its death") or os._exit(3),
    "the reply of nobody": lambda n: send_text(10**6, "stolen"),
    "a question": lambda n: send("q1", method="sampling/createMessage", params={"messages": [], "maxTokens": 10}),
    "a reply twice": lambda n: send_text(n, "a reply twice"),
}


def fail(number, how):
    FAULTS[how](number)
    send_text(number, how)


if MODE == "ends":
    sys.exit("no licence was found")
if MODE == "hangs":
    time.sleep(600)
if MODE in FAULTS:
    fail(0, MODE)
for line in sys.stdin:
    message = json.loads(line)
    number, method, params = message.get("id"), message.get("method"), message.get("params")
    if method == "initialize":
        version = "1987-01-01" if MODE == "another version" else params["protocolVersion"]
        info = {"name": "rude", "version": "1"}
        send(number, result={"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        list_tools(number)
    elif method == "tools/call":
        how = params["arguments"]["how"]
        fail(number, how) if params["name"] == "fail" else send_text(number, how)
    elif number is not None and method:
        send(number, error={"code": -32601, "message": "unknown method"})
