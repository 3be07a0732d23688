"""Packs of runs: what goes in comes out, and a forged pack writes nothing, nowhere."""

import gzip
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import numpy as np
import pytest
import yaml
from PIL import Image

from tests.support.forged_runs import forge_run, make_line
from tests.support.saved_episodes import written
from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.images.ref import ImageRef
from viewbox.records import Episode, EpisodeTokens, Task
from viewbox.rollouts.runs import pack as packing
from viewbox.rollouts.runs.pack import pack_run, unpack_run
from viewbox.rollouts.store.reader import load


def make(number):
    ref = ImageRef.of(np.full((4, 6), number, np.uint8))
    tokens = EpisodeTokens((1,), (number,), (1,), (-0.5,), (ref,), 1)
    return Episode(Task(f"t{number}", (ref,)), environment="digits", tokens=tokens)


@pytest.fixture
def run(tmp_path):
    """A run as training leaves it, with a checkpoint and a model."""
    run = tmp_path / "run"
    written(run / "episodes", *map(make, range(4)))
    written(run / "held_out" / "0", make(7))
    (run / "config.yaml").write_text(yaml.safe_dump({"env": {"name": "digits"}}))
    (run / "metrics.jsonl").write_text('{"step": 1, "reward": 0.5}\n')
    for name in ("checkpoints/checkpoint-1/model.safetensors", "model/model.safetensors", "wandb/x", "adapter.pt"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("weights")
    (run / ".lock").write_text("")
    return run


def read_tree(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def forge_pack(path, entries):
    """A tar file of (name or TarInfo, content)."""
    with tarfile.open(path, "w:gz", format=tarfile.GNU_FORMAT) as archive:
        for entry, content in entries:
            entry = tarfile.TarInfo(entry) if isinstance(entry, str) else entry
            content = content.encode() if isinstance(content, str) else content
            entry.size = len(content) if entry.isreg() else 0
            archive.addfile(entry, io.BytesIO(content))
    return path


LINES = ("episodes.jsonl", json.dumps(make_line(0)) + "\n")


# ---- round trips


def test_a_run_comes_back_as_it_was_without_weights(run, tmp_path):
    before = read_tree(run)
    made = pack_run(run, tmp_path / "run.tar.gz")
    back = unpack_run(tmp_path / "run.tar.gz", tmp_path / "back")
    weights = {name for name in before if name.endswith((".safetensors", ".pt", ".lock")) or "wandb" in name}
    assert read_tree(tmp_path / "back") == {name: text for name, text in before.items() if name not in weights}
    assert read_tree(run) == before
    assert (made.files, made.size) == (back.files, back.size)
    assert back.left_out == {}
    for one, other in zip(load(run, tokens=True), load(tmp_path / "back", tokens=True), strict=True):
        assert one.task.images[0].open().tobytes() == other.task.images[0].open().tobytes()
        assert one.tokens.completion_ids == other.tokens.completion_ids


def test_the_commands_of_the_docs_work_with_relative_paths(run, tmp_path, viewbox, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert viewbox("runs", "pack", run.name, "--out", "run.tar.gz")[0] == 0
    status, _, err = viewbox("runs", "unpack", "run.tar.gz", "--out", "runs/theirs")
    assert (status, err) == (0, "")
    given, found = (sorted(one.name for one in folder.rglob("*.png")) for folder in (run, tmp_path / "runs/theirs"))
    assert given == found != []


def test_weights_are_packed_if_they_are_asked_for(run, tmp_path):
    pack_run(run, tmp_path / "run.tar.gz", weights=True)
    unpack_run(tmp_path / "run.tar.gz", tmp_path / "back")
    assert (tmp_path / "back" / "model" / "model.safetensors").read_text() == "weights"
    assert (tmp_path / "back" / "checkpoints" / "checkpoint-1").is_dir()


def test_the_same_run_gives_the_same_file(run, tmp_path):
    pack_run(run, tmp_path / "one.tar.gz")
    for path in run.rglob("*"):
        os.utime(path, (10**9, 10**9))
        path.chmod(0o755 if path.is_dir() else 0o600)
    shutil.copytree(run, tmp_path / "copy")
    pack_run(tmp_path / "copy", tmp_path / "two.tar.gz")
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()


def test_a_folder_of_episodes_is_a_run_too_and_half_a_line_is_not_packed(tmp_path):
    folder = written(tmp_path / "some", make(0))
    with (folder / "episodes.jsonl").open("a") as file:
        file.write('{"task": {"id')
    pack_run(folder, tmp_path / "run.tar.gz")
    unpack_run(tmp_path / "run.tar.gz", tmp_path / "back")
    assert (tmp_path / "back" / "episodes.jsonl").read_bytes().count(b"\n") == 1
    assert (tmp_path / "back" / "episodes.jsonl").read_bytes().endswith(b"\n")


# ---- what is not packed


def test_what_is_appended_while_a_pack_is_made_is_not_packed(run, tmp_path, monkeypatch):
    lines = run / "episodes" / "episodes.jsonl"
    before = lines.read_bytes()

    def measure(number, real=os.fstat):
        found = real(number)
        if found.st_size == len(before) and sys._getframe(1).f_code.co_name == "_add_file":
            lines.write_bytes(before + before)
        return found

    monkeypatch.setattr(packing.os, "fstat", measure)
    pack_run(run, tmp_path / "a.tar.gz")
    assert lines.read_bytes() == before + before
    monkeypatch.undo()
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        name = next(one for one in archive.getnames() if one.endswith("episodes.jsonl"))
        assert archive.extractfile(name).read() == before


@each(
    "config",
    [
        {"env": {"name": "data", "data": {"restricted": True}}},
        {"env": {"name": "data", "eval": {"data": {"restricted": True}}}},
        {"env": {"name": "mixture", "environments": {"a": {"name": "data", "data": {"restricted": True}}}}},
        {"env": {"name": "their.own:Env"}},
    ],
)
def test_restricted_runs_are_packed_only_if_it_is_said(run, tmp_path, config):
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(ConfigError, match=r"restricted.*--restricted"):
        pack_run(run, tmp_path / "run.tar.gz")
    assert not (tmp_path / "run.tar.gz").exists()
    pack_run(run, tmp_path / "run.tar.gz", restricted=True)
    assert unpack_run(tmp_path / "run.tar.gz", tmp_path / "back").files > 5


def test_without_a_config_the_episodes_name_the_environment(tmp_path):
    run = forge_run(tmp_path / "gift", [make_line(0), make_line(1, environment="their.own:Env")])
    with pytest.raises(ConfigError, match=r"their\.own:Env is not registered here"):
        pack_run(run, tmp_path / "run.tar.gz")


@pytest.mark.parametrize("target", ["/etc/hostname", "config.yaml", "/nowhere"])
def test_links_are_not_packed(run, tmp_path, target):
    (run / "episodes" / "images" / "link").symlink_to(target)
    with pytest.raises(ConfigError, match=r"images/link: a link, pipe or device"):
        pack_run(run, tmp_path / "run.tar.gz")
    assert list(tmp_path.glob("*.tar.gz")) == list(tmp_path.glob(".*.part")) == []


def test_a_name_that_could_not_be_unpacked_is_not_packed(run, tmp_path):
    (run / "a\nb").write_text("")
    with pytest.raises(ConfigError, match="its name is not that of a file inside the run; rename it"):
        pack_run(run, tmp_path / "run.tar.gz")


def test_a_pack_does_not_lie_in_its_run(run):
    with pytest.raises(ConfigError, match="lies in the run"):
        pack_run(run, run / "run.tar.gz")


# ---- packs of others


def entry(name, kind, target="", **changes):
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    for key, value in changes.items():
        setattr(made, key, value)
    return made


BAD_ENTRIES = {
    "a parent": [("../evil", "x")],
    "a parent inside": [("a/../../evil", "x")],
    "an absolute path": [("/tmp/evil", "x")],
    "a drive": [("c:/evil", "x")],
    "a backslash": [("..\\evil", "x")],
    "a dot": [("./evil", "x")],
    "an empty part": [("a//evil", "x")],
    "a hidden file": [(".git/hooks/evil", "x")],
    "a folder": [(entry("evil", tarfile.DIRTYPE), "")],
    "a link": [(entry("evil", tarfile.SYMTYPE, "/etc/passwd"), "")],
    "a link and a file through it": [(entry("d", tarfile.SYMTYPE, "/tmp"), ""), ("d/evil", "x")],
    "a hard link": [(entry("evil", tarfile.LNKTYPE, "/etc/passwd"), "")],
    "a hard link to a file before it": [(entry("evil", tarfile.LNKTYPE, "episodes.jsonl"), "")],
    "a pipe": [(entry("evil", tarfile.FIFOTYPE), "")],
    "a device": [(entry("evil", tarfile.CHRTYPE), "")],
    "a file with holes": [(entry("evil", tarfile.GNUTYPE_SPARSE), "")],
    "another kind": [(entry("evil", b"Z"), "")],
    "a name twice": [("evil", "x"), ("evil", "y")],
    "a name twice but for its case": [("evil", "x"), ("EVIL", "y")],
    "a file and a folder": [("evil", "x"), ("evil/a", "y")],
    "a folder and a file": [("evil/a", "y"), ("evil", "x")],
    "a name of Windows": [("con.txt", "x")],
    "a long name": [("x" * 300, "x")],
    "too deep": [("/".join("x" * 40), "x")],
    "a line break": [("a\nb", "x")],
    "escapes": [("\x1b[2J", "x")],
    "a dot at its end": [("evil.", "x")],
}


def test_a_name_that_no_pack_has_is_refused_and_nothing_is_left_behind(tmp_path, viewbox):
    for number, (kind, entries) in enumerate(BAD_ENTRIES.items()):
        home = tmp_path / str(number)
        home.mkdir()
        forge_pack(home / "gift.tar.gz", [LINES, *entries])
        before = read_tree(tmp_path)
        with pytest.raises(ConfigError, match=r"gift\.tar\.gz: the file .* nothing was unpacked"):
            unpack_run(home / "gift.tar.gz", home / "out")
        assert read_tree(tmp_path) == before, kind
        status, out, err = viewbox("runs", "unpack", home / "gift.tar.gz", "--out", home / "out")
        assert (status, out) == (2, ""), kind
        assert "\x1b" not in err
        assert [path.name for path in home.iterdir()] == ["gift.tar.gz"], kind


def test_bombs_are_refused(tmp_path, monkeypatch):
    forge_pack(tmp_path / "gift.tar.gz", [LINES, ("zeros", bytes(200_000_000))])
    with pytest.raises(ConfigError, match="250 times the size"):
        unpack_run(tmp_path / "gift.tar.gz", tmp_path / "out")
    monkeypatch.setattr(packing, "MAX_FILES", 10)
    forge_pack(tmp_path / "many.tar.gz", [LINES, *((f"f{n}", "") for n in range(20))])
    with pytest.raises(ConfigError, match="more than 10 files"):
        unpack_run(tmp_path / "many.tar.gz", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@each("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_header_that_fills_memory_is_not_read(tmp_path, kind):
    header = entry("evil", kind, size=2**33).tobuf(tarfile.GNU_FORMAT)
    with gzip.open(tmp_path / "gift.tar.gz", "wb") as file:
        file.write(header + bytes(10_000_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConfigError, match="the file 'evil' in it: not a regular file"):
        unpack_run(tmp_path / "gift.tar.gz", tmp_path / "out")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_names_upon_names_are_refused(tmp_path):
    header = entry("././@LongLink", tarfile.GNUTYPE_LONGNAME, size=3).tobuf(tarfile.GNU_FORMAT)
    with gzip.open(tmp_path / "gift.tar.gz", "wb") as file:
        file.write((header + b"abc".ljust(512, b"\0")) * 5000)
    with pytest.raises(ConfigError, match="damaged"):
        unpack_run(tmp_path / "gift.tar.gz", tmp_path / "out")


def damage(content, place, new):
    return content[:place] + new + content[place + len(new) :]


@each("kind", ["cut off", "junk", "empty", "a byte changed", "a header changed", "a folder"])
def test_damaged_packs_are_refused_whole(run, tmp_path, kind):
    pack_run(run, tmp_path / "good.tar.gz")
    content, pack = (tmp_path / "good.tar.gz").read_bytes(), tmp_path / "bad.tar.gz"
    changed = {
        "cut off": content[:-100],
        "junk": os.urandom(5000),
        "empty": b"",
        "a byte changed": damage(content, 200, b"\xff\xfe"),
        "a header changed": gzip.compress(damage(gzip.decompress(content), 130, b"77")),
    }
    pack.mkdir() if kind == "a folder" else pack.write_bytes(changed[kind])
    with pytest.raises(ConfigError, match=r"bad\.tar\.gz"):
        unpack_run(pack, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []


def test_a_pack_without_episodes_is_not_a_run(tmp_path):
    from viewbox.errors import ViewboxError

    with pytest.raises(ViewboxError, match="no episodes here"):
        unpack_run(forge_pack(tmp_path / "gift.tar.gz", [("notes.txt", "x")]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_image_that_is_not_that_of_its_hash_is_left_out(run, tmp_path, viewbox):
    images = sorted((run / "episodes" / "images").rglob("*.png"))
    Image.new("L", (6, 4), 77).save(images[0])
    images[1].write_bytes(b"<svg onload=alert(1)>")
    pack_run(run, tmp_path / "run.tar.gz")
    status, _, err = viewbox("runs", "unpack", tmp_path / "run.tar.gz", "--out", tmp_path / "back")
    assert status == 1
    assert err.count("warning: left out: episodes/images/") == 2
    assert f"{images[0].name}: holds other pixels" in err
    assert not any((tmp_path / "back" / image.relative_to(run)).exists() for image in images[:2])
    assert len(list(load(tmp_path / "back"))) == 4


def test_an_existing_folder_is_kept(run, tmp_path):
    pack_run(run, tmp_path / "run.tar.gz")
    before = read_tree(run)
    with pytest.raises(ConfigError, match="exists; give another --out"):
        unpack_run(tmp_path / "run.tar.gz", run)
    assert read_tree(run) == before


# ---- kill -9

CHILD = """
import sys, itertools
from viewbox.rollouts.runs.pack import pack_run, unpack_run
run, folder = sys.argv[1:]
print("ready", flush=True)
for number in itertools.count():
    pack_run(run, f"{folder}/{number}.tar.gz")
    unpack_run(f"{folder}/{number}.tar.gz", f"{folder}/{number}")
    print(number, flush=True)
"""


@pytest.mark.slow
def test_what_a_killed_process_packed_is_whole_or_absent(run, tmp_path):
    wanted = {name for name in read_tree(run) if not name.endswith((".safetensors", ".pt", ".lock"))} - {"wandb/x"}
    content, made = None, 0
    for attempt in range(10):
        folder = tmp_path / f"packs{attempt}"
        folder.mkdir()
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(run), str(folder)], stdout=subprocess.PIPE, text=True, cwd=tmp_path
        )
        assert child.stdout.readline() == "ready\n"
        for _ in range(4):
            child.stdout.readline()
        time.sleep(0.003 * attempt)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        for path in folder.iterdir():
            if path.name.startswith("."):  # a draft
                continue
            made += 1
            if path.suffix == ".gz":
                content = content or path.read_bytes()
                assert path.read_bytes() == content
            else:
                assert set(read_tree(path)) == wanted
                assert len(list(load(path, tokens=True))) == 4
    assert made >= 50
    assert gzip.decompress(content)
