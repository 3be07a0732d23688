"""Small files that hold much: logs of inspect-ai and stored pictures, each opened in a process of its own."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace
from PIL import Image

import viewbox
from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.images.ref import ImageRef
from viewbox.rollouts.exchange.importing import import_file
from viewbox.viewer.pictures import encode_picture

CHILD = """
import json, os, resource, sys
from pathlib import Path
from PIL import Image
from viewbox.errors import ConfigError
from viewbox.images.ref import ImageRef
from viewbox.rollouts.exchange.importing import import_file
from viewbox.viewer.pictures import encode_picture

def open_file(kind, path, about):
    try:
        if kind == "picture":
            return len(encode_picture(ImageRef(*about, uri=str(path), folder=str(path.parent))))
        import_file(path, "inspect", path.with_name("out"))
    except ConfigError as error:
        return str(error)

def measure():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

small = Path("small.json")
small.write_text('{"samples": [{"messages": [{"role": "user", "content": "?"}]}]}')
import_file(small, "inspect", Path("warm"))
encode_picture(ImageRef.of(Image.new("I;16", (9, 9))))
for line in sys.stdin:
    if os.fork() == 0:
        kind, path, about = json.loads(line)
        before, said = measure(), open_file(kind, Path(path), about)
        print(json.dumps([measure() - before, said]), flush=True)
        os._exit(0)
    if os.wait()[1]:
        print("a process failed", flush=True)
"""
SIZE = 2**25  # bytes
GOOD = json.dumps({"messages": [{"role": "user", "content": 'a "quoted", {"samples": [} word'}], "scores": {}})


@pytest.fixture(scope="module")
def open_apart(tmp_path_factory):
    """MiB that opening a file takes at most, and what is said: each in a fork of a process that has imported all."""
    place = {"PYTHONPATH": str(Path(viewbox.__file__).parents[1])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    folder = tmp_path_factory.mktemp("apart")
    with subprocess.Popen([sys.executable, "-c", CHILD], env=place, cwd=folder, **pipes) as child:

        def ask(kind, path, about=()):
            print(json.dumps([kind, str(path), about]), file=child.stdin, flush=True)
            return json.loads(child.stdout.readline())

        yield ask
        child.stdin.close()


LOGS = {  # the content of a sample, and why it is not read
    "spaces": (b" " * 40 * SIZE, "unpacks to more than"),
    "numbers": (b"[" + b"1," * (SIZE // 4) + b"1]", "commas; allowed"),
    "decimals": (b"[" + b"0.25," * (SIZE // 8) + b"1]", "not as inspect writes it"),
    "lists": (b"[" + b"[]," * (SIZE // 8) + b"1]", "lists and objects"),
    "deep": (b"[" * SIZE, "lists and objects"),
    "a text without an end": (b'{"a": "' + b'\\"' * (SIZE // 4), "cannot be read"),
}
# a JSON log is read value by value, for seconds: one of them shows by day what holds
AS_JSON = [
    pytest.param(name, False, marks=[] if name == "a text without an end" else pytest.mark.nightly)
    for name in LOGS
    if name != "spaces"
]


@pytest.mark.parametrize(("name", "packed"), [*((name, True) for name in LOGS), *AS_JSON])
def test_a_log_takes_a_small_part_of_what_it_may_hold(open_apart, tmp_path, name, packed):
    sample, why = LOGS[name]
    path = tmp_path / "log.eval"
    if packed:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr("samples/a.json", sample)
    else:
        path.write_bytes(b'{"samples": [' + sample + b"]}")
    taken, said = open_apart("log", path)
    assert why in said
    assert taken < 350


@each("log, kept", [
    ('{"samples": [%s]}', 1), ('{"version": 2, "eval": {"samples": [1]}, "samples" : [ %s ,\n%s ], "a": {}}', 2),
    ('{"a": "samples", "b": [1], "samples": [%s', 1), ('{"samples": [%s, {"messages": [', 1),
    ('{"x": ["\\\\", "\\""], "samples": [%s]}', 1), ('{"samples": [%s, NaN]}', 1),
])  # fmt: skip
def test_samples_of_a_log_are_found_wherever_they_stand(tmp_path, log, kept):
    (tmp_path / "log.json").write_text(log.replace("%s", GOOD))
    assert import_file(tmp_path / "log.json", "inspect", tmp_path / "out").kept == kept


@each("log", ["", "{", "[]", '{"samples": []}', '{"samples": {}}', '{"eval": {"samples": [{}]}}', "x"])
def test_what_is_no_log_is_said(tmp_path, log):
    (tmp_path / "log.json").write_text(log)
    with pytest.raises(ConfigError, match="has no samples in a list"):
        import_file(tmp_path / "log.json", "inspect", tmp_path / "out")


PICTURES = {"I;16": 2, "1": 1, "LA": 2, "F": 4, "P": 1}  # bytes of a pixel


@each("mode, depth", PICTURES.items())
def test_a_picture_on_a_page_takes_a_few_times_its_pixels(open_apart, tmp_path, mode, depth):
    side = int((SIZE / depth) ** 0.5)
    image = Image.new("L" if mode == "P" else mode, (side, side))
    image = image.convert("P") if mode == "P" else image
    path = tmp_path / ("a.tif" if mode == "F" else "a.png")
    image.save(path, compression="tiff_deflate") if mode == "F" else image.save(path)
    ref = ImageRef.of(image)
    taken, written = open_apart("picture", path, (ref.hash, ref.width, ref.height, ref.mode))
    assert path.stat().st_size < 200_000
    assert written > 0
    assert taken < (7 if mode == "P" else 5) * SIZE / 2**20  # a palette becomes four bytes


def test_the_pictures_of_an_episode_are_not_kept_while_its_page_is_written(tmp_path):
    image = Image.new("L", (64, 64))
    image.save(tmp_path / "a.png")
    ref = replace(ImageRef.of(image), pixels=None, uri=str(tmp_path / "a.png"), folder=str(tmp_path))
    assert encode_picture(ref)
    assert ref.pixels is None
