"""Sources that are more than a picture of 8 bits: a task holds them, and a store gives them back bit for bit."""

import dataclasses
import json
import zlib

import numpy as np
import pytest
from PIL import Image

import viewbox
from tests.support.tables import each
from viewbox import Episode, EpisodeWriter, ImageError, ImageRef, Task
from viewbox.images.files.native import MAGIC, decode_native, encode_native
from viewbox.images.source import Source, build_volume


def make_volume():
    values = np.random.default_rng(0).normal(0, 400, (1, 6, 8, 10)).astype(np.int16)
    affine = np.array([[-0.7, 0, 0, 3], [0, 0.7, 0.1, 4], [0, -0.1, 2.5, 5], [0, 0, 0, 1]])
    return build_volume(values, affine, (-160.0, 240.0), unit="HU", notes=("a note",)).get_middle_slice()


SOURCES = {
    "deep": lambda: Source.of(np.arange(12, dtype=np.uint16).reshape(3, 4)),
    "float with holes": lambda: Source.of(np.array([[1.5, np.nan], [2.5, -0.0]], np.float32)),
    "spacing": lambda: Source.of(np.zeros((3, 4), np.uint8), spacing=(0.5, 0.25)), "turned volume": make_volume,
}  # fmt: skip


def list_values(source):
    for field in dataclasses.fields(source):
        value = getattr(source, field.name)
        if isinstance(value, np.ndarray):
            yield field.name, value.dtype.str, value.shape, value.tobytes()
        elif field.name == "volume" and value is not None:
            yield from list_values(value)
        else:
            yield field.name, repr(value)


@each("make", SOURCES)
def test_a_store_gives_a_source_back_bit_for_bit_and_what_is_only_pixels_as_a_picture(make, tmp_path):
    source = make()
    task = Task(images=(source,), prompt={"question": "?"})
    with EpisodeWriter(tmp_path) as writer:
        writer.append(Episode(task))
    (episode,) = viewbox.load(tmp_path)
    (ref,) = episode.task.images
    assert (ref.mode, ref.hash) == ("native", task.images[0].hash)
    assert list(list_values(ref.load())) == list(list_values(source))
    assert ref.open().size == source.size
    pixels = np.zeros((3, 4, 3), np.uint8)
    assert ImageRef.of(Source.of(pixels)) == ImageRef.of(pixels)


def test_a_task_takes_images_in_any_form_and_opens_them_once(tmp_path):
    picture = Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4))
    picture.save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    forms = (tmp_path / "a.png", str(tmp_path / "a.png"), content, picture, np.asarray(picture), ImageRef.of(picture))
    task = Task("mine", images=(*forms, viewbox.open_image(tmp_path / "a.png")))
    (tmp_path / "a.png").unlink()
    assert len(task.images) == 7
    assert len({ref.hash for ref in task.images}) == 1
    assert Task(images=picture).images == Task(images=[picture]).images  # one alone needs no list
    assert task.images[0].open().tobytes() == picture.tobytes()


def test_a_task_without_an_id_gets_one_of_what_it_asks_and_what_is_no_image_is_refused():
    pixels = np.zeros((2, 2), np.uint8)
    ids = [Task(images=images, prompt={"question": q}).id for images in ((), pixels) for q in ("a", "b")]
    assert len(set(ids)) == 4
    assert ids[0] == Task(prompt={"question": "a"}).id
    for wrong in (3, [None], {"a": 1}, [object()]):
        with pytest.raises(TypeError, match="allowed: a path, the bytes of a file, a Pillow image, an array"):
            Task("mine", images=wrong)


def forge(**changes):
    content = encode_native(SOURCES["turned volume"]())
    start = len(MAGIC) + 4
    length = int.from_bytes(content[len(MAGIC) : start], "little")
    message = json.loads(content[start : start + length]) | changes
    head = json.dumps(message).encode()
    return MAGIC + len(head).to_bytes(4, "little") + head + content[start + length :]


FORGED = [
    lambda: b"x" * 100, lambda: b"", lambda: forge()[:-20], lambda: forge() + b"more",
    lambda: forge(shape=[1, 1, 1])[:-50] + zlib.compress(bytes(10**6)),  # a bomb
    lambda: forge(shape=[2**20, 2**20, 1]), lambda: forge(shape=[-1, -6, 8]), lambda: forge(dtype="object"),
    lambda: forge(fields={"affine": "x", "display": [0, 1]}), lambda: forge(fields={"display": [0, float("nan")]}),
    lambda: forge(fields={"display": [0, 1], "plane": "../x"}), lambda: forge(order=[0, 0, 1], flipped=[]),
    lambda: forge(fields={"display": [0, 1], "index": 10**9}),
]  # fmt: skip


@each("make", FORGED)
def test_a_forged_file_is_an_image_error(make):
    with pytest.raises(ImageError):
        decode_native(make())


def test_a_file_that_was_changed_after_it_was_stored_is_refused(tmp_path):
    with EpisodeWriter(tmp_path) as writer:
        writer.append(Episode(Task("a", images=(SOURCES["deep"](),))))
    (path,) = tmp_path.rglob("*.source")
    path.write_bytes(encode_native(SOURCES["spacing"]()))
    (episode,) = viewbox.load(tmp_path)
    with pytest.raises(ImageError, match="holds other pixels"):
        episode.task.images[0].load()
