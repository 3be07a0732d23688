"""Tasks from files travel with a published environment: the selected rows, their images, and nothing else."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import yaml
from PIL import Image

from tests.support import ct_folder, odd_images
from tests.support.data_kit import write_jsonl
from viewbox import make, open_image
from viewbox.errors import ConfigError
from viewbox.publish import publish
from viewbox.publish.task_data import write_tasks

FILMS = '''
"""Chest films with a finding."""
from viewbox import ExactMatchReward
from viewbox.envs.data.env import DataEnv
from viewbox.envs.data.fields import TaskField


class Films(DataEnv):
    """What does the film show?"""

    name = "films"
    answer = {"type": "object", "properties": {"finding": {"type": "string"}}, "required": ["finding"]}
    fields = {"question": TaskField("prompt", "text"), "finding": TaskField("reference", "text")}
    reward = ExactMatchReward("finding")

    def gold_answer(self, task):
        return {"finding": task.reference["finding"]}
'''
ROWS = [
    {
        "study": f"s{n}", "file": f"{n}.png", "q": "What is it?", "gold": "opacity", "secret": "patient name",
        "part": part,
    }
    for n, part in enumerate(["train", "train", "test", "test"])
]  # fmt: skip


def ask(folder, source, images="", **columns):
    """Questions on the rows of a table; each column is named as its field, unless it is given."""
    columns = {name: name for name in ("image", "question", "answer")} | columns
    return make("vqa", data={"source": str(folder / source), "images": str(folder / images), "columns": columns})


@pytest.fixture
def package(tmp_path):
    (tmp_path / "package").mkdir()
    return tmp_path / "package"


@pytest.fixture
def films(tmp_path):
    """A module, rows beside images, and a config of them; returns the path of the config."""
    (tmp_path / "films.py").write_text(FILMS)
    (tmp_path / "set" / "img").mkdir(parents=True)
    for row in ROWS:
        Image.new("L", (40, 30), 60 * int(row["file"][0])).save(tmp_path / "set" / "img" / row["file"])
    write_jsonl(tmp_path / "set" / "rows.jsonl", ROWS)
    columns = {"id": "study", "image": {"template": "img/{{ file }}"}, "question": "q", "finding": "gold"}
    data = {"source": str(tmp_path / "set" / "rows.jsonl"), "columns": columns, "where": "part=test"}
    config = {"model": {"name": "m"}, "env": {"name": f"{tmp_path / 'films.py'}:Films", "data": data}}
    path = tmp_path / "films.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def test_a_config_is_published_with_its_rows_and_images_and_is_played_elsewhere(films, unchecked, tmp_path):
    publish(str(films), tmp_path / "out")
    module = tmp_path / "out" / "viewbox_films"
    rows = [json.loads(line) for line in (module / "data" / "tasks.jsonl").read_text().splitlines()]
    assert [row["study"] for row in rows] == ["s2", "s3"]
    assert not any("secret" in row or "part" in row for row in rows)  # columns that nothing reads stay here
    assert len(list((module / "data" / "images").iterdir())) == 2
    moved = tmp_path / "elsewhere"
    (tmp_path / "out").rename(moved)
    (tmp_path / "set").rename(tmp_path / "gone")
    code = (
        "import viewbox_films\n"
        "from viewbox.integrations.verifiers import ViewboxTasksetConfig\n"
        "taskset = getattr(viewbox_films, viewbox_films.__all__[0])(ViewboxTasksetConfig(id='viewbox-films'))\n"
        "for task in taskset.load():\n"
        "    env, one = task.data.env(), task.data.task()\n"
        "    state = env.reset(one, seed=0)\n"
        "    print(one.id, one.reference['finding'], state.view.source.size)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=moved, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["s2 opacity (40, 30)", "s3 opacity (40, 30)"], done.stderr[-2000:]


def test_what_may_not_or_cannot_travel_is_refused(films, unchecked, tmp_path):
    text = films.read_text()

    def refuse(words, settings={}, **changes):  # noqa: B006
        config = yaml.safe_load(text)
        config["env"]["data"] |= changes.pop("data", {})
        films.write_text(yaml.safe_dump(config | changes))
        with pytest.raises(ConfigError, match=words):
            publish(str(films), tmp_path / "out", settings=settings)
        assert not (tmp_path / "out").exists()

    for settings in ({}, {"data": {"restricted": False}}):  # a change lifts no limit
        refuse("restricted", settings, data={"restricted": True})
    refuse("nowhere", data={"source": "nowhere.jsonl"})
    refuse("has a section `reward`", reward={"type": "exact_match", "field": "finding"})
    rows = tmp_path / "set" / "rows.jsonl"
    rows.write_text(rows.read_text().replace("What is it?", "hf_" + 34 * "a"))
    refuse("task 's2' holds a token of Hugging Face")


def test_the_file_that_a_header_names_travels_under_a_name_of_nobody(tmp_path, package, monkeypatch):
    scans = tmp_path / "scans"
    scans.mkdir()
    voxels = np.arange(60, dtype=np.int16).reshape(3, 4, 5)
    odd_images.meta_image(scans / "a.mhd", voxels, data="JohnDoe.raw")
    odd_images.nrrd(scans / "b.nhdr", voxels, data="JaneDoe.raw.gz", encoding="gzip")
    rows = [{"image": name, "question": "?", "answer": "yes"} for name in ("a.mhd", "b.nhdr")]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    block = write_tasks(ask(tmp_path, "rows.jsonl", "scans"), package)
    scans.rename(tmp_path / "gone")
    monkeypatch.chdir(package)
    env = make("vqa", data=block)
    for task in env.tasks:
        assert np.array_equal(env.images(task)[0].volume.voxels, voxels)
    copied = list((package / "data" / "images").iterdir())
    assert len(copied) == 4
    assert not any(b"Doe" in path.name.encode() + path.read_bytes() for path in copied)


SECRET = "machine example.com login jane password s3cr3t-of-the-lab"
# A file with the secret in it, and the image of a row that names it
NAMED = [
    *((name, "a.mhd") for name in (".netrc", ".env", "id_rsa", "credentials.json", ".bash_history", "secrets.yaml",
        "diary.txt", ".pgpass", "secret.raw", ".hidden.raw", "linked.raw", "diary", "passwords.gz",)),
    (".netrc", "a.nhdr"), ("diary.txt", "tail.mhd"), (".private/b.mha", ".private/b.mha"),
    ("deep/.private/b.mha", "deep/.private/b.mha"), (".b.mha", ".b.mha"), (".private/b.mha", "link.mha"),
    ("token_b.mha", "token_b.mha"), (".private/b.mha", "ABSOLUTE"),
]  # fmt: skip


@pytest.mark.parametrize(("secret", "image"), NAMED)
def test_no_image_takes_a_hidden_file_or_a_secret_along(tmp_path, package, secret, image):
    scans = tmp_path / ".scans"  # the folder of images itself may be anywhere
    (scans / secret).parent.mkdir(parents=True)
    (scans / "deep").mkdir(exist_ok=True)
    pixels = np.frombuffer(SECRET.encode(), np.uint8).reshape(1, 1, -1)
    head = f"NDims = 2\nDimSize = {pixels.size} 1\nElementType = MET_UCHAR\nElementDataFile = "
    if secret.endswith(".mha"):
        (scans / secret).write_bytes((head + "LOCAL\n").encode() + SECRET.encode())
        (scans / "link.mha").symlink_to(secret)
        image = str(scans / secret) if image == "ABSOLUTE" else image
    elif image.endswith(".nhdr"):
        lines = f"NRRD0004\ntype: uint8\ndimension: 2\nsizes: {pixels.size} 1\nencoding: raw\ndata file: {secret}\n\n"
        (scans / image).write_text(lines)
    else:
        skip = "HeaderSize = -1\n" if image == "tail.mhd" else ""
        (scans / image).write_text(head.replace("ElementData", f"{skip}ElementData") + secret + "\n")
    if secret == "linked.raw":
        (scans / ".netrc").write_text(SECRET)
        (scans / secret).symlink_to(".netrc")
    elif not secret.endswith(".mha"):
        (scans / secret).write_text("before " * (image == "tail.mhd") + SECRET)
    write_jsonl(tmp_path / "rows.jsonl", [{"image": image, "question": "?", "answer": "yes"}])
    with pytest.raises(ConfigError, match="would be published"):
        write_tasks(ask(tmp_path, "rows.jsonl", ".scans"), package)
    assert not any(SECRET.encode() in path.read_bytes() for path in package.rglob("*") if path.is_file())


def test_of_a_folder_whose_stack_is_chosen_that_stack_alone_travels(tmp_path, package):
    folder = odd_images.series(tmp_path / "scans" / "s", odd_images.flat(range(3)))
    turned = {"rows": [1, 0, 0, 0, 0, -1], "step": (0, 5, 0), "SeriesNumber": 1}
    for file in odd_images.series(tmp_path / "other", odd_images.flat(range(2)), **turned).iterdir():
        file.rename(folder / f"9{file.name}")
    write_jsonl(tmp_path / "rows.jsonl", [{"image": "s#stack=2", "question": "?", "answer": "yes"}])
    env = ask(tmp_path, "rows.jsonl", "scans")
    write_tasks(env, package)
    [copied] = (package / "data" / "images").iterdir()
    assert len(list(copied.iterdir())) == 2
    [row] = (package / "data" / "tasks.jsonl").read_text().splitlines()
    assert "#stack" not in row
    assert open_image(copied).volume.plane == env.images(env.tasks[0])[0].volume.plane == "coronal"


def test_a_change_of_the_data_is_merged_into_that_of_the_config(films, unchecked, tmp_path):
    publish(str(films), tmp_path / "out", settings={"data": {"limit": 1}})
    [row] = (tmp_path / "out" / "viewbox_films" / "data" / "tasks.jsonl").read_text().splitlines()
    assert json.loads(row)["study"] == "s2"


def write_series(tmp_path):
    """The folder of a series with what else may lie there; returns it."""
    ct_folder.write_study(tmp_path, patients=1)
    [series] = [path for path in (tmp_path / "ct").iterdir() if path.is_dir()]
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "diary.txt").write_text("PRIVATE diary")
    (series / "notes.txt").write_text("PRIVATE notes")
    (series / ".env").write_text("PRIVATE HF_TOKEN=hf_" + 34 * "a")
    (series / ".ENV").write_text("PRIVATE")
    (series / ".ssh").mkdir()
    (series / ".ssh" / "id_x").write_text("PRIVATE")
    (series / "sub" / "deep").mkdir(parents=True)
    (series / "sub" / "deep" / ".env").write_text("PRIVATE")
    (series / "link.txt").symlink_to("../../outside/diary.txt")
    (series / "more").symlink_to("../../outside")
    (series / "up.dcm").symlink_to(outside / "diary.txt")
    os.link(outside / "diary.txt", series / "hard.txt")
    os.mkfifo(series / "pipe.dcm")
    return series


@pytest.mark.parametrize("chosen", ["", "#series=1"])
def test_of_the_folder_of_a_series_its_slices_travel_once_and_nothing_else(tmp_path, package, chosen, monkeypatch):
    series = write_series(tmp_path)
    block = write_tasks(ask(tmp_path, "cases.csv", "ct", image={"template": "{{ scan }}" + chosen}), package)
    files = sorted(path for path in package.rglob("*") if not path.is_dir())
    dicom = {path.read_bytes() for path in series.glob("*.dcm") if path.is_file() and not path.is_symlink()}
    [rows] = [path for path in files if path.name == "tasks.jsonl"]
    copied = [path.read_bytes() for path in files if path != rows]
    assert len(copied) == ct_folder.SHAPE[0]
    assert set(copied) == dicom
    assert not any(path.is_symlink() or path.name.startswith(".") for path in files)
    assert not any(b"PRIVATE" in path.read_bytes() for path in files)
    monkeypatch.chdir(package)
    env = make("vqa", data=block)
    assert len(env.tasks) == 2
    assert env.images(env.tasks[1])[0].volume.count_slices() == len(copied)


@pytest.mark.parametrize(("place", "why"), [
    ("pngs", "no DICOM slices"), ("../outside/0.png", "leads out of the task's folder"),
    ("linked/0.png", "leads out of the task's folder"), ("notes.txt", "not an image"),
    ("cut.png", "damaged or cut short"), ("pipe", "not a regular file"),
])  # fmt: skip
def test_an_image_that_leads_out_or_is_none_does_not_travel(films, tmp_path, package, place, why):
    folder, outside = tmp_path / "set", tmp_path / "outside"
    (folder / "pngs").mkdir()
    outside.mkdir()
    for path in (folder / "pngs" / "0.png", folder / "pngs" / "1.png", outside / "0.png"):
        Image.new("L", (40, 30)).save(path)
    (folder / "linked").symlink_to(outside)
    (folder / "cut.png").write_bytes((outside / "0.png").read_bytes()[:40])
    (folder / "notes.txt").write_text("notes")
    os.mkfifo(folder / "pipe")
    rows = [{"q": "What?", "gold": "a", "file": "img/0.png"}, {"q": "What?", "gold": "a", "file": place}]
    write_jsonl(folder / "rows.jsonl", rows)
    data = {"source": str(folder / "rows.jsonl"), "columns": {"image": "file", "question": "q", "finding": "gold"}}
    env = make(f"{tmp_path / 'films.py'}:Films", data=data)
    with pytest.raises(ConfigError, match=rf"rows or images that cannot be shown: 1, such as .*({why})"):
        write_tasks(env, package)


def test_a_link_inside_the_folder_of_images_is_followed_and_the_licenses_of_the_data_come_along(
    films, unchecked, tmp_path
):
    folder = tmp_path / "set"
    (folder / ".git" / "annex").mkdir(parents=True)  # as git-annex lays images out
    (folder / "img" / "2.png").rename(folder / ".git" / "annex" / "MD5E-2.png")
    (folder / "img" / "2.png").symlink_to("../.git/annex/MD5E-2.png")
    (folder / "LICENSE.txt").write_text("CC BY 4.0")
    (folder / "CITATION.cff").write_text("title: films")
    (folder / "license_plates.csv").write_text("x")
    publish(str(films), tmp_path / "out")
    data = tmp_path / "out" / "viewbox_films" / "data"
    assert {path.name for path in data.iterdir()} == {"tasks.jsonl", "images", "LICENSE.txt", "CITATION.cff"}
    assert (data / "LICENSE.txt").read_text() == "CC BY 4.0"
    assert all(path.is_file() and not path.is_symlink() for path in (data / "images").iterdir())
