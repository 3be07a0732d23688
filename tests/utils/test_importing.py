"""One loader for `package.module:Name` and `path/to/file.py:Name`."""

import os
import sys

import pytest

import viewbox
from viewbox.errors import ConfigError
from viewbox.utils.importing import load_object

ENV = """
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.records import Task
from viewbox.rewards import ExactMatchReward
from neighbor import NAME

class Env(BaseMultiTurnEnv):
    name = NAME
    tools = ()
    tasks = (Task("a", prompt={"task": "Say yes."}),)

    def default_reward(self):
        return ExactMatchReward()

number = 7
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with an environment in `my_env.py` and a module beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    (tmp_path / "neighbor.py").write_text("NAME = 'mine'\n")
    (tmp_path / "my_env.py").write_text(ENV)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name in ("neighbor", "my_env") or name.startswith("viewbox_file_"):
            del sys.modules[name]


def test_make_takes_an_environment_by_module_and_by_file_and_one_elsewhere_finds_the_modules_beside_it(
    folder, monkeypatch
):
    for path in ["my_env:Env", "my_env.py:Env", "./my_env.py:Env"]:
        assert viewbox.make(path).name == "mine"
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert load_object(f"{folder}/my_env.py:number") == 7
    assert load_object("../my_env.py:Env") is load_object(f"{folder}/my_env.py:Env")


def test_a_file_that_failed_is_read_again_also_within_a_second(folder, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (folder / "late.py").write_text("1 / 0")
    os.utime("late.py", (1e9, 1e9))
    with pytest.raises(ConfigError, match=r"late\.py cannot be imported: ZeroDivisionError: .* \(.*late\.py, line 1\)"):
        load_object("late.py:x")
    (folder / "late.py").write_text("x = 1")
    os.utime("late.py", (1e9, 1e9))
    assert load_object("late.py:x") == 1
    assert not (folder / "__pycache__").exists()


def test_a_module_that_ends_the_process_is_one_that_cannot_be_imported(folder):
    for raised, said in (("SystemExit(3)", "SystemExit: 3"), ("Gone('now')", "Gone: now")):
        (folder / "leaves.py").write_text(f"class Gone(BaseException): pass\nraise {raised}")
        with pytest.raises(ConfigError, match=rf"leaves\.py cannot be imported: {said} \(.*leaves\.py, line 2\)"):
            load_object("leaves.py:x")
    (folder / "leaves.py").write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load_object("leaves.py:x")


def test_a_path_that_names_no_environment_says_which_would_and_which_names_there_are(folder):
    for path, text in (
        ("my_env.py", r"unknown environment 'my_env\.py'; allowed: chest_xray, .* as package\.module:Class"),
        ("my_env.py:", r"allowed: package\.module:Name or path/to/file\.py:Name"),
        ("absent.py:Env", r"absent\.py: no such file; allowed: package"),
        ("absent:Env", r"No module named 'absent'; allowed: a module that"),
        ("my_env.py:Evn", r"unknown name 'Evn'; allowed: .*did you mean 'Env'"),
        ("my_env.py:number", r"'number' is not an environment; allowed: a subclass of viewbox\.BaseMultiTurnEnv"),
    ):
        with pytest.raises(ConfigError, match=text) as caught:
            viewbox.make(path)
        assert repr(path) in str(caught.value)
        assert caught.value.key == "name"
    with pytest.raises(ConfigError, match=r"unknown name 'Evn'; allowed: .*Env, .*number"):
        load_object("my_env.py:Evn")
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "part.py").write_text("from . import other")
    with pytest.raises(ConfigError, match=r"belongs to a package: name it as package\.module:Name"):
        load_object("package/part.py:x")
