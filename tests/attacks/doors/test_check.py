"""A package that means harm to the process that checks it: its programs, its wheel, and what its code leaves behind."""

import os
import socket
import threading
import zipfile
from pathlib import Path

import pytest

from tests.publish.test_check import LIMITS, PROJECT, demo, edit, list_failed, written  # noqa: F401  (two are fixtures)
from tests.support.forged_runs import HOSTILE
from tests.support.tables import each
from tests.support.waiting import wait_until_gone
from viewbox.errors import ConfigError
from viewbox.publish.checks import check_package, project
from viewbox.publish.checks.before import unpack_wheel
from viewbox.publish.checks.process import Limits, run_limited
from viewbox.publish.checks.rows import Failed


def write_wheel(path, **files):
    """A wheel by hand, with any names that a build backend would not write."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("demo-1.dist-info/METADATA", "Metadata-Version: 2.4\nName: demo\nVersion: 1\n")
        for name, content in files.items():
            file.writestr(name, content)
    return path


def unpack(wheel):
    return unpack_wheel(wheel, wheel.parent / "fresh", with_viewbox=False)


def list_all(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@each("name", ["../x.py", "demo/../../x.py", "/x.py", "..\\x.py"])
def test_no_file_of_a_wheel_leads_out_of_its_folder(tmp_path, name):
    before = list_all(tmp_path)
    unpack(write_wheel(tmp_path / "demo.whl", **{name: "1"}))
    assert {path for path in list_all(tmp_path) if not path.startswith("fresh/")} == before | {"demo.whl"}
    assert not Path("/x.py").exists()


@each("name", [
    "a.pth", "sitecustomize.py", "./sitecustomize.py", "//sitecustomize.py", "sitecustomize.pyc", "SiteCustomize.PY",
    ".\\sitecustomize.py", "sitecustomize/__init__.py", "usercustomize.cpython-311-x86_64-linux-gnu.so", "./a.pth",
    "../sitecustomize.py", "demo-1.data/purelib/x.pth", "demo-1.data/platlib/x.PTH", "demo-1.data/./purelib//x.pth",
    "demo-1.data/data/lib/python3.11/site-packages/x.pth", "./Demo-1.DATA/purelib/sitecustomize.py", "x.egg-link",
])  # fmt: skip
def test_no_file_of_a_wheel_runs_by_itself(tmp_path, name):
    with pytest.raises(Failed, match="whenever it starts"):
        unpack(write_wheel(tmp_path / "demo.whl", **{name: "1"}))


def test_a_wheel_is_unpacked_up_to_a_size(tmp_path, monkeypatch):
    monkeypatch.setattr(project, "MAX_WHEEL", 2**20)
    with zipfile.ZipFile(tmp_path / "demo.whl", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("demo/zeros", bytes(2**21))
    with pytest.raises(Failed, match=r"holds 0\.0 GiB; allowed"):
        unpack(tmp_path / "demo.whl")


@each("put", [*HOSTILE.values(), lambda path: path.symlink_to(path.parents[1] / "outside.whl")])
def test_a_wheel_is_a_regular_file_of_a_bounded_size(tmp_path, put):
    """It is refused at once: a pipe would wait, and the link would lead to a file of this machine."""
    place = tmp_path / "home" / "demo.whl"
    place.parent.mkdir()
    write_wheel(tmp_path / "outside.whl")
    put(place)
    refused = []

    def read():
        with pytest.raises(Failed, match="cannot be read"):
            unpack(place)
        refused.append(True)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(20)
    assert refused


def test_of_a_long_output_the_end_is_read_and_a_process_that_stays_is_ended(tmp_path):
    command = ["bash", "-c", "yes 0123456789 | head -n 300000; echo end; sleep 600.75 & echo $!"]
    outcome = run_limited(command, folder=tmp_path, home=tmp_path, limits=Limits(seconds=20))
    *_, end, process = outcome.output.split()
    assert (outcome.status, end, len(outcome.output)) == (0, "end", 2**16)
    wait_until_gone([int(process)])


def test_a_folder_with_a_socket_or_a_pipe_is_refused_in_words(demo):  # noqa: F811
    os.mkfifo(demo / "demo" / "pipe")
    with pytest.raises(ConfigError, match="cannot be copied"):
        check_package(demo, limits=LIMITS, rows=["metadata"])
    (demo / "demo" / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(demo / "demo" / "s"))
        with pytest.raises(ConfigError, match="cannot be copied"):
            check_package(demo, limits=LIMITS, rows=["metadata"])
