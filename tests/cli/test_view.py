"""`viewbox view`: a file for a small run, a server for a large one, and words for what is wrong."""

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


def test_a_small_run_becomes_one_file_that_stays_here_if_it_is_restricted(run, tmp_path, viewbox):
    status, out, _ = viewbox("view", run, "--out", tmp_path / "deep" / "page.html")
    assert (status, "run: 3 episodes" in out, "page.html" in out) == (0, True, True)
    assert "t0" in (tmp_path / "deep" / "page.html").read_text()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["page.html"]
    (run / "config.yaml").write_text("env: {name: vqa, data: {source: a.csv, restricted: true}}")
    out = viewbox("view", run, "--out", tmp_path / "page.html")[1]
    assert "warning: its data is restricted" in out
    assert "keep the file on this machine" in out


def test_what_cannot_be_shown_is_an_error(run, viewbox):
    given = (["nowhere"], "no episodes here"), ([run, "--out", run], "run"), ([run, "--port", "99999"], "65535")
    for arguments, words in given:
        status, _, err = viewbox("view", *arguments)
        assert (status, words in err) == (2, True), err


def test_the_server_says_its_address_and_ends_with_ctrl_c(run):
    line = [sys.executable, "-u", "-m", "viewbox", "view", str(run), "--serve"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        said = process.stdout.readline() + process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/[\w-]{20,}/", said)[0]
        assert b"viewbox" in urlopen(address, timeout=10).read()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130)
        process.stdout.close()
