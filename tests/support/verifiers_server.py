"""An OpenAI-compatible endpoint on 127.0.0.1 whose replies are scripted, for tests that run verifiers' own commands.

A conversation is known by the image in its first user message; its script is a list of replies, one a turn.
"""

import threading
from collections import defaultdict
from contextlib import contextmanager

from tests.support import servers


def make_reply(content, *calls, finish_reason="stop", **more):
    """A reply; `calls` are (id, name, arguments)."""
    return servers.make_completion(content, *calls, finish=finish_reason, **more)["choices"][0]


def make_error(status):
    """A reply that is an error."""
    return {"status": status}


def get_first_image(messages):
    """The data URL of the first image of a conversation."""
    parts = next(message["content"] for message in messages if message["role"] == "user")
    return next(part["image_url"]["url"] for part in parts if part["type"] == "image_url")


class Scripts:
    """`scripts`: first image → replies. `requests`: first image → the bodies that were answered with a message."""

    def __init__(self, scripts):
        self.scripts = scripts
        self.requests = defaultdict(list)
        self.failed = defaultdict(int)
        self.lock = threading.Lock()

    def answer(self, body, number):
        if body is None:  # no page but that of completions
            return servers.make_response(404)
        with self.lock:
            status, content = self.reply(body)
        return servers.make_response(status, content, Content_Type="application/json")

    def reply(self, body):
        key = get_first_image(body["messages"])
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        errors = [reply for reply in self.scripts[key] if "status" in reply]
        if self.failed[key] < len(errors) and self.scripts[key].index(errors[self.failed[key]]) <= turn:
            self.failed[key] += 1
            return errors[self.failed[key] - 1]["status"], {"error": {"message": "scripted"}}
        self.requests[key].append(body)
        reply = [reply for reply in self.scripts[key] if "status" not in reply][turn]
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        head = {"id": f"chatcmpl-{turn}", "object": "chat.completion", "created": 1, "model": body["model"]}
        return 200, {**head, "choices": [reply], "usage": usage}


@contextmanager
def serve(scripts):
    """Runs a server in a thread; gives its `Scripts`, with the `url`."""
    found = Scripts(scripts)
    with servers.serve(found.answer) as server:
        found.url = server.url
        yield found
