"""The folder that `viewbox openenv --write` writes: complete, without paths of this machine, never over other files."""

import ast
import json
import os
import tomllib

import pytest
import yaml

from tests.support.allowed_versions import ROOT
from tests.support.tables import each
from viewbox import __version__
from viewbox.envs.digits import Digits
from viewbox.errors import ConfigError
from viewbox.publish.openenv import write_openenv

FACTS = os.path.relpath(ROOT / "envs" / "literature_vqa" / "facts.jsonl")


class Kept(Digits):
    name = "kept"
    restricted = True


def test_the_folder_holds_what_openenv_expects(tmp_path, viewbox):
    code, out, _ = viewbox("openenv", "digits", "--set", "split=test", "--write", str(tmp_path / "server"))
    assert code == 0
    files = {path.relative_to(tmp_path / "server").as_posix(): path for path in (tmp_path / "server").rglob("*.*")}
    assert {"openenv.yaml", "pyproject.toml", "README.md", "server/app.py", "server/__init__.py"} <= set(files)
    assert all(str(path) in out for path in files.values())
    assert yaml.safe_load(files["openenv.yaml"].read_text())["app"] == "server.app:app"
    project = tomllib.loads(files["pyproject.toml"].read_text())["project"]
    assert project["dependencies"][0] == f"viewbox[openenv]>={__version__}"
    assert project["scripts"] == {"server": "server.app:main"}
    ast.parse(files["server/app.py"].read_text())
    assert '"split": "test"' in files["server/app.py"].read_text()
    lines = (tmp_path / "server/server/Dockerfile").read_text().splitlines()
    assert lines[0].startswith("FROM python:3")
    assert any(line.startswith("USER ") and line != "USER root" for line in lines)
    assert any(f'"viewbox[openenv]>={__version__}"' in line for line in lines)
    assert not any("{" in line for line in lines)


TEXTS = ["it's", 'say "hi"', "back\\slash", "'''\"\"\"", "line\nbreak", "ünïcode", "{braces}"]


@each("text", TEXTS)
def test_settings_of_any_text_arrive(tmp_path, text):
    write_openenv("digits", tmp_path / "server", {"first_seed": 3, "templates": {"notes": text}})
    lines = (tmp_path / "server/server/app.py").read_text().splitlines()
    module = {"json": json}
    exec(next(line for line in lines if line.startswith("SETTINGS")), module)
    assert module["SETTINGS"] == {"first_seed": 3, "templates": {"notes": text}}


REFUSED = [
    (("digit",), "an image cannot import it"),
    ((f"{__file__}:Kept",), "an image cannot import it; allowed: a registered name, or package.module:Class"),
    (("digits", {"max_turn": 3}), "max_turn"),
    (("phantom", {"templates": {"notes": "/root/a"}}), "'/root/a' is a path of this machine"),
    (("vqa", {"data": {"source": {"train": FACTS}, "columns": {"question": "question", "answer": "status"}}}),
        r"settings\.data\.source\.train = '[^/].*facts\.jsonl': is on this machine"),
    (("literature_vqa", {"facts": FACTS}),
        r"settings\.facts = '[^/].*facts\.jsonl': is on this machine, and the image"),
    (("digits", {"templates": {"notes": "hf_" + 34 * "a"}}), "holds what looks like a key, and would be in the image"),
    (("tests.publish.test_openenv:Kept",), "kept: its data is restricted"),
]  # fmt: skip


def test_what_cannot_travel_is_refused_nothing_is_written_and_a_folder_with_files_is_left_alone(tmp_path):
    for given, words in REFUSED:
        name, *settings = given
        with pytest.raises(ConfigError, match=words):
            write_openenv(name, tmp_path / "server", *settings)
        assert not (tmp_path / "server").exists()
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="exists; give another --write"):
        write_openenv("digits", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
