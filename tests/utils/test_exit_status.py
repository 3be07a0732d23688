"""How a command ends: 2 by its input or an author's code, with its line; 1 by viewbox itself; 130 by Ctrl-C."""

import argparse
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import viewbox
from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.utils.exit_status import guard
from viewbox.utils.importing import load_object

OWN = """
import argparse, asyncio, json
class Gone(BaseException): pass
def leave(): raise SystemExit(0)
def leave_with_words(): raise SystemExit("no")
def go(): raise Gone("now")
def cancel(): raise asyncio.CancelledError
def close(): raise GeneratorExit
def fail(): raise ValueError("no")
def read(): return open("no.jsonl").read()
def parse(): return argparse.ArgumentParser().parse_args(["--help"])
def load(): return json.loads("no")
"""


@each("name, said", [
    ("leave", "line 4: SystemExit: 0"), ("leave_with_words", "line 5: SystemExit: no"), ("go", "line 6: Gone: now"),
    ("cancel", "line 7: CancelledError: "), ("close", "line 8: GeneratorExit: "), ("fail", "line 9: ValueError: no"),
    ("read", "line 10: FileNotFoundError: [Errno 2] No such file or directory: 'no.jsonl'"),
    ("parse", "line 11: SystemExit: 0"), ("load", "line 12: JSONDecodeError: Expecting value"),
])  # fmt: skip
def test_what_an_authors_code_raises_is_an_error_that_names_its_line(tmp_path, monkeypatch, capsys, name, said):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own.py").write_text(OWN)
    assert guard(load_object(f"{tmp_path}/own.py:{name}")) == 2
    assert f"error: {tmp_path}/own.py, {said}" in capsys.readouterr().err


def raise_error(error):
    raise error


@each("error, status", [(ConfigError("no"), 2), (KeyboardInterrupt(), 130), (ValueError("no"), 1), (SystemExit(0), 1)])
def test_any_other_failure_keeps_its_status(error, status, capsys):
    assert guard(lambda: raise_error(error)) == status


@each("leave", [sys.exit, lambda code, leave=sys.exit: leave(code)])  # W&B wraps it
def test_the_exit_of_a_parser_of_ours_passes(leave, monkeypatch, capsys):
    monkeypatch.setattr(argparse._sys, "exit", leave)
    with pytest.raises(SystemExit) as caught:
        guard(lambda: argparse.ArgumentParser().parse_args(["--help"]))
    assert caught.value.code == 0


@pytest.mark.slow
def test_what_lies_beside_viewbox_is_no_authors(tmp_path):
    """As `pip install --target FOLDER` lays it: the folder is none of Python's own paths."""
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    (tmp_path / "viewbox").unlink(missing_ok=True)
    (tmp_path / "viewbox").symlink_to(Path(viewbox.__file__).parent)
    (tmp_path / "numpyish.py").write_text("1 / 0")

    def run(*command):
        python = [sys.executable, "-S", *command]
        return subprocess.run(python, env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path, capture_output=True, text=True)

    done = run("-m", "viewbox", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    code = "from viewbox.utils.exit_status import guard; raise SystemExit(guard(lambda: __import__('numpyish')))"
    theirs = run("-c", code)
    assert theirs.returncode == 2, theirs.stderr
    assert "numpyish.py, line 1: ZeroDivisionError" in theirs.stderr
