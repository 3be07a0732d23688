"""What an option names to be written: refused in one sentence before any work is done, and nothing is left there.

Beside it, the status of commands that find nothing, or that leave something out.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from PIL import Image

from tests.support.saved_episodes import made, written
from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.utils.exit_status import guard
from viewbox.utils.files import check_out

PLAY = ("rollout", "--env", "digits", "--endpoint", "http://127.0.0.1:9/v1", "--model", "m")
COMMANDS = [  # the words before the path
    ("view", "{run}", "--out"), ("export", "{run}", "--to", "openai", "--out"),
    ("export", "{run}", "--to", "run", "--out"), ("score", "{run}", "--task-rewards"),
    ("import", "{run}/episodes/episodes.jsonl", "--from", "openai", "--out"), ("tools", "try", "{scan}", "--out"),
    ("view", "quickstart", "--tasks", "1", "--out"), (*PLAY, "--out"), ("evaluate", *PLAY[1:], "--out"),
    ("openenv", "digits", "--write"), ("new", "my-discs", "--in"), ("publish", "digits"),
    ("train", "quickstart", "--dry-run"),
]  # fmt: skip
PATHS = {  # the path, and words of the message
    "": "the name is empty", "  ": "the name is empty", "{tmp}/file/deep/x.png": "file is not a folder",
    "/proc/viewbox/x.png": "cannot be written (", "/dev/full": "", "{tmp}/broken": "", "{tmp}/pipe": "",
    "{tmp}/new/" + "n" * 300 + ".png": "cannot be written (File name too long)",
}  # fmt: skip


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A run, a file, a broken link and a pipe."""
    run = written(tmp_path / "run" / "episodes", *(made(n) for n in range(3))).parent
    (tmp_path / "file").touch()
    (tmp_path / "broken").symlink_to(tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    return {"run": run, "tmp": tmp_path, "scan": tmp_path / "file"}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_path_that_cannot_be_written_is_one_sentence_and_2(words, places, viewbox):
    before = sorted(places["tmp"].rglob("*"))
    option = words[-1] if words[-1].startswith("--") else "OUT"
    for path, said in PATHS.items():
        given = path.format(**places)
        if words[0] == "train":
            given, option = f"log.dir={given}", "log.dir"
        if words[0] == "train" and not path.strip():
            continue  # YAML's null, and the default
        status, _, err = viewbox(*(word.format(**places) for word in words), given)
        assert (status, err.count("\n"), option in err, said in err) == (2, 1, True, True), (path, err)
        assert sorted(places["tmp"].rglob("*")) == before, path
        assert (places["tmp"] / "pipe").is_fifo(), path


@each("kind, path", [("file", "folder"), ("folder", "file"), ("new", "folder"), ("new", "file")])
def test_what_is_there_already_must_be_of_the_kind(kind, path, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=f"^--write '.*/{path}': "):
        check_out(tmp_path / path, kind, "--write")


def test_what_can_be_written_leaves_nothing(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    for kind in ("file", "folder", "new"):
        for path in ("x", "deep/er/x", "link/x"):
            assert check_out(tmp_path / path, kind) == tmp_path / path
    assert check_out(tmp_path / "link", "folder") == tmp_path / "link"
    with pytest.raises(ConfigError, match="cannot be written"):
        check_out("a\0b", "file")
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_the_file_that_is_read_is_not_replaced(viewbox, tmp_path):
    Image.new("L", (40, 40)).save(tmp_path / "scan.png")
    before = (tmp_path / "scan.png").read_bytes()
    status, _, err = viewbox("tools", "try", tmp_path / "scan.png", "rotate", "--out", tmp_path / "scan.png")
    assert (status, "is what the command reads" in err) == (2, True)
    assert (tmp_path / "scan.png").read_bytes() == before


FORMS = ("run", "openai", "parquet", "inspect", "sft")
NOTHING = [
    *(f"export {{run}} --to {to} --where reward>5 --out {{tmp}}/out" for to in FORMS),
    "export {empty} --to run --out {tmp}/out", "import {tmp}/file --from openai --out {tmp}/out",
    "score {run} --where reward>5", "score {empty}", "compare {run} {empty}", "compare {run} {run} --where reward>5",
    "runs {nothing}", "runs list {nothing} --format json", "view {empty} --out {tmp}/out",
    "view {run} --out {tmp}/out.png", "view {run}#1 --out {tmp}/out.html",
    "view {run}/episodes/format.json --out {tmp}/out.html", "view {nothing}.yaml --out {tmp}/out.html",
    "view {run} --out {run}", "view {run} --port 99999"
]  # fmt: skip


def test_nothing_is_2_and_nothing_is_written(places, viewbox):
    where = {**places, "empty": places["tmp"] / "empty", "nothing": places["tmp"] / "nothing"}
    where["nothing"].mkdir()
    written(where["empty"] / "episodes")
    for line in NOTHING:
        assert viewbox(*line.format(**where).split())[0] == 2, line
        assert not list(places["tmp"].glob("out*")), line


SKIPPED = {
    "view {run} --out {tmp}/out.html": "3 episodes; 1 lines cannot be read",
    "runs list {tmp}": "1 lines of its episodes cannot be read", "score {run}": "1 lines of",
    "export {run} --to run --out {tmp}/out": "1 (broken)", "export {run} --to openai --out {tmp}/out": "1 (broken)",
    "compare {run} {run}": "1 lines of episodes.jsonl cannot be read"
}  # fmt: skip


@pytest.mark.parametrize("line", SKIPPED)
def test_a_line_that_cannot_be_read_is_counted_and_1(line, places, viewbox):
    with (places["run"] / "episodes" / "episodes.jsonl").open("ab") as file:
        file.write(b"junk\n")
    status, out, err = viewbox(*line.format(**places).split())
    assert (status, SKIPPED[line] in out + err) == (1, True)


def test_what_the_system_refuses_is_one_sentence_and_that_there_is_no_current_folder(tmp_path, monkeypatch, capsys):
    for error in (PermissionError(13, "Permission denied", "a/b"), OSError(30, "Read-only file system", "a/b")):

        def work(error=error):
            raise error

        assert guard(work) == 2
        assert capsys.readouterr().err == f"error: a/b: {error.strerror}\n"
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert guard(lambda: len(Path("x").absolute().parts)) == 2
    assert "the current folder was removed" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)


def test_a_small_run_becomes_one_file_that_stays_here_if_it_is_restricted(places, tmp_path, viewbox):
    run = places["run"]
    status, out, _ = viewbox("view", run, "--out", tmp_path / "deep" / "page.html")
    assert (status, "run: 3 episodes" in out, "page.html" in out) == (0, True, True)
    assert "t0" in (tmp_path / "deep" / "page.html").read_text()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["page.html"]
    (run / "config.yaml").write_text("env: {name: vqa, data: {source: a.csv, restricted: true}}")
    out = viewbox("view", run, "--out", tmp_path / "page.html")[1]
    assert "warning: its data is restricted" in out
    assert "keep the file on this machine" in out


def test_the_server_says_its_address_and_ends_with_ctrl_c(places):
    line = [sys.executable, "-u", "-m", "viewbox", "view", str(places["run"]), "--serve"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        said = process.stdout.readline() + process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/[\w-]{20,}/", said)[0]
        assert b"viewbox" in urlopen(address, timeout=10).read()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130)
        process.stdout.close()
