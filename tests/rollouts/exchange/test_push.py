"""`viewbox export --push`: a private dataset with a card, by the hub's own client; restricted data stays here."""

import base64
import io
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.saved_episodes import run  # noqa: F401
from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.rollouts.exchange.export import Export, export_run
from viewbox.rollouts.exchange.importing import import_file
from viewbox.rollouts.store.reader import load


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as an upload of small files needs."""

    asked: list
    status = 200

    def do_GET(self):
        self.reply({"id": "me/runs", "sha": "0" * 40, "private": True, "siblings": []})

    def do_POST(self):
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        type(self).asked.append((self.path, content, self.headers.get("Authorization")))
        if self.path == "/api/repos/create":
            return self.reply({"url": "https://huggingface.co/datasets/me/runs", "name": "me/runs", "id": "me/runs"})
        if "/preupload/" in self.path:
            same = {"uploadMode": "regular", "shouldIgnore": False}
            return self.reply({"files": [{"path": one["path"], **same} for one in json.loads(content)["files"]]})
        commit = {"commitUrl": "https://huggingface.co/datasets/me/runs/commit/1", "commitOid": "1" * 40}
        return self.reply({**commit, "errors": [], "warnings": []}, self.status)

    def reply(self, value, status=200):
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub():
    class Own(Hub):
        asked: list = []  # noqa: RUF012

    server = ThreadingHTTPServer(("127.0.0.1", 0), Own)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server, Own
    server.shutdown()
    server.server_close()


def push(server, folder, out, name="me/runs"):
    line = [sys.executable, "-m", "viewbox", "export", str(folder), "--to", "hf", "--out", str(out), "--push", name]
    address = f"http://127.0.0.1:{server.server_port}"
    variables = {
        **os.environ, "HF_ENDPOINT": address, "HF_TOKEN": "hf_" + "x" * 20, "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
    }  # fmt: skip
    return subprocess.run(line, capture_output=True, text=True, env=variables, timeout=120, check=False)


def test_a_run_becomes_a_private_dataset_that_comes_back(run, tmp_path, hub):  # noqa: F811
    (run / "config.yaml").write_text("env: {name: digits}")
    server, own = hub
    done = push(server, run, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "me/runs" in done.stdout
    _, content, key = next(one for one in own.asked if one[0] == "/api/repos/create")
    assert "private" in (json.loads(content).get("visibility"), *json.loads(content)), content
    assert key == "Bearer hf_" + "x" * 20
    commit = next(content for path, content, _ in own.asked if "/commit/" in path)
    files = {line["value"]["path"]: base64.b64decode(line["value"]["content"])
             for line in map(json.loads, commit.splitlines()) if line["key"] == "file"}  # fmt: skip
    assert set(files) == {"README.md", "data/train-00000-of-00001.parquet"}
    assert "21 episodes of the environment `digits`" in files["README.md"].decode()
    (tmp_path / "back.parquet").write_bytes(io.BytesIO(files["data/train-00000-of-00001.parquet"]).read())
    assert import_file(tmp_path / "back.parquet", "parquet", tmp_path / "back").kept == 21
    assert [one.scores for one in load(tmp_path / "back")] == [one.scores for one in load(run)]


def test_a_refusal_of_the_hub_is_said_and_the_export_stays(run, tmp_path, hub):  # noqa: F811
    (run / "config.yaml").write_text("env: {name: digits}")
    server, own = hub
    own.status = 403
    done = push(server, run, tmp_path / "out")
    assert done.returncode == 2
    assert "--push me/runs: " in done.stderr
    assert "403" in done.stderr
    assert "xxxx" not in done.stderr
    assert (tmp_path / "out").is_dir()


@each("env", ["{name: vqa, data: {source: a.csv, restricted: true}}", "{name: 'mine:Env'}"])
def test_restricted_data_is_refused_before_anything_is_written(run, tmp_path, env):  # noqa: F811
    (run / "config.yaml").write_text(f"env: {env}")
    with pytest.raises(ConfigError, match="must not leave this machine"):
        export_run(run, "hf", tmp_path / "out", Export(push="me/runs"))
    assert not (tmp_path / "out").exists()


@each("name", ["runs", "a/b/c", "me/../x", "/x", "me/", "me/r uns", "me/" + "r" * 200])
def test_what_is_no_name_is_refused_and_only_hf_is_pushed(run, tmp_path, name):  # noqa: F811
    with pytest.raises(ConfigError, match="owner/name"):
        export_run(run, "hf", tmp_path / "out", Export(push=name))
    with pytest.raises(ConfigError, match="--to hf"):
        export_run(run, "sft", tmp_path / "out", Export(push="me/runs"))
