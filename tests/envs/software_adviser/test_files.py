"""Requests about a file: what is shown of it is what its header says, when such a file is made and opened."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tests.support import odd_images
from tests.support.replies import play, play_gold
from tests.support.tables import each
from viewbox import make
from viewbox.core.messages import write_call
from viewbox.envs.software_adviser.files import CODES, OPENED

SETTINGS = {"filed": 1.0, "ambiguous": 0.0, "unanswerable": 0.0, "follow_ups": 0.0}
ENVS = {split: make("software_adviser", split=split, **SETTINGS) for split in ("train", "test")}
TASKS = {split: env.tasks[:100] for split, env in ENVS.items()}
REQUESTS = [env.get_request(task) for split, env in ENVS.items() for task in TASKS[split]]
KINDS = sorted({(request.format, request.dimensions) for request in REQUESTS})


def write_file(folder, known):
    """Write an empty file with a header of these facts, and return its path."""
    format, series = known["format"], known["dimensions"].endswith("+t")
    *size, frames = [*map(int, re.findall(r"\d+", known["size"])), *([] if series else [1])]
    sides = [float(side) for side in known.get("voxel size", "").removesuffix(" mm").split(" x ") if side]
    voxels = np.zeros(size[::-1], np.uint8)
    if format == "DICOM":
        code = next(code for code, kind in CODES.items() if kind == known["modality"])
        if len(size) == 3:
            return odd_images.series(folder, voxels, step=(0, 0, sides[2]), spacing=sides[1::-1], Modality=code)
        pages = np.stack([voxels] * frames) if series else voxels
        return odd_images.dicom(folder / "a.dcm", pages, frames=series, Modality=code)
    if format == "NIfTI":
        return odd_images.nifti(folder / "a.nii", voxels.T, np.diag([-sides[0], -sides[1], sides[2], 1]))
    if format == "NRRD":
        rows = " ".join(str(tuple(row)).replace(" ", "") for row in np.diag(sides).tolist())
        return odd_images.nrrd(folder / "a.nrrd", voxels, space_directions=rows)
    if format == "MetaImage":
        return odd_images.meta_image(folder / "a.mha", voxels, ElementSpacing=" ".join(map(str, sides)))
    path = folder / f"a.{format.lower()}"
    pages = [Image.new("L", tuple(size)) for _ in range(frames)]
    options = {"save_all": True, "append_images": pages[1:], "compression": "tiff_deflate"}
    pages[0].save(path, format, **(options if format == "TIFF" else {}))
    return path


def test_every_format_that_is_opened_is_drawn():
    assert {format for format, _ in KINDS} == set(OPENED)
    assert all(dimensions in OPENED[format] for format, dimensions in KINDS)


@each("kind", KINDS)
def test_the_header_of_a_request_is_that_of_a_file_that_is_made_and_opened(kind, tmp_path):
    drawn = [request.metadata for request in REQUESTS if (request.format, request.dimensions) == kind]
    known = min(drawn, key=lambda file: np.prod([int(side) for side in re.findall(r"\d+", file["size"])]))
    task = ENVS["train"].make_task("?", str(write_file(tmp_path, known)))
    assert dict(task.prompt["file"]) == dict(known)


def test_words_speak_of_the_file_and_say_none_of_what_its_header_tells():
    assert sum(request.filed for request in REQUESTS) > 0.95 * len(REQUESTS)
    for request in (request for request in REQUESTS if request.filed):
        assert "file" in request.words
        names = "|".join(map(re.escape, ("DICOM networking", *request.exclude)))  # "3D Slicer"
        said = re.split(r"[ .;,:]+", re.sub(names, "", request.words))
        assert not {request.format, request.dimensions, request.modality, request.metadata["size"]}.intersection(said)
        assert ("modality" in request.metadata) == (request.format == "DICOM") == (not request.pictured)
    for split, env in ENVS.items():
        for task in TASKS[split][:10]:
            assert all(text in env.user_message(task) for text in env.get_request(task).metadata.values())


@pytest.mark.slow
def test_other_requests_of_a_seed_stay_as_they_are_and_none_is_about_a_file_if_its_share_is_0():
    without, some = make("software_adviser", filed=0.0), make("software_adviser", filed=0.3)
    pairs = [(without.make_request(seed), some.make_request(seed)) for seed in range(60)]
    kinds = {(before.filed, after.filed, before == after) for before, after in pairs}
    assert kinds == {(False, False, True), (False, True, False)}


@pytest.mark.parametrize("split", ["train", "test"])
def test_who_reads_the_header_earns_all_and_who_takes_another_for_it_less(split):
    env, tasks = ENVS[split], TASKS[split][:40]

    def answer(task, other):
        """Play the best answer to a task as if its file had the header of another."""
        request, header = env.get_request(task), env.get_request(other)
        facts = {name: getattr(header, name) for name in ("modality", "dimensions", "format")}
        rated = env._generator.rate(replace(request, **facts))
        names = sorted(rated, key=lambda name: (-rated[name], name))[:3]
        choices = [{"name": name, "accuracy": rated[name]} for name in names]
        searches = [write_call("search_tools", {"query": " ".join(names)}), json.dumps({"choices": choices})]
        return play(env, task, *searches).scores.total

    assert all(play_gold(env, task).scores.total == pytest.approx(1.0) for task in tasks)
    right = [answer(task, task) for task in tasks]
    wrong = [answer(task, other) for task, other in zip(tasks, [*tasks[7:], *tasks[:7]], strict=True)]
    assert np.mean(right) > 0.75
    assert np.mean(wrong) < 0.6 * np.mean(right)
