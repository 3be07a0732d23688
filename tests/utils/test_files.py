"""Files are whole or absent, locks hold between processes, and a command prints each line of a log once."""

import subprocess
import sys

import pytest

from viewbox.utils.files import lock_file, replace_atomically, try_lock


def test_a_failure_leaves_the_old_file_and_no_draft(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(TypeError), replace_atomically(path) as file:
        file.writelines([b"half", None])
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_is_refused_to_another_process_until_it_is_released_and_shared_ones_exclude_only_it(tmp_path):
    path = tmp_path / ".lock"
    code = "import pathlib, sys, viewbox.utils.files as f\nwith f.lock_file(pathlib.Path(sys.argv[1])): pass"

    def run_other():
        return subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)

    with lock_file(path):
        assert f"BlockingIOError: {path}: another process holds this lock" in run_other().stderr
    assert run_other().returncode == 0
    path = tmp_path / "file"
    path.write_text("")
    with path.open() as first, path.open() as second:
        assert try_lock(first.fileno(), shared=True)
        assert try_lock(second.fileno(), shared=True)
        assert not try_lock(second.fileno())


CODE = """
import logging
from viewbox.utils.terminal import protect_output

protect_output()
library = logging.getLogger("library")
library.addHandler(logging.StreamHandler())
logging.getLogger("kept").addHandler(logging.FileHandler("/dev/null"))
logging.getLogger("kept").warning("kept in a file and said")
library.getChild("part").warning("said by the library")
logging.getLogger("viewbox.x").warning("said by viewbox")
"""


def test_a_warning_that_a_library_prints_itself_stands_there_once():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["kept in a file and said", "said by the library", "said by viewbox"]
