"""`viewbox view`: a file for a small run, a server for a large one, and words for what is wrong."""

import os
import re
import signal
import subprocess
import sys
from urllib.request import urlopen

import pytest

from tests.support.saved_episodes import made, written


@pytest.fixture
def run(tmp_path):
    return written(tmp_path / "run" / "episodes", *(made(n) for n in range(3))).parent


def test_a_small_run_becomes_one_file(run, tmp_path, viewbox):
    status, out, _ = viewbox("view", run, "--out", tmp_path / "deep" / "page.html")
    assert status == 0
    assert "run: 3 episodes" in out
    assert "page.html" in out
    assert "t0" in (tmp_path / "deep" / "page.html").read_text()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["page.html"]


def test_a_restricted_run_says_that_its_file_stays_here(run, tmp_path, viewbox):
    (run / "config.yaml").write_text("env: {name: vqa, data: {source: a.csv, restricted: true}}")
    out = viewbox("view", run, "--out", tmp_path / "page.html")[1]
    assert "warning: its data is restricted" in out
    assert "keep the file on this machine" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("nowhere",), "no episodes here"), (("{run}", "--out", "{run}"), "run"), (("{run}", "--port", "99999"), "65535")],
)
def test_what_cannot_be_shown_is_an_error(run, viewbox, arguments, words):
    status, _, err = viewbox("view", *(one.format(run=run) for one in arguments))
    assert status == 2
    assert words in err


def test_the_server_says_its_address_and_ends_with_ctrl_c(run):
    line = [sys.executable, "-m", "viewbox", "view", str(run), "--serve"]
    process = subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    try:
        said = process.stdout.readline() + process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/[\w-]{20,}/", said)[0]
        assert b"viewbox" in urlopen(address, timeout=10).read()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130)
        process.stdout.close()
