"""Own requests over every kind of image: asked, stored, viewed, exported and read back bit for bit."""

import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image
from pydicom.data import get_testdata_file
from typer.testing import CliRunner

import viewbox
from tests.support import ct_folder
from tests.support.servers import make_completion, serve
from viewbox.cli.app import app
from viewbox.errors import BadRow

ANSWERS = {
    "vqa": '{"answer": "yes"}',
    "chest_xray": '{"answer": "yes"}',
    "software_adviser": '{"choices": [{"name": "lungmask", "accuracy": 90, "why": "it segments lungs"}]}',
}
ASKS = {
    "chest_xray": '{"ask": "Standing?"}',
    "software_adviser": '{"conversation": {"question": "Lobes, too?", "context": "Some tools split them."}}',
}
# The images, and the environments that are asked about them.
ROWS = [
    ("film.png", ("vqa", "chest_xray", "software_adviser")),
    ("film.jpg", ("vqa", "chest_xray")),
    ("deep.png", ("vqa", "chest_xray", "software_adviser")),
    ("film.tif", ("vqa", "software_adviser")),
    ("slice.dcm", ("vqa", "chest_xray", "software_adviser")),
    ("series", ("vqa", "software_adviser")),
    ("ct.nii.gz", ("vqa", "software_adviser")),
    ("two", ("vqa", "chest_xray")),
    ("a picture", ("vqa", "chest_xray")),
    ("an array", ("vqa", "software_adviser")),
    ("none", ("vqa", "software_adviser")),
]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    gray = np.random.default_rng(0).integers(0, 255, (60, 70)).astype(np.uint8)
    deep = np.random.default_rng(1).integers(0, 4000, (60, 70)).astype(np.uint16)
    for name in ("film.png", "film.jpg", "film.tif"):
        Image.fromarray(gray).save(folder / name)
    Image.fromarray(deep).save(folder / "deep.png")
    shutil.copy(get_testdata_file("CT_small.dcm"), folder / "slice.dcm")
    voxels = ct_folder.draw_abdomen(1, lesion=True, stone=False)
    ct_folder.write_dicom(folder / "series", voxels)
    ct_folder.write_nifti(folder / "ct.nii.gz", voxels)
    files = {path.name: str(path) for path in folder.iterdir()}
    memory = {"a picture": Image.fromarray(gray), "an array": deep, "none": ()}
    return files | memory | {"two": [files["film.png"], files["deep.png"]]}


def answer(env):
    """Return a server that looks once, asks back twice if the environment knows questions, and answers."""
    said = [*[ASKS[env]] * 2, ANSWERS[env]] if env in ASKS else [ANSWERS[env]]

    def reply(body, number):
        place = sum(message["role"] == "assistant" for message in body["messages"])
        looks = any(tool["function"]["name"] == "zoom" for tool in body.get("tools", ()))
        if looks and place == 0:
            return make_completion("", ("c1", "zoom", '{"factor": 2}'))
        return make_completion(said[min(place - looks, len(said) - 1)])

    return reply


@pytest.mark.parametrize(("name", "env"), [(name, env) for name, envs in ROWS for env in envs])
def test_an_own_request_is_answered_stored_viewed_exported_and_read_back(name, env, images, tmp_path):
    given, asked = images[name], []
    with serve(answer(env)) as server:
        model = viewbox.connect(server.url, model="m")
        came = viewbox.ask(
            env, given, "Is there a nodule?", model, lambda said: (asked.append(said), "yes")[1], out=tmp_path / "run"
        )
    assert (came.question, came.episode.end_reason, len(asked)) == (None, "answered", 2 * (env in ASKS))
    assert came.episode.scores is None
    (stored,) = viewbox.load(tmp_path / "run")
    assert _write(stored) == _write(came.episode)
    for ref, own in zip(stored.task.images, viewbox.Task(images=given).images, strict=True):
        assert np.array_equal(ref.load().pixels, own.load().pixels)
        assert repr(ref.load()) == repr(own.load())
    for command in (("export", "run", "--to", "openai", "--out", "o.jsonl"), ("view", "run", "--out", "page.html")):
        words = [str(tmp_path / word) if word in ("run", "o.jsonl", "page.html") else word for word in command]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "o.jsonl").read_text().splitlines()[0])
    assert (tmp_path / "page.html").stat().st_size > 1000


def _write(episode):
    return re.sub(r'"uri":("[^"]*"|null)', '"uri":0', episode.to_json())


def test_the_adviser_plays_a_table_of_requests_with_their_files(images, tmp_path):
    table = tmp_path / "requests.csv"
    table.write_text(f"words,file\nsegment the lungs,{images['ct.nii.gz']}\nread this aloud,\n")
    env = viewbox.make("software_adviser", requests=str(table))
    assert [task.prompt["words"] for task in env.tasks] == ["segment the lungs", "read this aloud"]
    assert [dict(task.prompt["file"]) for task in env.tasks] == [
        {"format": "NIfTI", "dimensions": "3D", "size": "64 x 64 x 10 pixels", "voxel size": "5 x 5 x 5 mm"},
        {},
    ]
    episode = env.play(env.tasks[0], viewbox.ScriptedPolicy([ANSWERS["software_adviser"]]))
    assert (episode.end_reason, episode.scores.total) == ("answered", None)
    table.write_text("words,file\n,ct.nii.gz\n")
    with pytest.raises(BadRow, match=r"requests\.csv: line 2: column 'words' is null"):
        _ = viewbox.make("software_adviser", requests=str(table)).tasks
