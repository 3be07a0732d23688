"""An OpenAI-compatible endpoint on 127.0.0.1 whose replies are scripted, for tests that run verifiers' own commands.

A conversation is known by the image in its first user message; its script is a list of replies, one a turn.
"""

import asyncio
import json
import threading
from collections import defaultdict
from contextlib import contextmanager

from aiohttp import web


def make_reply(content, *calls, finish_reason=None, **more):
    """A reply; `calls` are (id, name, arguments)."""
    message = {"role": "assistant", "content": content, **more}
    if calls:
        functions = [(i, {"name": name, "arguments": text}) for i, name, text in calls]
        message["tool_calls"] = [{"id": i, "type": "function", "function": function} for i, function in functions]
    return {"message": message, "finish_reason": finish_reason or ("tool_calls" if calls else "stop")}


def make_error(status):
    """A reply that is an error."""
    return {"status": status}


def get_first_image(messages):
    """The data URL of the first image of a conversation."""
    parts = next(message["content"] for message in messages if message["role"] == "user")
    return next(part["image_url"]["url"] for part in parts if part["type"] == "image_url")


class Server:
    """`scripts`: first image → replies. `requests`: first image → the bodies that were answered with a message."""

    def __init__(self, scripts):
        self.scripts = scripts
        self.requests = defaultdict(list)
        self.failed = defaultdict(int)
        self.url = ""

    async def chat(self, request):
        body = json.loads(await request.read())
        key = get_first_image(body["messages"])
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        errors = [reply for reply in self.scripts[key] if "status" in reply]
        if self.failed[key] < len(errors) and self.scripts[key].index(errors[self.failed[key]]) <= turn:
            self.failed[key] += 1
            return web.json_response({"error": {"message": "scripted"}}, status=errors[self.failed[key] - 1]["status"])
        self.requests[key].append(body)
        reply = [reply for reply in self.scripts[key] if "status" not in reply][turn]
        return web.json_response(
            {
                "id": f"chatcmpl-{turn}",
                "object": "chat.completion",
                "created": 1,
                "model": body["model"],
                "choices": [{"index": 0, **reply}],
                "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
            }
        )


@contextmanager
def serve(scripts):
    """A running `Server`, in a thread with its own event loop."""
    server = Server(scripts)
    loop = asyncio.new_event_loop()

    async def start():
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/chat/completions", server.chat)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        return runner

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
