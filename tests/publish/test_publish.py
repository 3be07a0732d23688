"""`viewbox publish`: what it writes, what it refuses, and that the wheel needs nothing but itself."""

import ast
import io
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import viewbox
from tests.support import verifiers_server as scripted
from tests.support.clean_python import run_clean, unpack_wheel
from tests.support.front_doors import map_overviews
from tests.support.publishing import check_only, leave_out_check, write_dots
from viewbox.envs.digits import Digits, viewer
from viewbox.errors import ConfigError
from viewbox.publish import contents, publish
from viewbox.publish.checks import CHECKS
from viewbox.publish.checks.project import read_project
from viewbox.publish.checks.rows import Failed
from viewbox.publish.checks.trial import Trial
from viewbox.publish.hubs.directory import MANIFEST, replace_folder

SETTINGS = {"split": "test", "num_tasks": 3}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of a published `digits`, unpacked into a folder where nothing else is."""
    folder = tmp_path_factory.mktemp("wheel")
    with pytest.MonkeyPatch.context() as patch:
        leave_out_check(patch)
        publish("digits", folder / "out", settings=SETTINGS, version="1.2")
    file, unpacked = unpack_wheel(folder / "out", folder)
    assert file.name == "viewbox_digits-1.2-py3-none-any.whl"
    return unpacked


def test_the_wheel_is_played_and_replayed_where_viewbox_is_not_installed(wheel, tmp_path, run_forked):
    where = (
        "import importlib.util as u; assert u.find_spec('viewbox') is None; import viewbox_digits, viewbox.core.base; "
        "from verifiers.v1.cli.eval.main import main; main(); print(viewbox.core.base.__file__)"
    )
    env, look = Digits(**SETTINGS), scripted.make_reply("", ("a", "zoom", '{"factor": 4, "center": [500, 500]}'))
    scripts = {
        image: [look, scripted.make_reply(viewer.write_answer(env, task))] for image, task in map_overviews(env).items()
    }
    with scripted.serve(scripts) as server:
        given = ["--model", "scripted", "--client.base-url", server.url, "--no-push", "--no-rich", "-n", "3"]
        said = run_forked(where, "viewbox-digits", *given, "-o", "runs", path=wheel, cwd=tmp_path)
    used = said.splitlines()[-1]
    assert Path(used).is_relative_to(wheel / "viewbox_digits" / "_vendor")
    assert {len(bodies) for bodies in server.requests.values()} == {2}
    assert all("image_url" in json.dumps(bodies[1]["messages"][-1]) for bodies in server.requests.values())
    (saved,) = (tmp_path / "runs").rglob("traces.jsonl")
    replay = "from verifiers.v1.cli.replay import main; main()"
    run_forked(replay, saved.parent, "--no-rich", "-o", "again", path=wheel, cwd=tmp_path)
    (again,) = (tmp_path / "again").rglob("traces.jsonl")
    traces = [[json.loads(line)["traces"][0] for line in file.open()] for file in (saved, again)]
    assert all(trace["stop_condition"] == "answered" for trace in traces[0])
    assert all(trace["rewards"]["total"]["score"] > 0.9 for trace in traces[0])
    first, second = ({trace["id"]: (trace["rewards"], trace["metrics"]) for trace in found} for found in traces)
    assert first == second


def test_publishing_says_what_was_written_and_what_comes_next(viewbox, tmp_path):
    status, out, err = viewbox("publish", "digits", "--to", "dir", tmp_path / "out", "--set", "split=test")
    assert (status, err) == (0, "")
    for words in (
        "viewbox-digits 0.1.0", "- gold answer: 0.9", "vf-eval viewbox-digits --model MODEL --client.base-url URL "
        "--no-push --no-rich -n 3", f"pip wheel --no-deps --wheel-dir {tmp_path / 'out' / 'dist'} {tmp_path / 'out'}",
        "- verifiers: verifiers finds the package and opens its first task; viewbox is viewbox_digits/_vendor",
    ):  # fmt: skip
        assert words in out


def test_the_project_file_is_what_a_hub_asks_for_and_a_setting_is_read_as_everywhere_else(viewbox, unchecked, tmp_path):
    assert viewbox("publish", "digits", tmp_path / "set", "--set", "noise=1e1", "--set", "num_tasks=3")[0] == 0
    written = (tmp_path / "set" / "viewbox_digits" / "__init__.py").read_text()
    assert "settings = {'noise': 10.0, 'num_tasks': 3}" in written
    publish("digits", tmp_path / "out", settings=SETTINGS, id="my-digits", version="2.0rc1", license="MIT")
    read = tomllib.loads((tmp_path / "out" / "pyproject.toml").read_text())
    project = read["project"]
    assert (project["name"], project["version"], project["license"]) == ("my-digits", "2.0rc1", "MIT")
    assert project["description"].startswith("A real handwritten digit")
    assert project["tags"] == project["keywords"] != []
    readme = (tmp_path / "out" / project["readme"]).read_text()
    assert "| license | MIT, chosen by the publisher of this package |" in readme
    assert project["dependencies"][0] == "verifiers>=0.4,<0.5"
    names = [one.split(">")[0] for one in project["dependencies"][1:]]
    assert {"numpy", "pillow", "pydantic", "opencv-python-headless", "jsonschema-rs"} <= set(names)
    assert not {"torch", "transformers", "trl", "typer", "mcp"} & set(names)
    assert "dynamic" not in project
    assert (tmp_path / "out" / "my_digits" / "__init__.py").is_file()


LEFT_OUT = ("rollouts/", "engines/", "publish/", "tests/", "cli", "train", "integrations/trl", "configs/schema.py",
            "configs/quickstart.yaml")  # fmt: skip


def test_what_travels_neither_trains_nor_calls_endpoints_and_imports_of_viewbox_only_what_travels():
    files = {path.as_posix() for path in contents.list_library_files()}
    assert {"__init__.py", "LICENSE", "errors.py", "records.py", "images/ref.py", "configs/validation.py"} <= files
    assert {"envs/digits/env.py", "integrations/verifiers.py", "core/prompts/system.j2"} <= files
    assert not any(name.startswith(LEFT_OUT) for name in files)
    for name in (name for name in files if name.endswith(".py")):
        nodes = list(ast.walk(ast.parse((contents.ROOT / name).read_text(encoding="utf-8"))))
        for_types = [node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
        skipped = {line for node in for_types for line in range(node.lineno, node.end_lineno + 1)}
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.level and node.lineno not in skipped:
                place = [*Path(name).parts[: -node.level], *(node.module or "").split(".")]
                home = "/".join(filter(None, place))
                parts = [home, *(f"{home}/{alias.name}".lstrip("/") for alias in node.names)]
                found = {f"{part}{end}" for part in parts for end in (".py", "/__init__.py")}
                assert found & files or not home, (name, node.lineno)


FOR_TABLES = {"datasets", "pyarrow", "fsspec"}  # read tables and the hub; a package reads its own JSONL
FOR_MCP = {"mcp", "mcp-types", "httpx2", "anyio"}  # come with the extra `mcp`
FOR_MODELS = {"torch", "transformers", "safetensors", "huggingface-hub"}  # imported when a model is loaded


def test_every_library_that_travels_is_named_in_the_dependencies():
    used = contents.list_library_modules(contents.list_library_files())
    named = {one.split(">")[0] for one in contents.list_dependencies([])}
    by_verifiers = {"aiohttp"}
    for_tools = FOR_MCP | FOR_MODELS
    assert {contents.get_distribution(name) for name in used} - by_verifiers - FOR_TABLES - for_tools <= named
    assert not FOR_MODELS & named
    assert set(contents.MODELS) <= set(contents.list_dependencies([], models=True))
    assert contents.MCP in contents.list_dependencies([], mcp=True)
    assert "datasets" in {one.split(">")[0] for one in contents.list_dependencies([], hub=True)}


def files_in(folder):
    """What travels; the manifest also names what was published."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST]
    return {path.relative_to(folder): path.read_bytes() for path in files}


def read_library(folder):
    """The zip file with viewbox in a published package."""
    (path,) = folder.glob("*/_vendor/viewbox-*.zip")
    return path.read_bytes()


def test_a_package_is_a_few_files_and_one_of_them_is_viewbox(wheel, unchecked, tmp_path):
    (tmp_path / "dots.py").write_text(write_dots())
    publish(f"{tmp_path}/dots.py:Dots", tmp_path / "out")
    names = {path.as_posix() for path in files_in(tmp_path / "out")}
    library = f"viewbox_dots/_vendor/viewbox-{viewbox.__version__}.zip"
    assert names == {"README.md", "pyproject.toml", "viewbox_dots/__init__.py", "viewbox_dots/dots.py", library}
    assert read_library(tmp_path / "out") == read_library(wheel)
    with zipfile.ZipFile(tmp_path / "out" / library) as packed:
        assert packed.namelist() == [f"viewbox/{path.as_posix()}" for path in contents.list_library_files()]


DECODE = """
import json, sys, viewbox_digits, viewbox
from PIL import Image
Image.new("L", (32, 24), 7).save("a.png")
print(viewbox.open_image("a.png").pixels.shape)  # in a process of its own
for name in ("chest_xray", "digits", "phantom", "software_adviser"):
    env = viewbox.make(name, num_tasks=4)
    for task in env.tasks:
        played = env.for_task(task)
        replies = iter([*played.oracle(task), played.write_answer(task)])
        assert played.play(task, lambda messages: next(replies)).scores.total > 0.9, name
urls = [software.repository for software in list(env.software.values())[:3]]
look = json.dumps({"name": "repo_info_batch", "arguments": {"urls": urls}})
replies = iter([f"<tool_call>{look}</tool_call>", '{"explanation": "none", "continue": false}'])
episode = env.play(env.tasks[0], lambda messages: next(replies))  # of a snapshot of repositories
print([len(turn.tool_results[0].facts["answered"]) for turn in episode.turns if turn.tool_results])
print("torch" in sys.modules)
"""


def test_what_is_in_the_zip_file_decodes_images_and_reads_its_own_data(wheel, tmp_path, run_forked):
    assert run_forked(DECODE, path=wheel, cwd=tmp_path) == "(24, 32)\n[3]\nFalse\n"


def publish_as(monkeypatch, version, folder, name):
    """A package with a viewbox of another version."""
    (folder / f"{name}.py").write_text(write_dots())
    found = [(path, (contents.ROOT / path).read_bytes()) for path in contents.list_library_files()]
    with zipfile.ZipFile(packed := io.BytesIO(), "w") as file:
        for path, content in found:
            text = content.replace(viewbox.__version__.encode(), version.encode())
            file.writestr(f"viewbox/{path}", text if path.name == "version.py" else content)
    with monkeypatch.context() as patch:
        patch.setattr("viewbox.publish.package.__version__", version)
        patch.setattr(contents, "pack_library", packed.getvalue)
        publish(f"{folder}/{name}.py:Dots", folder / name, id=f"own-{name}")
    return folder / name


IN_TURN = """
import importlib, sys
try:
    for name in sys.argv[1:]:
        package = importlib.import_module(name)
    import viewbox
    print(viewbox.__version__, viewbox.make(package.OwnATaskset.environment).name)
except ImportError as error:
    print(error)
"""


def test_packages_of_one_minor_version_share_the_first_viewbox_and_of_two_are_refused(
    unchecked, tmp_path, monkeypatch, run_forked
):
    versions = {"a": "7.1.0", "b": "7.1.2", "c": "7.2.0"}
    path = os.pathsep.join(str(publish_as(monkeypatch, version, tmp_path, name)) for name, version in versions.items())
    assert run_forked(IN_TURN, "own_b", "own_a", path=path, cwd=tmp_path) == "7.1.2 dots\n"
    for first, second in (("own_a", "own_c"), ("own_c", "own_a")):
        line = run_forked(IN_TURN, first, second, path=path, cwd=tmp_path)
        assert f"{second} was published with viewbox" in line
        assert f"{first}/_vendor/viewbox-" in line
    code = "import viewbox; viewbox.__version__ = '0.9.0'; import own_a"
    options = {"env": os.environ | {"PYTHONPATH": path}, "cwd": tmp_path, "capture_output": True, "text": True}
    installed = subprocess.run([sys.executable, "-c", code], **options).stderr
    assert "own_a was published with viewbox 7.1.0, but viewbox 0.9.0 is installed" in installed


CARRIED = [  # how the contents of the zip file are changed, and what the row says
    ({}, "files are those of this viewbox"), ({"viewbox/errors.py": b""}, "viewbox/errors.py has other content"),
    ({"viewbox/errors.py": None}, "viewbox/errors.py is missing"),
    ({"viewbox/more.py": b""}, "viewbox/more.py is no file of viewbox"),
]  # fmt: skip


def test_the_carried_viewbox_is_compared_by_the_contents_of_its_files(unchecked, tmp_path):
    (tmp_path / "dots.py").write_text(write_dots())
    publish(f"{tmp_path}/dots.py:Dots", tmp_path / "out")
    library = tmp_path / "out" / "viewbox_dots" / "_vendor" / contents.LIBRARY

    def ask():
        try:
            return CHECKS["carried viewbox"].run(Trial(read_project(tmp_path / "out"), tmp_path))
        except Failed as error:
            return error.finding

    for changes, words in CARRIED:
        with zipfile.ZipFile(library, "w") as packed:  # stored: other bytes of the same contents
            for name, content in (contents.read_library() | changes).items():
                if content is not None:
                    packed.writestr(name, content)
        assert words in ask()
    library.rename(other := library.with_name("viewbox-0.1.9.zip"))
    assert ask() == f"viewbox-0.1.9, not compared: that needs viewbox of its version, and this is {viewbox.__version__}"
    other.rename(library)
    library.write_text("version https://git-lfs.github.com/spec/v1")
    assert ask().endswith("cannot be read as a zip file")
    code = "try: import viewbox_dots\nexcept ImportError as error: print(error)"
    said = run_clean(["-c", code], tmp_path / "out", tmp_path)
    assert said == f"{library} holds no viewbox: it is missing or damaged\n"


def test_a_module_of_the_authors_own_moves_into_the_package_and_a_package_comes_along_whole(
    unchecked, tmp_path, monkeypatch, run_forked
):
    (tmp_path / "dots.py").write_text(write_dots())
    monkeypatch.chdir(tmp_path)
    publish(f"{tmp_path}/dots.py:Dots", tmp_path / "out", settings={"level": 3})
    assert (tmp_path / "out" / "viewbox_dots" / "dots.py").read_text() == write_dots()
    publish("dots:Dots", tmp_path / "by-name", settings={"level": 3})
    assert files_in(tmp_path / "by-name") == files_in(tmp_path / "out")
    home = tmp_path / "home" / "my_dots"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("")
    (home / "levels.py").write_text("LEVEL = 9\n")
    (home / "field.py").write_text(write_dots("from my_dots.levels import LEVEL", level="LEVEL"))
    monkeypatch.syspath_prepend(home.parent)
    publish("my_dots.field:Dots", tmp_path / "whole", id="bright")
    code = (
        "import viewbox_dots as p; print(p.DotsTaskset.environment, p.DotsTaskset.settings); "
        "import bright, my_dots.levels; print(my_dots.levels.__file__)"
    )
    path = os.pathsep.join(map(str, (tmp_path / "out", tmp_path / "whole")))
    moved = tmp_path / "whole" / "bright" / "_vendor" / "my_dots" / "levels.py"
    assert run_forked(code, path=path, cwd=tmp_path) == f"viewbox_dots.dots:Dots {{'level': 3}}\n{moved}\n"
    sys.modules.pop("dots", None)


@pytest.mark.parametrize(("arguments", "words"), [
    (["digits", "--to", "hub"], "--to: unknown target 'hub'; allowed: dir"), (["digit"], "unknown environment 'digit'"),
    (["digits", "--set", "split"], "--set 'split': write key.path=value"), (["digits", "--set", "spilt=test"], "spilt"),
    (["digits", "--id", "My Digits"], "--id 'My Digits'; allowed: lower-case"),
    (["digits", "--id", "viewbox"], "needs a module viewbox; allowed: another id, as viewbox-env"),
    (["digits", "--version", "latest"], "--version 'latest'; allowed: a release such as 0.1.0"),
])  # fmt: skip
def test_what_is_wrong_is_said_in_one_line_and_nothing_is_written(viewbox, unchecked, tmp_path, arguments, words):
    status, _, err = viewbox("publish", arguments[0], tmp_path / "out", *arguments[1:])
    assert status == 2
    assert err.startswith("error: ")
    assert words in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("source", "words"), [
    (write_dots(level="self.nothing"), r"environment: AttributeError: .* attribute 'nothing' \(.*field.py, line 20\)"),
    (write_dots("import shapes"), "imports 'shapes'"),
    (write_dots().replace("    level:", "    restricted = True\n    level:"), "restricted to this machine"),
])  # fmt: skip
def test_an_environment_that_cannot_be_played_elsewhere_is_not_written(tmp_path, monkeypatch, source, words):
    (tmp_path / "field.py").write_text(source)
    (tmp_path / "shapes.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    check_only(monkeypatch, "environment")
    with pytest.raises(ConfigError, match=words):
        publish(f"{tmp_path}/field.py:Dots", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def staged(folder, **files):
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


ABOUT = {"id": "x", "version": "1"}


def test_a_folder_of_ours_is_replaced_only_when_asked_and_foreign_files_stay(tmp_path):
    out = tmp_path / "out"
    replace_folder(staged(tmp_path / "a", one="1", two="2"), out, ABOUT, force=False)
    with pytest.raises(ConfigError, match="holds x 1; add --force to replace it"):
        replace_folder(staged(tmp_path / "b", one="1"), out, ABOUT, force=False)
    (out / "notes").write_text("mine")
    replace_folder(staged(tmp_path / "c", one="new", three="3"), out, ABOUT, force=True)
    assert sorted(path.name for path in out.iterdir()) == [MANIFEST, "notes", "one", "three"]
    assert [(out / name).read_text() for name in ("notes", "one")] == ["mine", "new"]


def test_a_folder_that_is_not_ours_is_never_touched(tmp_path):
    new, foreign = staged(tmp_path / "new", one="1"), staged(tmp_path / "foreign", thesis="mine")
    changed, added = tmp_path / "changed", tmp_path / "added"

    def refuse(words, folder, given=new):
        with pytest.raises(ConfigError, match=words):
            replace_folder(given, folder, ABOUT, force=True)

    refuse("was not written by `viewbox publish`", foreign)
    for folder in (changed, added):
        replace_folder(new, folder, ABOUT, force=False)
    (changed / "one").write_text("edited by hand")
    refuse("one was changed since it was published", changed)
    (added / "two").write_text("mine")
    refuse("two was not written by viewbox", added, staged(tmp_path / "newer", one="1", two="2"))
    assert (added / "two").read_text() == "mine"
    (added / MANIFEST).write_text(json.dumps({"files": {"../foreign/thesis": ""}}))
    refuse("outside the folder", added)
    refuse("is not a folder", foreign / "thesis")
    assert (foreign / "thesis").read_text() == "mine"


REWARDS = """
from viewbox.rewards import CombinedReward, Component

def close(answer, reference):
    return float((answer or {}).get("label") == reference["label"])

def whole(episode):
    return close(episode.answer, episode.task.reference)

class Called:
    def __call__(self, answer, reference):
        return close(answer, reference)

class Whole:
    def of_episode(self, episode):
        return whole(episode)

class Methods:
    def bound(self, answer, reference):
        return close(answer, reference)

def make():
    def nested(answer, reference):
        return close(answer, reference)
    return nested
"""


@pytest.mark.parametrize(("reward", "shown"), [
    ("close", "1 x close"), ("lambda answer, reference: close(answer, reference)", "1 x <lambda>"),
    ("Called()", "1 x Called"), ("whole", "1 x whole"), ("Methods().bound", "1 x bound"), ("make()", "1 x nested"),
    ("CombinedReward({'a': (close, 0.5), 'b': Component(Whole(), 0.5)})", "0.5 x a (close) + 0.5 x b (Whole)"),
])  # fmt: skip
def test_a_reward_of_the_authors_own_needs_no_name(unchecked, tmp_path, monkeypatch, reward, shown):
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_dots"]:
        monkeypatch.delitem(sys.modules, name)
    home = tmp_path / "own_dots"
    home.mkdir()
    (home / "__init__.py").write_text("")
    default = '    def default_reward(self):\n        return ExactMatchReward(field="label")\n'
    assert default in write_dots()
    (home / "dots.py").write_text(REWARDS + write_dots().replace(default, f"    reward = {reward}\n"))
    monkeypatch.syspath_prepend(tmp_path)
    publish("own_dots.dots:Dots", tmp_path / "out")
    assert f"| reward | `{shown}` |" in (tmp_path / "out" / "README.md").read_text()
    env = viewbox.make("own_dots.dots:Dots")
    played = [env.play(env.tasks[0], viewbox.ScriptedPolicy([f'{{"label": "{label}"}}'])) for label in "78"]
    assert [episode.scores.total for episode in played] == [1.0, 0.0]


@pytest.mark.parametrize(("words", "meant"), [
    ("MIT License", "MIT"), ("Apache 2.0", "Apache-2.0"), ("Apache License, Version 2.0", "Apache-2.0"),
    ("BSD 3-Clause License", "BSD-3-Clause"), ("CC BY 4.0", "CC-BY-4.0"), ("GPLv3", "GPL-3.0"),
])  # fmt: skip
def test_a_license_in_words_is_refused_before_anything_is_built_and_its_name_is_given(tmp_path, words, meant):
    with pytest.raises(ConfigError, match=re.escape(f"did you mean {meant!r}?")):
        publish("no such environment", tmp_path / "out", license=words)


def test_a_license_that_nothing_states_is_not_made_up(unchecked, tmp_path):
    (tmp_path / "field.py").write_text(write_dots())
    publish(f"{tmp_path}/field.py:Dots", tmp_path / "out")
    assert "license" not in tomllib.loads((tmp_path / "out" / "pyproject.toml").read_text())["project"]
    assert "| license | not stated by the publisher of this package |" in (tmp_path / "out" / "README.md").read_text()
