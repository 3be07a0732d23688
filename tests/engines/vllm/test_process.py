"""A server that viewbox runs: it starts, starts again, and no process of it stays, however viewbox ends."""

import json
import os
import signal
import subprocess
import sys

import httpx
import pytest

from tests.support.waiting import wait_until, wait_until_gone
from viewbox.engines.generator import GeneratorError
from viewbox.engines.vllm.process import ServerProcess

# Answers /health, and has a worker, as vLLM does. `fails` in its folder makes the next start fail.
SERVER = """
import http.server, json, os, subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open("pids", "a").write(json.dumps([os.getpid(), worker.pid, os.getppid()]) + "\\n")
print("loading", flush=True)
if os.path.exists("fails"):
    print("out of memory \\x1b[31m", flush=True)
    sys.exit(3)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *args): ...
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
OWNER = """
import sys
from pathlib import Path
from viewbox.engines.vllm.process import ServerProcess
server = ServerProcess(lambda port: [sys.executable, "server.py", str(port)], Path("server.log"))
server.wait()
print("up", flush=True)
{then}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "server.py").write_text(SERVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def server(folder):
    process = ServerProcess(lambda port: [sys.executable, "server.py", str(port)], folder / "logs" / "server.log")
    yield process
    process.end()


def read_pids(folder):
    """The processes of every start."""
    return [json.loads(line) for line in (folder / "pids").read_text().splitlines()]


def kill(server):
    os.killpg(server.pid, signal.SIGKILL)
    wait_until(lambda: not server.is_running())


def test_a_server_starts_answers_and_ends_with_all_its_processes(server, folder):
    shown = []
    server.show = shown.append
    server.wait()
    assert httpx.get(f"{server.url}/health", trust_env=False).status_code == 200
    assert server.is_ready()
    assert shown
    assert shown[0].startswith("the server starts: 0 s")
    server.end()
    assert not server.is_running()
    wait_until_gone(read_pids(folder)[0])
    assert (folder / "logs" / "server.log").read_text().startswith("loading")


def test_a_server_that_does_not_start_ends_the_run_with_the_end_of_its_log(server, folder):
    (folder / "fails").touch()
    with pytest.raises(GeneratorError, match=r"the server did not start; its log, .*server\.log, ends with") as caught:
        server.wait()
    assert "  out of memory \\x1b[31m" in str(caught.value)
    assert "status 3" in str(caught.value)
    assert len(read_pids(folder)) == 1
    wait_until_gone(read_pids(folder)[0])


def test_a_server_that_died_starts_again_there_and_two_starts_in_a_row_that_fail_are_the_last(server, folder):
    server.wait()
    server.confirm()
    url = server.url
    kill(server)
    assert not server.is_ready()
    server.wait()
    assert server.url == url
    assert server.num_started == 2
    wait_until_gone(read_pids(folder)[0])
    server.confirm()
    kill(server)
    (folder / "fails").touch()
    with pytest.raises(GeneratorError, match="ended 2 times in a row"):
        server.wait()
    assert len(read_pids(folder)) == 4


def test_a_server_that_always_dies_before_it_is_of_use_is_started_twice(server, folder):
    for _ in range(2):
        server.wait()
        kill(server)
    with pytest.raises(GeneratorError, match="ended 2 times in a row"):
        server.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, None], ids=str)
def test_the_server_ends_with_the_process_that_started_it(folder, number):
    (folder / "owner.py").write_text(OWNER.format(then="1 / 0" if number is None else "import time; time.sleep(600)"))
    owner = subprocess.Popen([sys.executable, "owner.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert owner.stdout.readline() == b"up\n", owner.stderr.read()
    if number is not None:
        owner.send_signal(number)
    owner.wait(60)
    owner.communicate()
    wait_until_gone(read_pids(folder)[0])


def test_a_worker_that_outlives_its_server_is_ended(server, folder):
    server.wait()
    main, worker, watchdog = read_pids(folder)[0]
    subprocess.run(["kill", "-9", str(main)], check=True)
    wait_until_gone([worker, watchdog])
