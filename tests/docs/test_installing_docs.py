"""docs/installing.md names every extra, and a release can be built: its version and its files."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import viewbox

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_extra_is_in_the_table():
    table = re.findall(r"^\| `([a-z]+)` \|", (ROOT / "docs" / "installing.md").read_text(), re.M)
    assert table == list(dict.fromkeys(table))
    assert set(table) == set(PROJECT["optional-dependencies"])


def test_the_changelog_begins_with_the_version_of_the_package():
    first = re.search(r"^## (?!Unreleased)(\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[1]
    assert first == viewbox.__version__
    assert "version" in PROJECT["dynamic"]


def test_every_folder_that_is_committed_is_released():
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    folders = {path.split("/")[0] for path in listed if "/" in path}
    grafted = set(re.findall(r"^graft (\S+)", (ROOT / "MANIFEST.in").read_text(), re.M))
    packages = {
        name.split(".")[1]
        for name in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
        if "." in name
    }
    assert folders == grafted | packages
