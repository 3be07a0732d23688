"""`viewbox check`: a new package passes unedited, and each mistake fails in the row that names it."""

import json
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from PIL import Image
from pydantic import BaseModel

import viewbox as library
from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.publish import publish
from viewbox.publish.checks import CHECKS, Limits, check_package
from viewbox.publish.checks.inside import MIN_GOLD, make_environment
from viewbox.publish.checks.project import read_project
from viewbox.publish.checks.rows import Failed, NotTried
from viewbox.publish.checks.trial import Trial
from viewbox.publish.new import write_project
from viewbox.rewards import CombinedReward, IoUReward, TokenF1Reward
from viewbox.rewards.explain import check_rewards

LIMITS = Limits(seconds=30, memory=2**30, episode=1.5)
LOG = str(Path(tempfile.gettempdir(), "log-of-a-broken-package"))
ENV, PROJECT, README = "demo/env.py", "pyproject.toml", "README.md"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_project("demo", tmp_path_factory.mktemp("project"))


@pytest.fixture
def demo(written, tmp_path):
    return shutil.copytree(written, tmp_path / "demo")


@pytest.fixture(scope="module")
def built(written, tmp_path_factory):
    """The wheel of a new package, unpacked into a folder that tests copy."""
    folder = tmp_path_factory.mktemp("built")
    trial = Trial(read_project(written), folder)
    CHECKS["wheel"].run(trial)
    CHECKS["dependencies"].run(trial)
    return trial


@pytest.fixture
def trial(demo, built, tmp_path):
    """A trial of `demo` with that folder."""
    folder, site = tmp_path / "trial", tmp_path / "site"
    folder.mkdir()
    shutil.copytree(built.site, site, symlinks=True)
    inside = [check for check in CHECKS.values() if check.inside and check.applies is None]
    return Trial(read_project(demo), folder, LIMITS, inside, built.wheel, site, built.hidden)


def change(trial, changes):
    """Change the project of a trial, and the code in the folder of its wheel with it."""
    for path, old, new in changes:
        edit(trial.project.folder, path, (old, new))
    trial.project = read_project(trial.project.folder)
    shutil.copyfile(trial.project.folder / ENV, trial.site / ENV)


def open_env(path):
    """The environment in a file, made in this process."""
    spec = spec_from_file_location(f"demo_{path.parents[1].parent.name}", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Demo()


def edit(folder, path, *changes):
    """Replace words in a file; a change to words that are not there is an error of the test."""
    text = (folder / path).read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    (folder / path).write_text(text)


def list_failed(rows):
    return {row.name: row for row in rows if row.tried and not row.passed}


def test_a_new_package_passes_unedited_and_is_left_as_it_is(viewbox, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert viewbox("new", "demo")[0] == 0
    before = {path: path.read_bytes() for path in Path("demo").rglob("*") if path.is_file()}
    status, out, err = viewbox("check", "demo")
    assert (status, err) == (0, ""), out
    assert "0 failed, 0 not tried" in out
    assert {path: path.read_bytes() for path in Path("demo").rglob("*") if path.is_file()} == before


def at_import(code):
    """Code at the top of the environment's module."""
    return [(ENV, "SIZE, CELL", f"{code}\n\nSIZE, CELL")]


def in_class(code):
    """Code in the class of the environment."""
    return [(ENV, "    num_tasks: int", f"    {code}\n\n    num_tasks: int")]


def with_reward(score):
    """A reward of the author's own, which gives `score`."""
    code = f"def count_right(answer, reference):\n    found = (answer or {{}}).get('discs')\n    return {score}\n\n\n"
    return [(ENV, "class Demo", f"{code}class Demo"), (ENV, 'viewbox.ExactMatchReward("discs")', "count_right")]


SETUPTOOLS = [
    (PROJECT, 'requires = ["hatchling>=1.27"]', 'requires = ["setuptools>=77"]'),
    (PROJECT, "hatchling.build", "setuptools.build_meta"),
    (PROJECT, '[tool.hatch.build.targets.wheel]\npackages = ["demo"]', '[tool.setuptools]\npackages = ["demo"]'),
]
UNNAMED = "found = __import__('importlib').import_module('hypothesis')"
CALL = "import contextlib, socket\nwith contextlib.suppress(OSError):\n    socket.create_connection(('127.0.0.1', 9))"
WRITE = "import contextlib\nwith contextlib.suppress(OSError):\n    open({!r}, 'w').close()"
SLOW = "def validate_answer(self, answer, task):\n        __import__('time').sleep({})"
DARKEN = 'def darken(view, by: int):\n    "Makes it darker."\n    return "dark"\n\n\nclass Demo'
BY_HASH = "0 * seed + abs(hash('discs')) % 2**32"

OTHER = [(ENV, "discs", "lesions")] * 10  # the example becomes another environment
SAID = [(PROJECT, "counting", "MRI"), (PROJECT, "How many bright discs", "Many lesions")]
SAID += [(README, "How many bright discs", "How many lesions")]

# name: (changes as (file, old, new), the row that fails, words of its finding)
BROKEN = {
    "no entry point": ([(PROJECT, 'demo = "demo.env:Demo"', "")], "metadata", "does not hold one entry"),
    "no README": ([(PROJECT, 'readme = "README.md"', 'readme = "READ.md"')], "metadata", "is not a file"),
    "a dynamic version": ([(PROJECT, 'version = "0.1.0"', 'dynamic = ["version"]')], "metadata", "version is dynamic"),
    "no license": ([(PROJECT, 'license = "MIT"\n', "")], "license and tags", "license = None"),
    "no SPDX license": ([(PROJECT, '"MIT"', '"Apache 2"')], "license and tags", "did you mean 'Apache-2.0'?"),
    "words of the example": (OTHER, "own words", "counts discs: description, keywords, README"),
    "a claim of the example": ([*OTHER, *SAID], "own words", "counts discs: README"),
    "a builder that is not here": ([(PROJECT, "hatchling.build", "hatchling_of_nobody.build")], "wheel",
        "hatchling_of_nobody, which builds it, is not installed"),
    "no tags": ([(PROJECT, "keywords", "# keywords")], "license and tags", "keywords = None"),
    "a key in the code": (at_import("KEY = 'sk-proj-" + "a1B2" * 12 + "'"), "files", "env.py, line"),
    "a build that fails": ([(PROJECT, '"demo"]\n', '"no_such_folder"]\n')], "wheel",
        "the wheel lacks demo/__init__.py; demo/env.py"),
    "a data file is missing in the wheel": (SETUPTOOLS, "wheel", "the wheel lacks demo/words.txt"),
    "an undeclared import in a function": (in_class("def on_answer(self, state, answer):\n        import hypothesis"),
        "dependencies", "demo/env.py imports 'hypothesis'"),
    "a declared package that is not here": (
        [(PROJECT, '"numpy>=1.26"', '"numpy>=1.26", "no-such-package-of-anyone>=3"')], "dependencies",
        "no-such-package-of-anyone>=3 is not installed here"),
    "an undeclared import by name": (at_import(UNNAMED), "import", "No module named 'hypothesis'"),
    "it raises at import": (at_import("print(1 / 0)"), "import", "ZeroDivisionError: division by zero"),
    "it hangs at import": (at_import("while True: pass"), "import", "did not end within 1 s"),
    "it leaves at import": (at_import("__import__('os')._exit(0)"), "import", "ended the process with status 0"),
    "it exits at import": (at_import("raise SystemExit(0)"), "import", "ends the process: SystemExit"),
    "it eats memory at import": (at_import("block = bytearray(2**32)"), "import", "MemoryError"),
    "it calls out at import": (at_import(CALL), "no network at import", "socket.getaddrinfo '127.0.0.1'"),
    "torch at import": (at_import("__import__('sys').modules['torch'] = 1"), "no torch at import", "loads torch"),
    "it writes beside the folder at import": (at_import(WRITE.format(LOG)), "writes nothing outside", LOG),
    "it prints the environment": (at_import("import os\nprint(dict(os.environ))"), "prints no secrets",
        "prints the value of OPENAI_API_KEY"),
    "no tasks": ([(ENV, "num_tasks: int = 1000", "num_tasks: int = 0")], "environment", "there are no tasks"),
    "a picture that cannot be drawn": ([(ENV, "return [picture]", "return [picture.no_such_method()]")],
        "environment", "task demo-0 cannot be opened"),
    "an answer that its own check refuses": (in_class("def validate_answer(self, answer, task):\n        return 'no'"),
        "schemas", "is not accepted: no"),
    "a tool without words": (
        [(ENV, 'tools = ("zoom", "reset")', 'tools = ("zoom", "reset", darken)'), (ENV, "class Demo", DARKEN)],
        "tool docs", "darken(by)"),
    "an episode that takes long": (in_class(SLOW.format(0.3)), "episode", "an episode takes"),
    "a wrong gold answer": (
        in_class("def gold_answer(self, task):\n        return {'discs': task.reference['discs'] + 1}"), "gold answer",
        "scores too little: task demo-0: exact_match 0.00"),
    "a reward for any number": (with_reward("float(isinstance(found, int))"), "wrong answers", "scores 1.00"),
    "a reward for silence": (with_reward("1.0 if found == reference['discs'] else 0.2 * (found is None)"),
        "check_rewards", "the answer None scores 0.2; expected 0"),
    "pictures that nobody can repeat": (
        [(ENV, 'np.random.default_rng([task.prompt["seed"], 1])', "np.random.default_rng()")], "same by seed",
        "pixels"),
    "tasks that depend on the process": ([(ENV, "default_rng(seed)", f"default_rng({BY_HASH})")],
        "same in another process", "task"),
    "what publish cannot write": (in_class("restricted = True"), "publishable", "restricted to this machine"),
}  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN)
def test_a_mistake_fails_in_the_row_that_names_it(trial, broken):
    changes, row, words = BROKEN[broken]
    check, folder = CHECKS[row], trial.project.folder
    (folder / "demo" / "words.txt").write_text("one\n")
    change(trial, changes)
    if "hangs" in broken:
        trial.limits = replace(LIMITS, seconds=1)
    with pytest.raises(Failed) as caught:
        check.run(open_env(folder / ENV), {"episode_seconds": 0.2}) if check.inside else check.run(trial)
    assert words in caught.value.finding
    assert caught.value.mend or check.mend
    assert not Path(LOG).exists()


def test_a_failed_row_costs_those_that_need_it_and_no_other(demo):
    edit(demo, *BROKEN["a wrong gold answer"][0][0][:1], BROKEN["a wrong gold answer"][0][0][1:])
    rows = {row.name: row for row in check_package(demo, limits=LIMITS)}
    assert {name for name, row in rows.items() if row.tried and not row.passed} == {"gold answer"}
    assert "scores too little" in rows["gold answer"].finding
    assert {name for name, row in rows.items() if not row.tried} == {
        "wrong answers", "check_rewards", "same by seed", "same in another process", "publishable",
    }  # fmt: skip
    assert rows["publishable"].finding == "not tried: needs gold answer"


@pytest.mark.parametrize(("does", "words"), [
    ("os._exit(3)", "ended the process with status 3"), ("time.sleep(60)", "did not end within 4 s"),
])  # fmt: skip
def test_code_that_ends_or_hangs_costs_its_row_and_those_after_it(trial, does, words):
    change(trial, in_class(f"def write_answer(self, task):\n        import os, time\n        {does}"))
    trial.limits = replace(LIMITS, seconds=4)
    assert trial.first.get("environment").startswith("demo: 1000 tasks")
    with pytest.raises(Failed, match=words):
        trial.first.get("schemas")
    with pytest.raises(NotTried, match="ended in the row schemas"):
        trial.first.get("tool docs")


WRONG = [
    (["check", "."], "has no pyproject.toml"), (["check", "demo", "--row", "taste"], "unknown row 'taste'"),
    (["new", "Demo"], "name 'Demo'; allowed: lower-case"), (["new", "json"], "the module json is taken"),
    (["new", "demo"], "exists; give another NAME"),
]  # fmt: skip


def test_the_command_prints_how_to_mend_a_row_and_ends_with_1_or_says_what_is_wrong_in_one_line(
    viewbox, demo, monkeypatch
):
    monkeypatch.chdir(demo.parent)
    for arguments, words in WRONG:
        status, _, err = viewbox(*arguments)
        assert status == 2
        assert err.startswith("error: ")
        assert words in err
    edit(demo, PROJECT, ('license = "MIT"\n', ""))
    status, out, _ = viewbox("check", demo, "--row", "license and tags")
    assert status == 1
    assert "FAIL license and tags license = None; allowed: an SPDX name" in " ".join(out.split())
    assert 'mend: in [project]: license = "Apache-2.0"' in out
    assert "0 passed, 1 failed, 0 not tried" in out
    status, out, _ = viewbox("check", demo, "--row", "license and tags", "--json")
    assert (status, json.loads(out)[0]["name"]) == (1, "license and tags")
    status, out, _ = viewbox("check", "digits", "--set", "num_tasks=3", "--row", "files")  # as publish would write it
    assert status == 0, out
    assert "viewbox-digits 0.1.0, the environment is viewbox_digits:DigitsTaskset" in out
    status, out, _ = viewbox("check", "digit")
    assert status == 1
    assert "unknown environment 'digit'" in out


def test_rows_come_as_they_are_known_and_an_interrupted_check_ends_at_once_with_all_that_it_started(demo):
    edit(demo, ENV, ("SIZE, CELL", "__import__('subprocess').run(['sleep', '600.25'])\nSIZE, CELL"))
    command = [sys.executable, "-u", "-m", "viewbox", "check", demo]
    check = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    lines = iter(check.stdout.readline, "")
    assert next(line for line in lines if "dependencies" in line)
    assert check.poll() is None
    check.send_signal(signal.SIGINT)
    check.wait(60)  # and not the 120 s of the import
    assert subprocess.run(["pgrep", "-fx", "sleep 600.25"], check=False).returncode == 1, "it still runs"


def test_a_project_file_of_any_values_costs_rows_and_one_that_is_none_is_said(demo):
    for text in ["[project]", "[project]\nname = 3\ndependencies = 5\nlicense = {}\nkeywords = 7"]:
        (demo / PROJECT).write_text(text)
        assert list_failed(check_package(demo, limits=LIMITS))
    for text in ["project = 3", "\x00", "", "[project", "x = " + "[" * 5000 + "]" * 5000]:
        (demo / PROJECT).write_text(text)
        with pytest.raises(ConfigError, match=r"pyproject\.toml: cannot be read"):
            check_package(demo, limits=LIMITS)


def test_a_published_package_without_tasks_is_found():
    class Empty:
        environment, settings = "demo.env:Demo", {}

        def __init__(self, config):
            self.id = config.id

        def __iter__(self):
            return iter(())

    with pytest.raises(Failed, match="there are no tasks"):
        make_environment(Empty, {"name": "demo"})


def test_every_row_needs_rows_before_it_and_says_how_to_mend_it():
    for number, check in enumerate(CHECKS.values()):
        assert set(check.needs) <= set([*CHECKS][:number])
        assert check.mend


def test_the_project_of_an_author_is_published(demo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = publish("demo", "out", check=lambda folder: [])
    assert (done.id, done.version) == ("viewbox-demo", "0.1.0")
    assert (tmp_path / "out" / "viewbox_demo" / "_vendor" / "demo" / "env.py").is_file()
    assert 'license = "MIT"' in (tmp_path / "out" / PROJECT).read_text()
    readme = (tmp_path / "out" / README).read_text()
    assert readme.startswith((demo / README).read_text().strip())  # the author's words first, then the card
    assert "| license | MIT, chosen by the publisher of this package |" in readme
    assert '\n```\n{"discs": 0' in readme
    published = tmp_path / "out" / "viewbox_demo" / "licenses" / "LICENSE"
    assert published.read_bytes() == (demo / "LICENSE").read_bytes()
    assert 'license-files = ["viewbox_demo/licenses/LICENSE"]' in (tmp_path / "out" / PROJECT).read_text()


def test_an_author_who_forgets_the_words_of_the_example_publishes_none_of_them(trial, tmp_path):
    (trial.project.folder / "demo" / ".gitkeep").touch()  # a hidden file that keeps a folder is no secret
    assert "no links, no keys" in CHECKS["files"].run(trial)
    (trial.project.folder / "demo" / ".env").touch()
    with pytest.raises(Failed, match="named like a file that holds secrets"):
        CHECKS["files"].run(trial)
    (trial.project.folder / "demo" / ".env").unlink()
    change(trial, OTHER)
    with pytest.raises(ConfigError, match="would be published: description, keywords, README"):
        publish(str(trial.project.folder), tmp_path / "out")
    change(trial, [*SAID, (README, "The pictures are drawn by the code; no data of others is in here.", "")])
    assert "your own" in CHECKS["own words"].run(trial)


def test_what_is_private_is_in_no_archive_of_a_new_package(demo):
    for name in (
        ".env", ".env.local", "demo/.env", "outputs/run/traces.jsonl", "runs/a/episodes.jsonl", "demo/words.txt",
    ):  # fmt: skip
        (demo / name).parent.mkdir(parents=True, exist_ok=True)
        (demo / name).write_text("HF_TOKEN=1")
    subprocess.run([sys.executable, "-m", "hatchling", "build"], check=True, cwd=demo, capture_output=True)
    [source], [wheel] = (demo / "dist").glob("*.tar.gz"), (demo / "dist").glob("*.whl")
    with tarfile.open(source) as archive, zipfile.ZipFile(wheel) as packed:
        names = [*archive.getnames(), *packed.namelist()]
    assert not [name for name in names if ".env" in name or "jsonl" in name]
    assert sum(name.endswith("words.txt") for name in names) == 2


class Found(BaseModel):
    box: tuple[float, float, float, float]


class Named(Found):
    name: str


class Tilted(library.BaseMultiTurnEnv):
    name = "tilted"
    boxes = ("box",)
    coordinates = "per_mille"
    answer = Found
    tasks = (library.Task("thirds", reference={"box": (1 / 3, 1 / 3, 1 / 3 + 0.01, 1 / 3 + 0.01)}),)

    def images(self, task):
        return [Image.new("L", (300, 300))]


class Misspelt(Tilted):
    answer = Named
    tasks = (library.Task("apex", reference={"box": (0.25, 0.25, 0.5, 0.5), "name": "left lung apex"}),)

    def write_answer(self, task):
        return super().write_answer(task).replace("left lung apex", "left lung")


def test_rounding_of_a_box_costs_a_reward_of_ones_own_no_more_than_an_iou_and_a_text_beside_it_fails_as_before():
    iou = IoUReward("box")
    for reward in (iou, lambda answer, reference: iou(answer, reference) ** 2):
        env = Tilted(reward=reward)
        played = env.play(env.tasks[0], library.ScriptedPolicy([env.write_answer(env.tasks[0])]))
        assert played.scores.total < MIN_GOLD
        assert CHECKS["gold answer"].run(env, {}).endswith("played tasks")
        assert CHECKS["check_rewards"].run(env, {}) == "gold answers score 1.0, empty ones 0"
    env = Misspelt(reward=CombinedReward({"box": (iou, 0.5), "name": (TokenF1Reward("name"), 0.5)}))
    with pytest.raises(Failed, match=r"the right answer scores too little: task apex: name 0\.800"):
        CHECKS["gold answer"].run(env, {})


@each("most, passes", [(3 * (1 / 3 - 1e-17), True), (1 - 1e-15, True), (0.999, False)])
def test_the_exact_answer_scores_1_up_to_the_last_bits_of_a_sum(most, passes):
    env = Tilted(reward=lambda answer, reference: most if (answer or {}).get("box") == reference["box"] else 0.0)
    assert (check_rewards(env) == []) == passes
