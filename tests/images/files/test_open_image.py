"""What can be opened: every kind of file, mode and array, at its native depth."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.support.image_files import COLOR, DEEP, GRAY, npy, same, saved
from viewbox.errors import ImageError
from viewbox.images import pixels
from viewbox.images.files import open_image, open_picture
from viewbox.images.ref import ImageRef
from viewbox.images.source import Source
from viewbox.images.view import View

# ---- files


def test_a_lossless_file_opens_with_its_pixels():
    for kind, options in [
        ("PNG", {}), ("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"}), ("BMP", {}), ("WEBP", {"lossless": True}),
    ]:  # fmt: skip
        assert same(open_image(saved(COLOR, kind, **options)), COLOR)


def test_a_gray_file_stays_gray_and_is_shown_as_it_is():
    for kind in ["PNG", "TIFF", "BMP"]:
        source = open_image(saved(GRAY, kind))
        assert same(source, GRAY)
        assert source.display == (0, 255)


def test_a_jpeg_opens_as_pillow_decodes_it():
    content = saved(COLOR, "JPEG")
    assert same(open_image(content), np.asarray(Image.open(io.BytesIO(content))))


def test_16_bits_stay_and_are_shown_from_the_lowest_to_the_highest():
    for kind in ["PNG", "TIFF"]:
        source = open_image(saved(DEEP, kind))
        assert same(source, DEEP)
        assert source.display == (DEEP.min(), DEEP.max())


def test_an_exif_rotation_is_applied():
    exif = Image.Exif()
    exif[0x0112] = 6
    assert same(open_image(saved(GRAY, "PNG", exif=exif)), np.rot90(GRAY, -1))


def test_pages_and_animations_open_at_the_first_frame_and_keep_the_others():
    for kind in ["TIFF", "GIF", "WEBP", "PNG"]:
        frames = [Image.new("RGB", (6, 4), (shade, 0, 0)) for shade in (0, 100, 200)]
        source = open_image(saved(frames[0], kind, save_all=True, append_images=frames[1:]))
        assert source.volume.count_slices() == 3
        assert [int(source.volume.get_slice(i).pixels[0, 0, 0]) for i in range(3)] == pytest.approx(
            [0, 100, 200], abs=3
        )
        assert same(source, source.volume.get_slice(0).pixels)


def test_a_file_is_known_by_its_content_not_by_its_name(tmp_path):
    (tmp_path / "scan.jpg").write_bytes(saved(GRAY, "PNG"))
    assert same(open_image(tmp_path / "scan.jpg"), GRAY)


def test_other_content_is_refused_with_what_is_allowed():
    for content in [b"%!PS-Adobe-3.0 EPSF-3.0\n", b"<svg/>", b"PK\x03\x04" + bytes(40), bytes(500)]:
        with pytest.raises(ImageError, match="not an image that can be opened; allowed: PNG, JPEG"):
            open_image(content)


# ---- modes


def test_every_pillow_mode_becomes_gray_or_color_of_a_native_depth():
    for mode, dtype, color in [
        ("1", "uint8", False), ("L", "uint8", False), ("LA", "uint8", False), ("P", "uint8", True),
        ("PA", "uint8", True), ("RGB", "uint8", True), ("RGBA", "uint8", True), ("RGBX", "uint8", True),
        ("CMYK", "uint8", True), ("YCbCr", "uint8", True), ("HSV", "uint8", True), ("I;16", "uint16", False),
        ("I;16B", "uint16", False), ("I", "int16", False), ("F", "float32", False),
    ]:  # fmt: skip
        source = Source.of(Image.new(mode, (3, 2)))
        assert (source.pixels.dtype.name, source.color, source.size) == (dtype, color, (3, 2))


def test_black_and_white_are_0_and_255():
    assert Source.of(Image.new("1", (2, 2), 1)).limits == (255, 255)


def test_a_palette_is_looked_up():
    palette = Image.fromarray(COLOR).convert("P")
    assert same(Source.of(palette), np.asarray(palette.convert("RGB")))


def test_cmyk_becomes_the_color_it_stands_for():
    assert Source.of(Image.new("CMYK", (1, 1), (0, 255, 255, 0))).pixels.tolist() == [[[255, 0, 0]]]


def test_big_endian_values_are_read_right():
    assert same(Source.of(DEEP.astype(">u2")), DEEP)


def test_transparency_stands_on_white_or_on_black_where_all_that_is_seen_is_light():
    for gray, opacity, shown in [(40, 0, 255), (40, 255, 40), (40, 102, 169), (200, 0, 255), (200, 102, 80)]:
        for mode in ["RGBA", "LA", "array", "floats"]:
            color = (gray, gray, gray, opacity) if mode == "RGBA" else (gray, opacity)
            array = np.array([[[gray, gray, gray, opacity]]], np.uint8)
            picture = array if mode == "array" else array / 255 if mode == "floats" else Image.new(mode, (1, 1), color)
            scale = 255 if mode == "floats" else 1
            assert np.allclose(Source.of(picture).pixels * scale, shown)


def test_ink_is_seen_whatever_the_file_calls_transparent():
    for ink in [10, 240]:
        drawn = np.full((8, 8), 90, np.uint8)
        drawn[2:4, 2:4] = ink
        palette = Image.fromarray(drawn).convert("P")
        clear = np.dstack([drawn] * 3 + [np.where(drawn == 90, 0, 255).astype(np.uint8)])
        for content in [
            saved(drawn, "PNG", transparency=90),
            saved(palette, "PNG", transparency=int(palette.getpixel((0, 0)))),
            saved(palette, "GIF", transparency=int(palette.getpixel((0, 0)))),
            saved(np.dstack([drawn] * 3), "PNG", transparency=(90, 90, 90)),
            saved(clear, "PNG"),
            saved(clear, "WEBP", lossless=True),
            saved(clear, "TIFF"),
            saved(Image.fromarray(clear).convert("LA"), "PNG"),
        ]:
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


def test_a_pillow_image_in_memory_is_turned_by_its_exif():
    lying = Image.fromarray(GRAY)
    lying.getexif()[0x0112] = 6
    assert same(Source.of(lying), np.rot90(GRAY, -1))


def test_an_empty_image_is_refused():
    with pytest.raises(ImageError, match="nothing to show"):
        View.of(Image.new("L", (0, 5)))


# ---- arrays


def test_a_native_depth_is_kept():
    for dtype in ["uint8", "uint16", "int16", "float32"]:
        assert same(Source.of(GRAY.astype(dtype)), GRAY.astype(dtype))
        assert same(open_image(npy(GRAY.astype(dtype))), GRAY.astype(dtype))


def test_other_depths_become_the_smallest_that_holds_them():
    for given, becomes in [
        (np.array([[True, False]]), np.array([[255, 0]], np.uint8)),
        (np.array([[-5, 4000]], np.int32), np.array([[-5, 4000]], np.int16)),
        (np.array([[0, 60000]], np.int64), np.array([[0, 60000]], np.uint16)),
        (np.array([[-1, 60000]], np.int32), np.array([[-1, 60000]], np.float32)),
        (np.array([[-5, 5]], np.int8), np.array([[-5, 5]], np.int16)),
        (np.array([[0.1, 0.7]]), np.array([[0.1, 0.7]], np.float32)),
    ]:
        assert same(Source.of(given), becomes)
        assert same(open_image(npy(given)), becomes)


def test_a_third_axis_of_one_is_gray():
    assert same(Source.of(GRAY[:, :, None]), GRAY)


def test_an_array_in_fortran_order_is_read_right():
    assert same(open_image(npy(np.asfortranarray(DEEP))), DEEP)


def test_an_array_that_is_no_picture_is_refused_with_its_shape():
    for shape in [(0, 5), (5, 0), (2, 3, 2), (6,), (2, 2, 2, 2)]:
        with pytest.raises(ImageError, match="array of shape"):
            Source.of(np.zeros(shape, np.uint8))


def test_an_array_of_no_numbers_is_refused():
    for array in [np.zeros((2, 2), complex), np.array([["a"]]), np.zeros((2, 2), "datetime64[s]")]:
        with pytest.raises(ImageError, match="allowed: booleans, integers and floats"):
            Source.of(array)


def test_values_that_float32_cannot_tell_apart_are_refused():
    with pytest.raises(ImageError, match="lost in float32"):
        Source.of(np.array([[1e9, 1e9 + 1]]))


def test_nan_and_infinities_are_no_measurement_and_are_filled_with_the_nearest_one():
    source = Source.of(np.array([[np.nan, 2, 5, np.inf, -np.inf]]))
    assert source.measured.tolist() == [[False, True, True, False, False]]
    assert source.filled.tolist() == [[2, 2, 5, 5, 5]]
    assert source.limits == source.display == (2, 5)
    assert source.display == (2, 5)


def test_an_array_without_finite_values_is_refused():
    with pytest.raises(ImageError, match="no value is finite"):
        Source.of(np.full((2, 2), np.nan))


def test_a_given_array_stays_writeable_and_as_it_was():
    given = np.array([[np.nan, 1.0]], np.float32)
    Source.of(given)
    given[0, 1] = 7
    assert np.isnan(given[0, 0])


def test_pickled_objects_are_never_loaded():
    with pytest.raises(ImageError, match="allowed: booleans, integers and floats"):
        open_image(npy(np.array([[{"a": 1}]], dtype=object)))


# ---- references


def test_a_picture_keeps_its_mode():
    assert open_picture(saved(Image.new("LA", (2, 2)), "PNG")).mode == "LA"


def test_a_reference_to_a_deep_file_opens_as_it_is_shown(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[-1000, 0, 1000]], np.int16))
    assert list(ImageRef("0", 3, 1, "L", str(tmp_path / "a.npy")).open().getdata()) == [0, 128, 255]


def test_a_source_of_a_path_is_refused_with_the_way_to_open_it(tmp_path):
    with pytest.raises(ImageError, match=r"str is not an image in memory; .*`viewbox\.open_image` opens a path"):
        Source.of(str(tmp_path / "a.npy"))
