"""What can be opened: every kind of file, mode and array, at its native depth."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.support.image_files import COLOR, DEEP, GRAY, npy, same, saved
from tests.support.tables import each
from viewbox.errors import ImageError
from viewbox.images import pixels
from viewbox.images.files import open_image, open_picture
from viewbox.images.ref import ImageRef
from viewbox.images.source import Source

TURNED = Image.Exif()
TURNED[0x0112] = 6
LYING, PALETTE, JPEG = Image.fromarray(GRAY), Image.fromarray(COLOR).convert("P"), saved(COLOR, "JPEG")
LYING.getexif()[0x0112] = 6
DEPTHS = [  # of arrays, and what they become
    *((GRAY.astype(dtype), GRAY.astype(dtype)) for dtype in ("uint8", "uint16", "int16", "float32")),
    (np.array([[True, False]]), np.array([[255, 0]], np.uint8)),
    (np.array([[-5, 4000]], np.int32), np.array([[-5, 4000]], np.int16)),
    (np.array([[0, 60000]], np.int64), np.array([[0, 60000]], np.uint16)),
    (np.array([[-1, 60000]], np.int32), np.array([[-1, 60000]], np.float32)),
    (np.array([[-5, 5]], np.int8), np.array([[-5, 5]], np.int16)),
    (np.array([[0.1, 0.7]]), np.array([[0.1, 0.7]], np.float32)),
]
OPENED = [
    *((saved(COLOR, kind), COLOR) for kind in ("PNG", "TIFF", "BMP")),
    (saved(COLOR, "TIFF", compression="tiff_lzw"), COLOR), (saved(COLOR, "WEBP", lossless=True), COLOR),
    *((saved(GRAY, kind), GRAY) for kind in ("PNG", "TIFF", "BMP")),
    *((saved(DEEP, kind), DEEP) for kind in ("PNG", "TIFF")), (JPEG, np.asarray(Image.open(io.BytesIO(JPEG)))),
    (saved(GRAY, "PNG", exif=TURNED), np.rot90(GRAY, -1)), (LYING, np.rot90(GRAY, -1)),
    (Image.new("1", (2, 2), 1), np.full((2, 2), 255, np.uint8)), (PALETTE, np.asarray(PALETTE.convert("RGB"))),
    (Image.new("CMYK", (1, 1), (0, 255, 255, 0)), np.array([[[255, 0, 0]]], np.uint8)),
    (DEEP.astype(">u2"), DEEP), (npy(np.asfortranarray(DEEP)), DEEP), (GRAY[:, :, None], GRAY),
    *DEPTHS, *((npy(array), right) for array, right in DEPTHS),
]  # fmt: skip
UNKNOWN, NO_NUMBERS = "not an image that can be opened; allowed: PNG, JPEG", "allowed: booleans, integers and floats"
REFUSED = [
    *((one, UNKNOWN) for one in (b"%!PS-Adobe-3.0 EPSF-3.0\n", b"<svg/>", b"PK\x03\x04" + bytes(40), bytes(500))),
    *((np.zeros(shape, np.uint8), "array of shape") for shape in ((0, 5), (5, 0), (2, 3, 2), (6,), (2, 2, 2, 2))),
    *((np.zeros((2, 2), kind), NO_NUMBERS) for kind in (complex, "U1", "datetime64[s]")),
    (npy(np.array([[{"a": 1}]], dtype=object)), NO_NUMBERS),  # which a pickle may hold
    (Image.new("L", (0, 5)), "nothing to show"), (np.full((2, 2), np.nan), "no value is finite"),
    (np.array([[1e9, 1e9 + 1]]), "lost in float32"),
    ("a.npy", r"str is not an image in memory; .*`viewbox\.open_image` opens a path"),
]  # fmt: skip


def read(given):
    return open_image(given) if isinstance(given, bytes) else Source.of(given)


@each("given, right", OPENED)
def test_pixels_stay_as_they_are_stored_and_deep_ones_are_shown_from_the_lowest_to_the_highest(given, right):
    source = read(given)
    assert same(source, right)
    assert source.display == pytest.approx((0, 255) if right.dtype == np.uint8 else (right.min(), right.max()))


@each("given, words", REFUSED)
def test_what_is_no_picture_is_refused_in_words(given, words):
    with pytest.raises(ImageError, match=words):
        read(given)


def test_a_file_is_known_by_its_content_and_opens_at_the_first_frame_with_the_others(tmp_path):
    for kind in ["TIFF", "GIF", "WEBP", "PNG"]:
        frames = [Image.new("RGB", (6, 4), (shade, 0, 0)) for shade in (0, 100, 200)]
        source = open_image(saved(frames[0], kind, save_all=True, append_images=frames[1:]))
        shades = [int(source.volume.get_slice(i).pixels[0, 0, 0]) for i in range(source.volume.count_slices())]
        assert shades == pytest.approx([0, 100, 200], abs=3)
        assert same(source, source.volume.get_slice(0).pixels)
    (tmp_path / "scan.jpg").write_bytes(saved(GRAY, "PNG"))
    assert same(open_image(tmp_path / "scan.jpg"), GRAY)


def test_every_pillow_mode_becomes_gray_or_color_of_a_native_depth():
    color = dict.fromkeys(("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV"), ("uint8", True))
    gray = dict.fromkeys(("1", "L", "LA"), ("uint8", False)) | dict.fromkeys(("I;16", "I;16B"), ("uint16", False))
    for mode, (dtype, colored) in {**color, **gray, "I": ("int16", False), "F": ("float32", False)}.items():
        source = Source.of(Image.new(mode, (3, 2)))
        assert (source.pixels.dtype.name, source.color, source.size) == (dtype, colored, (3, 2))


@each("gray, opacity, shown", [(40, 0, 255), (40, 255, 40), (40, 102, 169), (200, 0, 255), (200, 102, 80)])
def test_transparency_stands_on_white_or_on_black_where_all_that_is_seen_is_light(gray, opacity, shown):
    array = np.array([[[gray, gray, gray, opacity]]], np.uint8)
    one, two = Image.new("RGBA", (1, 1), (gray, gray, gray, opacity)), Image.new("LA", (1, 1), (gray, opacity))
    for picture, scale in ((one, 1), (two, 1), (array, 1), (array / 255, 255)):
        assert np.allclose(Source.of(picture).pixels * scale, shown)


@each("ink", [10, 240])
def test_ink_is_seen_whatever_the_file_calls_transparent(ink):
    drawn = np.full((8, 8), 90, np.uint8)
    drawn[2:4, 2:4] = ink
    palette, colored = Image.fromarray(drawn).convert("P"), np.dstack([drawn] * 3)
    clear = np.dstack([colored, np.where(drawn == 90, 0, 255).astype(np.uint8)])
    ground = int(palette.getpixel((0, 0)))
    for content in [
        saved(drawn, "PNG", transparency=90), saved(palette, "PNG", transparency=ground),
        saved(palette, "GIF", transparency=ground), saved(colored, "PNG", transparency=(90, 90, 90)),
        saved(clear, "PNG"), saved(clear, "WEBP", lossless=True), saved(clear, "TIFF"),
        saved(Image.fromarray(clear).convert("LA"), "PNG"),
    ]:  # fmt: skip
        shown = open_image(content).pixels
        assert (shown[0, 0] == (255 if ink == 10 else 0)).all()
        assert (shown[2, 2] == ink).all()


def test_a_large_transparent_picture_is_laid_as_a_small_one(monkeypatch):
    picture = np.random.default_rng(1).integers(0, 256, (60, 50, 4), dtype=np.uint8)
    whole = Source.of(Image.fromarray(picture)).pixels
    white = Image.new("RGBA", (50, 60), (255, 255, 255, 255))
    white.alpha_composite(Image.fromarray(picture))
    assert np.abs(whole.astype(int) - np.asarray(white)[:, :, :3]).max() <= 1
    monkeypatch.setattr(pixels, "STRIP", 400)
    assert same(Source.of(Image.fromarray(picture)), whole)
    assert same(Source.of(picture), whole)


def test_nan_and_infinities_are_filled_with_the_nearest_value_and_arrays_stay_as_they_were():
    source = Source.of(np.array([[np.nan, 2, 5, np.inf, -np.inf]]))
    assert source.measured.tolist() == [[False, True, True, False, False]]
    assert source.filled.tolist() == [[2, 2, 5, 5, 5]]
    assert source.limits == source.display == (2, 5)
    given = np.array([[np.nan, 1.0]], np.float32)
    Source.of(given)
    given[0, 1] = 7
    assert np.isnan(given[0, 0])


def test_a_picture_keeps_its_mode_and_a_reference_to_a_deep_file_opens_as_it_is_shown(tmp_path):
    assert open_picture(saved(Image.new("LA", (2, 2)), "PNG")).mode == "LA"
    np.save(tmp_path / "a.npy", np.array([[-1000, 0, 1000]], np.int16))
    assert list(ImageRef("0", 3, 1, "L", str(tmp_path / "a.npy")).open().getdata()) == [0, 128, 255]
