"""Every crafted file of every format is an image or an error in words, within its limits; so is every damaged one."""

from functools import cache

import pytest

from tests.attacks.files import makers
from tests.fuzz import images as fuzz
from viewbox.images import limits
from viewbox.images.files import pool

SLOW = {  # more than a second of work, which the limit on processor time ends
    "DICOM: JPEG 2000 box of 0 over two fragments",
    "DICOM: frame groups by the thousand",
    "DICOM: unknown sequence of thousands",
}
FINE = {  # crafted files that are images after all
    *("PNG: no end", "PNG: header grows later", "PNG: texts by the thousand", "JPEG: comments by the thousand"),
    *("npy: much behind", "TIFF: next directory is itself"),
}


@pytest.fixture
def short_limit(monkeypatch):
    monkeypatch.setattr(limits, "CPU_SECONDS", 1.0)
    monkeypatch.setattr(limits, "WAIT", 60)  # on a busy machine, a second of the processor may take many


@cache
def check_all(kind):
    """What is said of each crafted file of a format; nothing of those that are images."""
    return {f"{kind}: {name}": fuzz.check_file(content) or "" for name, content in makers.MAKERS[kind]()}


@pytest.mark.parametrize("kind", makers.MAKERS)
def test_every_crafted_file_is_an_image_or_an_error_in_words(kind, short_limit):
    found = check_all(kind)
    assert not {name for name, said in found.items() if "crashed" in said or "no answer" in said}
    assert {name for name, said in found.items() if "processor time" in said} <= SLOW
    assert not {name for name, said in found.items() if said and not said.startswith("image (")}
    assert {name for name in FINE & found.keys() if found[name]} == set()


def test_a_damaged_file_is_an_image_or_an_error_in_words(short_limit):
    for seed in range(100):  # `make fuzz` makes many more
        assert "crashed" not in (fuzz.check_file(fuzz.make_file(seed)) or ""), seed


def test_the_reason_is_named(short_limit):
    for name, said in [
        ("JPEG 2000 box of 0", "a JPEG 2000 box of 0 bytes"),
        ("JPEG 2000 second box of 0", "a JPEG 2000 box of 0 bytes"),
        ("JPEG 2000 box of 0 in the second frame", "a JPEG 2000 box of 0 bytes"),
        ("JPEG 2000 box of 0 over two fragments", "more than 1 s of processor time"),
        ("deflated zeros", "first element is of group 0"),
        ("deflated zeros after the pixels", "inflates to more than the 8.0 MiB that its header and pixels need"),
        ("deflated padding after the pixels", "inflates to more than the 8.0 MiB"),
        ("deflated pixels that are too many", "inflates to more than the 8.0 MiB"),
        ("tiny elements by the million", "more than 20000 DICOM elements"),
        ("tiny elements after the pixels", "more than 20000 DICOM elements"),
        ("-1 frames", "nothing to show"),
    ]:
        assert said in check_all("DICOM")[f"DICOM: {name}"]


def test_files_that_are_refused_leave_the_worker_as_it_is(short_limit):
    fuzz.check_file(makers.raw_dicom())
    (before,) = {worker.process.pid for worker in pool._pool._idle[-1:]}
    for content in (makers.png(40_000, 40_000), makers.npy("[" * 4000), b"nothing", makers.raw_dicom(frames=-1)):
        assert fuzz.check_file(content)
    assert pool._pool._idle[-1].process.pid == before
