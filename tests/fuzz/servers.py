"""Responses of a server on this machine: the run goes on, all is stored, and the terminal is left alone."""

import json
import random
from pathlib import Path

from tests.fuzz.mutate import mutate_bytes, mutate_text, mutate_value, write_json
from tests.support.hostile_rollout import RIGHT, check_outcome, play_hostile
from tests.support.servers import make_completion, send_raw
from viewbox.engines.openai.client import EndpointError

CPU_SECONDS = 10.0
TIMEOUT = 5.0  # seconds of an episode
CALL = ("c1", "search", '{"query": "x"}')
BODIES = (
    make_completion(RIGHT, usage={"prompt_tokens": 10, "completion_tokens": 5}),
    make_completion("", CALL),
    make_completion("looking", CALL, ("c2", "search", '{"query": "y"}'), reasoning_content="so"),
    make_completion([{"type": "text", "text": RIGHT}]),
    {"error": {"message": "no such model", "type": "invalid_request_error", "code": 400}},
)
STATUSES = (200, 200, 200, 200, 200, 204, 206, 301, 400, 404, 408, 413, 429, 500, 503, 529, 999)
HEADERS = (
    "Content-Type: application/json", "Retry-After: 0.01", "Content-Encoding: gzip", "Transfer-Encoding: chunked",
    "Location: http://192.0.2.1/", "Set-Cookie: a=b", "Content-Length: 5", "Connection: keep-alive",
)  # fmt: skip


def make_case(chance: random.Random) -> bytes:
    return json.dumps([make_response(chance).decode("latin-1") for _ in range(chance.choice([1, 1, 2, 4]))]).encode()


def make_response(chance: random.Random) -> bytes:
    body = chance.choice(BODIES)
    text = write_json(mutate_value(chance, body) if chance.random() < 0.7 else body)
    if chance.random() < 0.2:
        text = mutate_text(chance, text, [write_json(one) for one in BODIES])
    content = text.encode("utf-8", "replace")
    lines = [f"HTTP/1.1 {chance.choice(STATUSES)} OK", f"Content-Length: {len(content)}"]
    lines += chance.sample(HEADERS, chance.choice([0, 0, 1, 3]))
    whole = "\r\n".join(lines).encode() + b"\r\n\r\n" + content
    return mutate_bytes(chance, whole, [whole]) if chance.random() < 0.2 else whole


def check_case(content: bytes, folder: Path) -> None:
    responses = [send_raw(text.encode("latin-1")) for text in json.loads(content)]
    (folder / "run").mkdir()
    try:
        outcome = play_hostile(folder / "run", *responses, tasks=2, hostile=(1,), timeout=TIMEOUT)
    except EndpointError as error:
        if error.status is not None:  # before the first good reply it rightly ends the run
            return
        raise
    check_outcome(outcome, count=2, hostile=(1,))
