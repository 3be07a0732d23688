"""A package that means harm to the process that checks it: its programs, its wheel, and what its code leaves behind."""

import os
import socket
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from tests.publish.test_check import LIMITS, PROJECT, demo, edit, list_failed  # noqa: F401  (`demo` is a fixture)
from viewbox.errors import ConfigError
from viewbox.publish.checks import check_package, fresh
from viewbox.publish.checks.rows import Failed
from viewbox.publish.checks.trial import Outcome, _read_report, read_end


def write_wheel(path, entry_points="", **files):
    """A wheel by hand, with any names that a build backend would not write."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("demo-1.dist-info/METADATA", "Metadata-Version: 2.4\nName: demo\nVersion: 1\n")
        file.writestr("demo-1.dist-info/entry_points.txt", entry_points)
        for name, content in files.items():
            file.writestr(name, content)
    return path


def list_all(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


SCRIPTS = {
    "an absolute path": ("{outside}/x", "demo:main"),
    "a path above": ("../../../x", "demo:main"),
    "a folder": ("a/x", "demo:main"),
    "a hidden file": (".bashrc", "demo:main"),
    "backslashes": ("..\\x", "demo:main"),
    "a shell line as the module": ("x", "demo; touch {outside}/x; true:main"),
    "a line of Python as the function": ("x", "demo:main); open('{outside}/x', 'w').close(); (main"),
    "a call": ("x", "demo:main()"),
    "no function": ("x", "demo"),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_of_a_package_is_a_file_of_its_own_environment(tmp_path, script):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("mine")
    name, value = (part.format(outside=outside) for part in SCRIPTS[script])
    wheel = write_wheel(tmp_path / "demo.whl", f"[gui_scripts]\n{name} = {value}\n")
    before = list_all(tmp_path)
    with pytest.raises(Failed, match=r"script .*; allowed: a name of letters, digits"):
        fresh.make_environment(tmp_path / "fresh", wheel, [])
    assert (outside / "x").read_text() == "mine"
    assert {path for path in list_all(tmp_path) if not path.startswith("fresh/")} == before
    assert not list((tmp_path / "fresh" / "bin").glob("*x"))


def test_no_script_takes_the_place_of_python(tmp_path):
    wheel = write_wheel(
        tmp_path / "demo.whl", "[console_scripts]\npython = demo:main\ndemo-run.2 = demo.sub:App.run [x]\n"
    )
    python = fresh.make_environment(tmp_path / "fresh", wheel, [])
    assert python.resolve() == Path(sys.executable).resolve()
    said = (tmp_path / "fresh" / "bin" / "demo-run.2").read_text().splitlines()
    assert said[2:] == ["from demo.sub import App", "sys.exit(App.run())"]


@pytest.mark.parametrize("name", ["../x.py", "demo/../../x.py", "/x.py", "..\\x.py"])
def test_no_file_of_a_wheel_leads_out_of_its_folder(tmp_path, name):
    before = list_all(tmp_path)
    fresh.make_environment(tmp_path / "fresh", write_wheel(tmp_path / "demo.whl", **{name: "1"}), [])
    assert {path for path in list_all(tmp_path) if not path.startswith("fresh/")} == before | {"demo.whl"}
    assert not Path("/x.py").exists()


@pytest.mark.parametrize("name", ["a.pth", "sitecustomize.py"])
def test_no_file_of_a_wheel_runs_by_itself(tmp_path, name):
    with pytest.raises(Failed, match="whenever it starts"):
        fresh.make_environment(tmp_path / "fresh", write_wheel(tmp_path / "demo.whl", **{name: "1"}), [])


def test_a_wheel_is_unpacked_up_to_a_size(tmp_path, monkeypatch):
    monkeypatch.setattr(fresh, "MAX_WHEEL", 2**20)
    with zipfile.ZipFile(tmp_path / "demo.whl", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("demo/zeros", bytes(2**21))
    with pytest.raises(Failed, match=r"holds 0\.0 GiB; allowed"):
        fresh.make_environment(tmp_path / "fresh", tmp_path / "demo.whl", [])


def make_pipe(path, outside):
    os.mkfifo(path)


def link_to_zeros(path, outside):
    path.symlink_to("/dev/zero")


def link_outside(path, outside):
    path.symlink_to(outside)


def make_large(path, outside):
    with path.open("wb") as file:
        file.truncate(2**33)


@pytest.mark.parametrize("make", [make_pipe, link_to_zeros, link_outside, make_large])
def test_what_a_process_left_is_read_if_it_is_a_file_of_a_bounded_size(tmp_path, make):
    """Each reader ends at once: a pipe would wait, zeros would fill the memory, and the link would quote a file."""
    secret = tmp_path / "outside.json"
    secret.write_text('{"value": "secret"}')
    home = tmp_path / "home"
    home.mkdir()
    place = home / "result.json"
    make(place, secret)
    found = []

    def read():
        found.append((_read_report(place, Outcome(0, "", 0.0)), read_end(place).strip("\0")))
        with pytest.raises(Failed, match="cannot be read"):
            fresh.make_environment(home / "fresh", place, [])

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(20)
    assert found == [(({}, []), "")]


def test_a_script_of_the_project_file_costs_its_row_and_writes_nothing(demo, tmp_path):  # noqa: F811
    target = tmp_path / "bashrc"
    target.write_text("mine")
    edit(demo, PROJECT, ("# What `viewbox", f'[project.scripts]\n"{target}" = "demo.env:Demo"\n\n# What `viewbox'))
    failed = list_failed(check_package(demo, limits=LIMITS, rows=["dependencies"]))
    assert set(failed) & {"wheel", "dependencies"}
    assert target.read_text() == "mine"


def test_a_folder_with_a_socket_or_a_pipe_is_refused_in_words(demo):  # noqa: F811
    os.mkfifo(demo / "demo" / "pipe")
    with pytest.raises(ConfigError, match="cannot be copied"):
        check_package(demo, limits=LIMITS, rows=["metadata"])
    (demo / "demo" / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(demo / "demo" / "s"))
        with pytest.raises(ConfigError, match="cannot be copied"):
            check_package(demo, limits=LIMITS, rows=["metadata"])


def test_a_deep_project_file_is_refused_in_words(demo):  # noqa: F811
    (demo / PROJECT).write_text("x = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(ConfigError, match="cannot be read as a project"):
        check_package(demo, limits=LIMITS)
