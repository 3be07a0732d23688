"""TIFF: every type, channel and page as the file declares it; right values are arrays written by tifffile or Pillow."""

import io
import struct
from operator import attrgetter

import cv2
import numpy as np
import pytest
import tifffile
from PIL import Image

from tests.support.image_files import COLOR, DEEP, GRAY, RANDOM, damage, open_damaged, same, saved
from viewbox.errors import ImageError
from viewbox.images.files import open_image, tiff


def written(*pages, bigtiff=False, byteorder=None, imagej=False, **options):
    """The bytes of a file that tifffile writes, an array or (array, options) a page."""
    file = io.BytesIO()
    with tifffile.TiffWriter(file, bigtiff=bigtiff, byteorder=byteorder, imagej=imagej) as tiff:
        for page in pages:
            array, own = page if isinstance(page, tuple) else (page, {})
            given = {} if imagej else {"contiguous": False}
            tiff.write(array, **{**given, "photometric": "minisblack", **options, **own})
    return file.getvalue()


def find_entry(content, tag):
    return tifffile.TiffFile(io.BytesIO(content)).pages[0].tags[tag]


def refuse(content, words):
    with pytest.raises(ImageError, match=words):
        open_image(bytes(content))


def test_every_type_and_16_bits_of_color_keep_their_values_in_any_layout():
    values = np.arange(64).reshape(8, 8)
    for dtype, native in [
        ("int8", "int16"), ("uint8", "uint8"), ("int16", "int16"), ("uint16", "uint16"), ("int32", "int16"),
        ("uint32", "int16"), ("int64", "int16"), ("uint64", "int16"), ("float16", "float32"),
        ("float32", "float32"), ("float64", "float32"),
    ]:  # fmt: skip
        array = (values - (20 if dtype[0] != "u" else 0)).astype(dtype)
        for options in [{}, {"byteorder": ">"}, {"bigtiff": True}, {"compression": "zlib"}, {"rowsperstrip": 3}]:
            assert same(open_image(written(array, **options)), array.astype(native))
    array = RANDOM.integers(0, 65536, (40, 50, 3), dtype=np.uint16)
    for options in [{}, {"tile": (16, 32)}, {"compression": "zlib"}, {"predictor": 2, "compression": "zlib"}]:
        assert same(open_image(written(array, photometric="rgb", **options)), array)
    planes = np.ascontiguousarray(np.moveaxis(array, 2, 0))
    assert same(open_image(written(planes, photometric="rgb", planarconfig="separate")), array)


def test_every_compression_of_plain_bytes_keeps_every_type():
    for array in [GRAY, DEEP, COLOR, DEEP.astype(np.float64) / 7, DEEP.astype(np.int32) - 40000]:
        for predictor in [1, 2] if array.dtype != np.float64 else [1]:
            plain = written(array, photometric="rgb" if array.ndim == 3 else "minisblack", rowsperstrip=12)
            page = tifffile.TiffFile(io.BytesIO(plain)).pages[0]
            stored = np.diff(array, axis=1, prepend=0).astype(array.dtype) if predictor == 2 else array
            for compression in ["tiff_lzw", "packbits", "tiff_adobe_deflate", "zstd", "lzma"]:
                if (compression, predictor) == ("packbits", 2):  # libtiff knows of no predictor there
                    continue
                strip = Image.frombytes("L", (stored.nbytes, 1), stored.tobytes())
                squeezed = tifffile.TiffFile(io.BytesIO(saved(strip, "TIFF", compression=compression))).pages[0]
                whole = bytearray(plain + saved(strip, "TIFF", compression=compression))
                number, place = int(squeezed.compression), len(plain) + squeezed.dataoffsets[0]
                changed = {259: number, 273: place, 279: squeezed.databytecounts[0]}
                for tag, value in changed.items():
                    entry = page.tags[tag]
                    struct.pack_into("<H" if entry.dtype == 3 else "<I", whole, entry.valueoffset, value)
                if predictor == 2:
                    entry = page.tags[296]  # ResolutionUnit gives its place to Predictor
                    struct.pack_into("<HHIHH", whole, entry.offset, 317, 3, 1, 2, 0)
                right = np.float32(array) if array.dtype.kind == "f" else open_image(plain).pixels
                assert same(open_image(bytes(whole)), right)


def test_values_stay_where_white_is_zero_and_the_display_is_turned():
    for array in [DEEP, DEEP.astype(np.float32) / 3, GRAY]:
        source = open_image(written(array, photometric="miniswhite"))
        assert np.array_equal(source.pixels, array)
        assert source.display[0] > source.display[1]
        assert source.render()[array == array.min()].min() == 255 - (array.min() if array.dtype == np.uint8 else 0)
    fax = Image.fromarray(GRAY > 99)
    source = open_image(saved(fax, "TIFF", compression="group4", tiffinfo={262: 0}))
    assert np.array_equal(source.render(), np.asarray(fax) * 255)


def test_pages_of_another_size_or_type_are_named_and_a_preview_is_no_page():
    other, deep = np.zeros((5, 9), np.uint8), GRAY.astype(np.uint16)
    source = open_image(written(GRAY, other, 255 - GRAY, deep))
    assert [source.volume.get_slice(number).pixels[0, 0] for number in range(2)] == [GRAY[0, 0], 255 - GRAY[0, 0]]
    assert source.volume.count_slices() == 2
    left = "left out, because of another size or type: page 2 (9x5), page 4 (17x12)"
    assert source.notes == source.volume.notes == (left,)
    preview = (np.zeros((4, 4), np.uint8), {"subfiletype": 1})
    for pages in [(preview, GRAY), (GRAY, preview)]:
        source = open_image(written(*pages))
        assert same(source, GRAY)
        assert source.notes == ()
    assert open_image(written(preview)).size == (4, 4)


def test_a_stack_in_one_page_has_all_its_frames():
    stack = RANDOM.integers(0, 65536, (5, 12, 17), dtype=np.uint16)
    files = [written(stack, imagej=True), written(stack, metadata=None), written(stack, volumetric=True)]
    files += [written(stack, imagej=imagej, truncate=True) for imagej in (True, False)]
    for content in files:
        assert np.array_equal(open_image(content).volume.voxels, stack)
    for content in files[-2:]:
        assert len(tifffile.TiffFile(io.BytesIO(content)).pages) == 1
    refuse(files[-1][:-100], "cut short")


def test_opacity_and_channels_without_a_meaning():
    alpha = np.dstack([DEEP // 4] * 3 + [np.full_like(DEEP, 65535)])
    alpha[:3, :, 3] = 0
    source = open_image(written(alpha, photometric="rgb", extrasamples=["unassalpha"]))
    assert (source.pixels[:3] == 65535).all()
    assert np.array_equal(source.pixels[3:], alpha[3:, :, :3])
    spare = open_image(written(alpha, photometric="rgb", extrasamples=["unspecified"]))
    assert np.array_equal(spare.pixels, alpha[:, :, :3])
    assert spare.notes == ("channels left out, whose meaning the file does not say: 1",)
    unnamed = open_image(cv2.imencode(".tiff", alpha[:, :, [2, 1, 0, 3]])[1].tobytes())
    assert np.array_equal(unnamed.pixels, source.pixels)
    pair = open_image(written(np.dstack([DEEP, DEEP // 2]), photometric="minisblack", planarconfig="contig"))
    assert np.array_equal(pair.volume.voxels, [DEEP, DEEP // 2])
    assert pair.notes == ("the 2 channels of a pixel follow one another as frames",)


def test_what_only_pillow_decodes_is_what_pillow_decodes_and_what_nobody_decodes_is_named():
    palette, ink = (Image.fromarray(COLOR).convert(mode) for mode in ("P", "CMYK"))
    for picture in (palette, ink):
        assert same(open_image(saved(picture, "TIFF")), np.asarray(picture.convert("RGB")))
    photo = saved(COLOR, "TIFF", compression="jpeg")
    assert same(open_image(photo), np.asarray(Image.open(io.BytesIO(photo))))
    pages = saved(palette, "TIFF", save_all=True, append_images=[palette.rotate(180)])
    assert same(open_image(pages).volume.get_slice(1), np.asarray(palette.rotate(180).convert("RGB")))
    refuse(written(DEEP.astype(np.complex64)), "complex64")
    refuse(written(DEEP, photometric="cfa"), "CFA")
    content = bytearray(written(COLOR.astype(np.uint16), photometric="rgb"))
    struct.pack_into("<H", content, find_entry(content, 259).valueoffset, 34712)
    refuse(content, r"uint16 of 16 bits, RGB, JPEG2000 compression")
    for name in tiff.PRIVATE_NAMES:
        found = attrgetter(name)(tifffile)
        assert isinstance(found, dict)
        assert all(callable(decode) for decode in found.values())


def test_the_orientation_of_every_page_is_applied():
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        for options in [{}, {"compression": "jpeg", "quality": 100}]:
            content = saved(GRAY, "TIFF", exif=exif, **options)
            assert np.array_equal(open_image(content).pixels, np.asarray(Image.open(io.BytesIO(content))))


def test_a_file_that_is_cut_short_or_damaged_is_refused_or_says_so():
    one, many = written(GRAY, rowsperstrip=4), written(GRAY, 255 - GRAY, GRAY // 2)
    for content in (one, many):
        for length in range(8, len(content) - 1, 7):
            try:
                source = open_image(content[:length])
            except ImageError:
                continue
            assert np.array_equal(source.pixels, GRAY)
            assert content is one or any("cut short" in note for note in source.notes)
    content = bytearray(written(DEEP, rowsperstrip=4, compression="zlib"))
    place = find_entry(content, 279).valueoffset
    content[place : place + 2] = b"\0\0"
    refuse(content, "1 of 3 strips or tiles of page 1 are empty")  # and are no zeros
    tiles = written(COLOR, photometric="rgb", tile=(16, 16))
    files = [written(DEEP, DEEP, compression="zlib"), tiles, saved(COLOR, "TIFF")]
    for seed in range(60):
        assert open_damaged(damage(files[seed % 3], seed, [8, 200]))
