"""The server of the page: one machine, one key, reading only."""

import json
import threading
import time
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest
import uvicorn

from tests.support.saved_episodes import plays, written
from tests.support.tables import each
from viewbox.envs.digits import Digits
from viewbox.errors import ConfigError
from viewbox.rollouts.store.writer import EpisodeWriter
from viewbox.viewer.server import Viewer, open_socket
from viewbox.viewer.sources import find_sets, read_all

KEY = "secret"


@contextmanager
def serving(*runs):
    sets = find_sets(runs)
    read_all(sets)
    opened = open_socket(0)
    settings = uvicorn.Config(Viewer(sets).build_app(KEY), log_level="warning", lifespan="off")
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield opened.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)
        opened.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("run") / "episodes", *plays(Digits(canvas=160, max_turns=6)))


@pytest.fixture(scope="module")
def port(folder):
    with serving(folder) as number:
        yield number


def ask(port, path, method="GET", **headers):
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers=headers)
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    return reply, content


def ask_json(port, path):
    reply, content = ask(port, f"/{KEY}/{path}")
    assert reply.status == 200
    return json.loads(content)


def test_rows_episodes_and_pictures_are_served(port):
    assert [one["name"] for one in ask_json(port, "sets")] == ["episodes"]
    rows = ask_json(port, "rows/0")
    assert len(rows["columns"]["line"]) == 21
    assert ask_json(port, "rows/0?start=20")["columns"]["line"] == [21]
    page = ask_json(port, "episode/0/3")
    assert page["line"] == 3
    one = page["pictures"]["p1"] if "p1" in page["pictures"] else next(iter(page["pictures"].values()))
    reply, content = ask(port, f"/{KEY}/image/0/3/{one['hash']}.png")
    assert (reply.status, reply.headers["content-type"], content[:4]) == (200, "image/png", b"\x89PNG")


WITHOUT_KEY = ["/", "/wrong/", f"/{KEY}x/", f"/{KEY}/../etc/passwd", "/sets", f"//{KEY}/sets"]
NOWHERE = [
    "rows/9", "rows/-1", "rows/0?start=x", "rows/0?start=" + "9" * 400, "episode/0/0", "episode/0/22",
    "episode/5/1", "episode/0/" + "9" * 5000, "image/0/3/..%2f..%2fconfig.yaml.png",
    "image/0/3/" + "0" * 40 + ".png", "compare/0/7",
]  # fmt: skip
REFUSED = [
    *((path, (404,), "GET", {}) for path in WITHOUT_KEY),
    *((f"/{KEY}/{path}", (400, 404), "GET", {}) for path in NOWHERE),
    *((f"/{KEY}/sets", (405,), method, {}) for method in ("POST", "PUT", "DELETE", "PATCH")),
    *(
        (f"/{KEY}/sets", (400,), "GET", {"Host": host})  # a name that only points here
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example")
    ),
]


@each("path, statuses, method, headers", REFUSED)
def test_without_the_key_there_is_nothing_and_with_it_nothing_can_be_changed(port, path, statuses, method, headers):
    assert ask(port, path, method, **headers)[0].status in statuses


def test_the_page_may_run_nothing_but_itself(port):
    reply, content = ask(port, f"/{KEY}/")
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert b"http://" not in content.replace(b"http://www.w3.org/2000/svg", b"")
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in reply.headers


def test_episodes_that_are_appended_are_served(tmp_path):
    written(tmp_path / "episodes", *plays(Digits(canvas=160, max_turns=6))[:2])
    with serving(tmp_path) as number:
        assert len(ask_json(number, "rows/0")["columns"]["line"]) == 2
        with EpisodeWriter(tmp_path / "episodes") as writer:
            writer.append(plays(Digits(canvas=160, max_turns=6))[2])
        assert ask_json(number, "rows/0?start=2")["columns"]["line"] == [3]
        assert ask_json(number, "episode/0/3")["line"] == 3


def test_a_port_that_is_taken_is_an_error(port):
    with pytest.raises(ConfigError, match=f"--port {port}"):
        open_socket(port)
