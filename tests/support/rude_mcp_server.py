"""An MCP server without the library, which keeps a server from writing rubbish: `python rude_mcp_server.py [MODE]`.

MODE is how it fails at its start; a call of `fail` says how it fails then.
"""

import json
import os
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


def fail(number, how):
    if how == "a message of 100 MB":
        send_text(number, "x" * 100 * 2**20)
    elif how == "rubbish before the reply":
        write(b"DEBUG: loaded\n\x00\xff{}\n[1, 2\n\n" * 100)
    elif how == "rubbish without end":
        while True:
            write(b"x" * 2**16 + b"\n")
    elif how == "a line without end":
        while True:
            write(b"x" * 2**16)
    elif how == "messages without end":
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 2**14}}
        while True:
            write(json.dumps(note).encode() + b"\n")
    elif how == "errors without end":
        while True:
            os.write(2, b"e" * 2**16)
    elif how == "JSON 100,000 deep":
        write(b'{"jsonrpc": "2.0", "id": %d, "result": %s}\n' % (number, b"[" * 10**5 + b"]" * 10**5))
    elif how == "half a message":
        write(b'{"jsonrpc": "2.0", "id": ')
        os._exit(0)
    elif how == "a result of another shape":
        send(number, result={"content": "text"})
    elif how == "a result that is a list":
        send(number, result=[1])
    elif how == "an error of another shape":
        send(number, error="no")
        send_text(number, "late")
    elif how == "an error":
        send(number, error={"code": -32000, "message": "out of film"})
    elif how == "NaN":
        data = '{"content": [], "structuredContent": {"ratio": NaN, "more": [-Infinity]}}'
        write(b'{"jsonrpc": "2.0", "id": %d, "result": %s}\n' % (number, data.encode()))
    elif how == "a refusal in structure":
        send(number, result={"content": [], "isError": True, "structuredContent": {"code": "RATE_LIMITED"}})
    elif how == "an embedded text":
        resource = {"uri": "file:///r.txt", "mimeType": "text/plain", "text": "a nodule of 7 mm"}
        send(number, result={"content": [{"type": "resource", "resource": resource}]})
    elif how == "a picture that is none":
        send(number, result={"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]})
    elif how == "no reply":
        time.sleep(600)
    elif how == "no reply, and no end":
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(600)
    elif how == "its death":
        os._exit(3)
    elif how == "a reply, then its death":
        send_text(number, how)
        os._exit(3)
    elif how == "the reply of nobody":
        send(10**6, result={"content": [{"type": "text", "text": "stolen"}]})
    elif how == "a question":
        send("q1", method="sampling/createMessage", params={"messages": [], "maxTokens": 10})
    elif how == "a reply twice":
        send_text(number, how)
    send_text(number, how)


if MODE == "ends":
    sys.exit("no licence was found")
if MODE == "hangs":
    time.sleep(600)
if MODE == "rubbish without end":
    fail(0, MODE)
if MODE == "errors without end":
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
