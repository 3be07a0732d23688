"""Specialists of a published package: their models and snapshots travel, or are refused with what is allowed."""

import json
import shutil
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from tests.support import verifiers_server as scripted
from tests.support.allowed_versions import ROOT
from tests.support.front_doors import map_overviews
from tests.support.publishing import check_only
from tests.support.served_models import forget_servers
from tests.support.tables import each
from tests.support.tiny_specialists import save_vit
from tests.support.verifiers_command import read_traces, run_command
from viewbox import make
from viewbox.assets import resolve_model_path, resolve_snapshot_path
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.envs.literature_vqa.world import write_query
from viewbox.errors import ConfigError
from viewbox.integrations.verifiers import ViewboxTasksetConfig
from viewbox.publish import models, publish
from viewbox.publish.checks import CHECKS

SETTINGS = {"questions": ["which"], "split": "test", "num_tasks": 2}
LITERATURE = {"split": "test", "num_tasks": 3, "questions": ["therapy", "limit"], "coordinates": "per_mille"}
CLASSIFY = {"kind": "classification", "model": "package:chest_classifier", "device": "cpu"}
ASKED = ("classify", {"image": "image_1"}), ("mark", {"image": "image_1"})


@pytest.fixture(autouse=True)
def no_servers():
    forget_servers()
    yield
    forget_servers()


@pytest.fixture
def segmenter(tmp_path):
    """The shipped segmenter as a folder somewhere on this machine, with what training leaves beside a model."""
    folder = tmp_path / "secret place" / "my_segmenter"
    shutil.copytree(resolve_model_path("package:chest_segmenter"), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "_name_or_path": str(folder), "tokenizer_file": "/x"}))
    (folder / "optimizer.pt").write_bytes(b"state")
    (folder / "training_args.bin").write_bytes(b"pickle")
    (folder / "modeling.py").write_text("raise SystemExit('never run')")
    (folder / "checkpoint-1").mkdir()
    (folder / "LICENSE.txt").write_text("MIT")
    return folder


def test_a_package_asks_a_shipped_model_and_one_of_a_folder(unchecked, tmp_path, segmenter, run_forked):
    mark = {"kind": "segmentation", "model": str(segmenter), "device": "cpu", "labels": ["heart"]}
    settings = {**SETTINGS, "num_tasks": 1, "specialists": {"classify": CLASSIFY, "mark": mark}}
    package = tmp_path / "out"
    publish("chest_xray", package, settings=settings)
    env = make("chest_xray", **settings)
    [(shown, task)] = map_overviews(env).items()
    calls = [(str(number), name, json.dumps(given)) for number, (name, given) in enumerate(ASKED)]
    scripts = {shown: [scripted.make_reply("", *calls), scripted.make_reply(env.write_answer(task))]}
    text = "".join(f"<tool_call>{json.dumps({'name': n, 'arguments': a})}</tool_call>" for n, a in ASKED)
    wanted = env.play(task, ScriptedPolicy([text, env.write_answer(task)])).turns[2].tool_results
    shutil.rmtree(segmenter.parent)  # nothing of this machine is left to find
    where = (
        "import importlib.util as u; assert u.find_spec('viewbox') is None; "
        "from verifiers.v1.cli.eval.main import main; main()"
    )
    with scripted.serve(scripts) as server:
        given = ["--model", "scripted", "--client.base-url", server.url, "--no-push", "--no-rich", "-n", "1", "-o", "e"]
        run_forked(where, "viewbox-chest-xray", *given, path=package, cwd=tmp_path)
    [trace] = read_traces(tmp_path / "e")
    results = [result for turn in trace["info"]["viewbox"]["turns"] for result in turn["tool_results"]]
    assert [result["error"] for result in results] == [None, None] == [result.error for result in wanted]
    assert results[0]["facts"] == pytest.approx(dict(wanted[0].facts), abs=2e-3)
    assert [one["label"] for one in results[1]["facts"]["regions"]] == ["heart"]
    assert trace["rewards"]["total"]["score"] == 1.0


def test_only_what_the_model_needs_travels_and_no_path_of_this_machine(unchecked, tmp_path, segmenter, viewbox):
    spec = {"kind": "segmentation", "model": str(segmenter), "device": "cpu"}
    given = json.dumps({"mark": spec, "again": {**spec, "description": "The same once more."}})
    fixed = ["--set", "split=test", "--set", "num_tasks=2", "--set", f"specialists={given}"]
    status, out, err = viewbox("publish", "chest_xray", tmp_path / "out", *fixed)
    assert (status, err) == (0, "")
    assert "publishes models/mark/model.safetensors" in out
    assert "leaves out models/mark/training_args.bin" in out
    assert f"- models/mark ({segmenter}) travels: 5 files, 50" in out
    home = tmp_path / "out" / "viewbox_chest_xray"
    assert sorted(path.name for path in (home / "models" / "mark").iterdir()) == [
        "LICENSE.txt", "README.md", "config.json", "model.safetensors", "preprocessor_config.json",
    ]  # fmt: skip
    assert [path.name for path in (home / "models").iterdir()] == ["mark"]  # once for both
    for path in (tmp_path / "out").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert str(tmp_path).encode() not in content, path
        assert b"secret place" not in content, path
    written = (home / "__init__.py").read_text()
    assert "'again': {'kind': 'segmentation', 'description': 'The same once more.', 'model': 'models/mark'" in written
    project = tomllib.loads((tmp_path / "out/pyproject.toml").read_text())["project"]
    assert {"torch", "torchvision", "transformers"} <= {name.split(">")[0] for name in project["dependencies"]}


def test_of_a_hub_model_the_name_travels_without_specialists_no_torch_and_no_folder_of_a_part(unchecked, tmp_path):
    spec = {"kind": "grounding", "model": "IDEA-Research/grounding-dino-tiny"}
    publish("chest_xray", tmp_path / "out", settings={**SETTINGS, "specialists": {"ground": spec}})
    home = tmp_path / "out" / "viewbox_chest_xray"
    assert f"'specialists': {{'ground': {spec!r}}}" in (home / "__init__.py").read_text()
    assert not (home / "models").exists()
    assert "torch>=2.8" in (tmp_path / "out" / "pyproject.toml").read_text()
    publish("chest_xray", tmp_path / "plain", settings=SETTINGS)
    assert "torch" not in (tmp_path / "plain" / "pyproject.toml").read_text()
    look = {"kind": "classification", "model": save_vit(tmp_path / "model")}
    parts = {"films": {"name": "chest_xray", **SETTINGS, "specialists": {"look": look}}, "digits": {"num_tasks": 2}}
    with pytest.raises(ConfigError, match=r"specialists\.look\.model = .*allowed: publish each by itself"):
        publish("mixture", tmp_path / "mixture", settings={"environments": parts})


def test_a_model_that_does_not_load_fails_in_the_check(tmp_path):
    folder = Path(save_vit(tmp_path / "broken"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 7}))
    look = {"kind": "classification", "model": str(folder), "device": "cpu"}
    with pytest.raises(ConfigError, match=r"specialists\.look\.model.*no weights"):
        CHECKS["carried files"].run(make("chest_xray", **SETTINGS, specialists={"look": look}), {})


def link_weights(folder):
    (folder / "model.safetensors").rename(folder.parent / "weights")
    (folder / "model.safetensors").symlink_to(folder.parent / "weights")


REFUSED = [  # what is done to a model's folder, and the words of the refusal
    (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
        r"specialists\.look\.model = .*: holds no \.safetensors"),
    (link_weights, r"model\.safetensors: is a link"),
    (lambda folder: (folder / "README.md").write_text("hf_" + "aB3dE5gH7j" * 3),
        r"README\.md, line 1: holds what looks like"),
    (lambda folder: (folder / "config.json").write_text("{'not': JSON}"), r"config\.json: is not JSON"),
    (None, r"specialists\.look\.model = .*: its files take 0 MiB.*allowed in a package: 0 MiB\. Push the "
        r"model to a hub \(`hf upload OWNER/NAME FOLDER`\), and name it"),
]  # fmt: skip


@each("damage, says", REFUSED)
def test_a_folder_that_cannot_travel_is_refused_and_nothing_is_written(unchecked, tmp_path, monkeypatch, damage, says):
    folder = tmp_path / "model"
    save_vit(folder)
    if damage:
        damage(folder)
    else:
        monkeypatch.setattr(models, "MAX_BYTES", 1000)
    settings = {**SETTINGS, "specialists": {"look": {"kind": "classification", "model": str(folder)}}}
    with pytest.raises(ConfigError, match=says):
        publish("chest_xray", tmp_path / "out", settings=settings)
    assert not (tmp_path / "out").exists()


WORDS = "sided: {mass: [lump]}\n"
FACTS = (ROOT / "envs" / "literature_vqa" / "facts.jsonl").read_text("utf-8")
CATALOGUE = (ROOT / "envs" / "software_adviser" / "catalogue.jsonl").read_text("utf-8")
NAMED = {  # settings that name files of the current folder, and how the package names them
    "words": ("chest_xray", {**SETTINGS, "aliases": "words.yaml"}, {"files/aliases.yaml": WORDS}),
    "words somewhere else": ("chest_xray", {**SETTINGS, "aliases": "{}/words.yaml"}, {"files/aliases.yaml": WORDS}),
    "facts": ("literature_vqa", {"num_tasks": 2, "facts": "facts.jsonl"}, {"files/facts.jsonl": FACTS}),
    "of a mixture": (
        "mixture",
        {"environments": {
            "films": {"name": "chest_xray", **SETTINGS, "aliases": "words.yaml"},
            "asked": {"name": "software_adviser", "num_tasks": 2, "catalogue": "tools.jsonl"},
        }},
        {"files/environments.films.aliases.yaml": WORDS, "files/environments.asked.catalogue.jsonl": CATALOGUE},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", NAMED)
def test_a_file_that_a_setting_names_travels_and_is_read_elsewhere(unchecked, tmp_path, monkeypatch, what):
    name, settings, wanted = NAMED[what]
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    for file, text in (("words.yaml", WORDS), ("facts.jsonl", FACTS), ("tools.jsonl", CATALOGUE)):
        (here / file).write_text(text, "utf-8")
    monkeypatch.chdir(here)
    settings = json.loads(json.dumps(settings).replace("{}", str(here)))
    package = publish(name, tmp_path / "out", settings=settings)
    shutil.rmtree(here)
    monkeypatch.chdir(there)
    [home] = (path.parent for path in (tmp_path / "out").glob("*/__init__.py"))
    for place, text in wanted.items():
        assert (home / place).read_text("utf-8") == text
        assert any(line.startswith(f"{place} (") and "travels: 1 file" in line for line in package.findings)
    assert str(tmp_path) not in (home / "__init__.py").read_text()
    assert "license" not in (tmp_path / "out" / "pyproject.toml").read_text()  # the files are not ours
    spec = spec_from_file_location(home.name, home / "__init__.py", submodule_search_locations=[str(home)])
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    [taskset] = (getattr(module, name) for name in module.__all__ if name.endswith("Taskset"))
    [first, *_] = taskset(ViewboxTasksetConfig()).load()
    env, task = first.data.played(), first.data.task()
    assert env.reward.score(env.perfect_answer(task), task.reference)[0] == 1.0
    paths = [path for _, path in models.find_paths(first.data.env(), first.data.settings)]
    assert {str(home / place) for place in wanted} <= set(paths)


def test_a_setting_that_names_a_folder_or_a_file_of_secrets_does_not_travel(unchecked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "asked").mkdir()
    (tmp_path / "asked" / "train.jsonl").write_text('{"words": "I count cells."}\n')
    (tmp_path / "credentials.yaml").write_text(WORDS)
    for name, given, says in (
        ("software_adviser", {"requests": "asked"}, "requests = 'asked': is no file"),
        ("chest_xray", {**SETTINGS, "aliases": "credentials.yaml"}, "is named like a file that holds secrets"),
    ):
        with pytest.raises(ConfigError, match=says):
            publish(name, tmp_path / "out", settings=given)
    assert not (tmp_path / "out").exists()


TOOLS = """
from viewbox import Picture

def brightness(image: Picture) -> dict:
    "The mean gray value."
    return {"mean": float(image.to_gray().mean())}
"""


def test_a_function_in_a_file_and_a_program_in_a_file_do_not_travel(unchecked, tmp_path, monkeypatch):
    (tmp_path / "my_tools.py").write_text(TOOLS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    server = {"kind": "mcp", "command": ["python", "my_tools.py"], "tools": {"see": {"description": "Sees."}}}
    for spec, says in (
        ({"kind": "function", "function": "my_tools.py:brightness"}, r"specialists\.x\.function = .*is a file of this"),
        ({"kind": "function", "function": f"{tmp_path}/my_tools.py:brightness"}, r"specialists\.x\.function"),
        ({"kind": "function", "function": "my_tools:brightness"}, r"a specialist names 'my_tools', which is not part"),
        (server, r"specialists\.x\.command\.1 = 'my_tools\.py': is a file of this machine"),
        ({**server, "command": [str(tmp_path / "my_tools.py")]}, r"specialists\.x\.command\.0"),
    ):
        with pytest.raises(ConfigError, match=says):
            publish("chest_xray", tmp_path / "out", settings={**SETTINGS, "specialists": {"x": spec}})
    for spec in (
        {**server, "command": ["python", "-m", "hospital.server"]},
        {"kind": "http", "url": "http://127.0.0.1:9/x", "description": "Sees.", "parameters": {"properties": {}}},
        {"kind": "function", "function": "viewbox.tools.builtin.geometry:zoom"},
    ):
        publish("chest_xray", tmp_path / "out", settings={**SETTINGS, "specialists": {"x": spec}}, force=True)


def test_a_function_of_the_published_package_travels_with_it(unchecked, tmp_path, monkeypatch):
    home = tmp_path / "home" / "my_clinic"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("")
    (home / "tools.py").write_text(TOOLS)
    (home / "env.py").write_text(
        "from viewbox.envs.chest_xray.env import ChestXray\n"
        "class Clinic(ChestXray):\n"
        "    name = 'clinic'\n"
        "    specialists = {'bright': {'kind': 'function', 'function': 'my_clinic.tools:brightness'},\n"
        "        'classify': {'kind': 'classification', 'model': 'package:chest_classifier', 'device': 'cpu'}}\n"
    )
    monkeypatch.syspath_prepend(home.parent)
    publish("my_clinic.env:Clinic", tmp_path / "out", settings=SETTINGS)
    assert (tmp_path / "out" / "viewbox_clinic" / "_vendor" / "my_clinic" / "tools.py").read_text() == TOOLS
    written = (tmp_path / "out" / "viewbox_clinic" / "__init__.py").read_text()
    assert "'classify': {'kind': 'classification', 'model': 'models/classify', 'device': 'cpu'}" in written
    assert "'function': 'my_clinic.tools:brightness'" in written


def test_the_published_package_is_played_by_verifiers_with_its_own_snapshot(tmp_path, monkeypatch):
    check_only(monkeypatch, "carried files")
    package = tmp_path / "out"
    done = publish("literature_vqa", package, settings=LITERATURE)
    assert any(finding.endswith("load: search") for finding in done.findings)
    assert any("snapshots/search.sqlite (package:literature) travels" in finding for finding in done.findings)
    carried = package / "viewbox_literature_vqa" / "snapshots" / "search.sqlite"
    assert carried.read_bytes() == Path(resolve_snapshot_path("package:literature")).read_bytes()
    assert "torch" not in (package / "pyproject.toml").read_text()
    env, scripts = make("literature_vqa", **LITERATURE), {}
    for overview, task in map_overviews(env).items():
        look = json.dumps({"query": write_query(env.plan(task).fact)})
        answer = scripted.make_reply(env.write_answer(task))
        scripts[overview] = [scripted.make_reply("", ("a", "search_web", look)), answer]
    with scripted.serve(scripts) as server:
        given = ["--model", "scripted", "--client.base-url", server.url, "--no-push", "--no-rich", "-n", "3", "-o", "e"]
        run_command("vf-eval", "viewbox-literature-vqa", *given, path=package, cwd=tmp_path)
    traces = read_traces(tmp_path / "e")
    assert [trace["stop_condition"] for trace in traces] == ["answered"] * 3
    assert all(trace["rewards"]["total"]["score"] > 0.99 for trace in traces)
    sys.modules.pop("viewbox_literature_vqa", None)


def test_a_snapshot_of_ones_own_travels_without_its_path_or_is_refused(tmp_path, unchecked, monkeypatch):
    own = tmp_path / "secret place" / "mine.sqlite"
    own.parent.mkdir()
    own.write_bytes(Path(resolve_snapshot_path("package:literature")).read_bytes())
    lit = {"kind": "literature", "snapshot": str(own), "max_calls": 2}
    out = tmp_path / "out"
    publish("digits", out, settings={"num_tasks": 3, "specialists": {"lit": lit}})
    init = (out / "viewbox_digits" / "__init__.py").read_text()
    assert "secret place" not in init
    assert "snapshots/lit.sqlite" in init
    assert (out / "viewbox_digits" / "snapshots" / "lit.sqlite").is_file()

    def publish_with(snapshot, name):
        lit = {"kind": "literature", "snapshot": snapshot}
        publish(name, tmp_path / "refused", settings={"specialists": {"search": lit}})

    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"SQLite format 3\x00 and nothing else")
    for given, problem in ((str(tmp_path / "none.sqlite"), "no such file"), (str(broken), "broken.sqlite")):
        for name in ("digits", "literature_vqa"):  # opened when the right answer is tried, or when it is copied
            with pytest.raises(ConfigError, match=rf"specialists.search.snapshot.*{problem}"):
                publish_with(given, name)
    monkeypatch.setattr(models, "MAX_BYTES", 1000)
    with pytest.raises(ConfigError, match=r"take 1 MiB.*allowed in a package"):
        publish_with("package:literature", "digits")
    assert not (tmp_path / "refused").exists()
