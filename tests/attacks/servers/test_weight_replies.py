"""Hostile replies of a server that takes weights: the run waits or ends in words, and reads little of any of them."""

import gzip
import resource

import pytest

from tests.support.model_fixtures import *  # noqa: F403
from tests.support.servers import make_response, send_bytes
from tests.support.tables import each
from tests.support.vllm_server import TrainedVLLM
from viewbox.engines.generator import GeneratorError
from viewbox.engines.vllm.weights import MAX_BODY, WeightSender
from viewbox.errors import ConfigError

VERSION, INFO = "/weight_info", "/server_info?config_format=json"
OSC52 = "\x1b]52;c;cm0=\x07\u202e"


def flood(handler):
    """A body without an end; `handler.server.flooded` counts what the client took."""
    handler.send_response(200)
    handler.end_headers()
    for _ in range(2000):
        handler.wfile.write(b" " * 65536)
        handler.server.flooded += 65536
    handler.close_connection = True


def tell(backend):
    return {"vllm_config": {"weight_transfer_config": {"backend": backend}}}


BOMB = gzip.compress(bytes(400 * 2**20), 6)
WAITED = [  # the server may be well again later
    (VERSION, send_bytes(200, BOMB, Content_Encoding="gzip"), "after those of"),
    (VERSION, send_bytes(200, b"junk", Content_Encoding="gzip"), "after those of"),
    (VERSION, send_bytes(500, BOMB[:MAX_BODY], Content_Encoding="gzip"), "HTTP 500"),
    (VERSION, flood, "does not end"), (VERSION, make_response(200, "[" * 100_000), "the weights None"),
    (VERSION, make_response(200, '{"weight_version": NaN}'), "the weights None"),
    (VERSION, send_bytes(200, b"\xff\xfe\x00"), "the weights None"),
    (VERSION, {"weight_version": OSC52}, "\\x1b]52"), (VERSION, {"weight_version": "x" * 900_000}, "the weights x"),
    (VERSION, {"weight_version": [["x"]]}, "the weights [["),
    (INFO, make_response(500, {"error": {"message": OSC52}}), "\\x1b]52"),
    (INFO, make_response(500, "x" * 900_000), "HTTP 500"),
]  # fmt: skip
REFUSED = [  # the server was started in another way, or is another one
    (VERSION, make_response(307, "", Location="http://127.0.0.1:1/"), "HTTP 307"),
    (VERSION, make_response(401, "Unauthorized"), "HTTP 401"), (INFO, tell(OSC52 + "x" * 9999), "\\x1b]52"),
    (INFO, tell(["file"]), "['file']"), (INFO, make_response(200, "[" * 5000 + "]" * 5000), "its backend is None"),
]  # fmt: skip


@pytest.fixture(scope="module")
def policy(qwen3):
    return qwen3.model(seed=1)


def send(qwen3, policy, folder, path, answer):
    async def check():
        return "policy"

    served = TrainedVLLM(qwen3.model(seed=0), qwen3.processor)
    with served.serve() as server:
        server.by_path[path] = lambda body: answer
        try:
            WeightSender(server.url, folder / "weights", check, wait=0.0, pause=0.01).send(policy)
        finally:
            assert server.flooded < 64 * 2**20
            left = [*(folder / "weights").glob("*")] if (folder / "weights").exists() else []
            assert left == []


@each("path, answer, says", WAITED)
def test_a_reply_that_cannot_be_used_is_trouble_that_may_pass(qwen3, policy, tmp_path, caplog, path, answer, says):
    caplog.clear()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(GeneratorError, match="no weights could be sent") as caught:
        send(qwen3, policy, tmp_path, path, answer)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # KB
    for said in (str(caught.value), *caplog.messages):
        assert says in said
        assert said.isprintable()
        assert len(said) < 2000


@each("path, answer, says", REFUSED)
def test_a_server_of_another_kind_is_refused_in_words(qwen3, policy, tmp_path, path, answer, says):
    with pytest.raises(ConfigError, match="docs/scaling") as caught:
        send(qwen3, policy, tmp_path, path, answer)
    assert says in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
