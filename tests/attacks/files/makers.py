"""Hostile image files, made from nothing: a function a format yields bytes, and (name, bytes) where a test asks."""

import gzip
import io
import struct
import warnings
import zlib

import nibabel
import numpy as np
import pydicom
from PIL import Image
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate
from pydicom.sequence import Sequence

from tests.support.image_files import COLOR, GRAY, saved

BIG = 2**31 - 1


# ---- PNG
def chunk(kind, data=b"", crc=None):
    crc = zlib.crc32(kind + data) if crc is None else crc
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)


def png(width=4, height=4, depth=8, color=0, *, interlace=0, data=None, before=b"", after=b"", end=True):
    """A PNG with chunks before and after its pixels, which are zeros if there are not too many."""
    if data is None:
        row = 1 + width * depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}.get(color, 1) // 8
        data = zlib.compress(bytes(min(row * height, 10**6)))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace))
    return b"\x89PNG\r\n\x1a\n" + header + before + chunk(b"IDAT", data) + after + (chunk(b"IEND") if end else b"")


def make_png():
    control = struct.pack(">IIIIIHHBB", 0, 9, 9, 2**31, 2**31, 0, 0, 9, 9)
    frame = struct.pack(">IIIIIHHBB", 0, 4, 4, 0, 0, 1, 1, 0, 0)
    frames = chunk(b"acTL", struct.pack(">II", 9, 0)) + chunk(b"fcTL", frame)
    yield from (
        # sizes, depths, colors and pixels
        png(40_000, 40_000), png(40_000, 40_000, 16, 6), png(depth=3), png(color=5),
        *(png(width, height, data=b"") for width, height in ((0, 4), (2**32 - 1, 1), (1, BIG))),
        png(data=b"\0" * 50), png(500, 500, data=zlib.compress(bytes(100))), png(data=zlib.compress(bytes(5 * 10**7))),
        ("no end", png(end=False)),
        # chunks that are wrong, too many, too long, or inflate
        png(before=chunk(b"PLTE", bytes(6), crc=7)), png(before=struct.pack(">I", BIG) + b"tEXt"),
        png(before=chunk(b"IHDR", struct.pack(">IIBBBBB", 9, 9, 8, 2, 0, 0, 0)) * 1000),
        ("header grows later", png(after=chunk(b"IHDR", struct.pack(">IIBBBBB", 30_000, 30_000, 8, 6, 0, 0, 0)))),
        ("texts by the thousand", png(before=chunk(b"tEXt", b"k\0v") * 20_000)),
        png(before=chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(900_000))) * 200),
        png(before=chunk(b"iTXt", b"k\0\1\0\0\0" + zlib.compress(bytes(10**8)))),
        png(before=chunk(b"iCCP", b"k\0\0" + zlib.compress(bytes(10**8)))),
        # palettes, transparency, EXIF, gamma, interlace, frames
        png(color=3), png(color=3, before=chunk(b"PLTE", bytes(3000))),
        png(color=3, before=chunk(b"PLTE", bytes(6)) + chunk(b"tRNS", bytes(5000))),
        png(before=chunk(b"eXIf", bytes(range(256)) * 40)), png(before=chunk(b"eXIf", ifd_loop()[: 10**4])),
        png(before=chunk(b"gAMA", bytes(4)) + chunk(b"pHYs", bytes(3)) + chunk(b"cHRM", bytes(1))), png(interlace=7),
        *(png(before=chunk(b"acTL", struct.pack(">II", count, 0))) for count in (0, 2, 5000)),
        png(before=chunk(b"acTL", struct.pack(">II", 2, 0)) + chunk(b"fcTL", control)),
        png(before=frames, after=chunk(b"fdAT", struct.pack(">I", 77) + b"x") * 9),
        png(16_000, 16_000, color=2, before=chunk(b"acTL", struct.pack(">II", 4000, 0))),
    )  # fmt: skip


# ---- JPEG
def make_jpeg():
    plain, slow = saved(COLOR, "JPEG"), saved(Image.new("L", (2000, 2000)), "JPEG", progressive=True)
    frame = plain.index(b"\xff\xc0") + 5

    def sized(height, width):
        return plain[:frame] + struct.pack(">HH", height, width) + plain[frame + 4 :]

    def segment(marker, data):
        return b"\xff\xd8\xff" + bytes([marker]) + struct.pack(">H", len(data) + 2) + data + plain[2:]

    scan = slow[slow.rindex(b"\xff\xda") : -2]
    start = plain.index(b"\xff\xda")
    yield from (
        # sizes, scans, segments
        *(sized(height, width) for height, width in ((65535, 65535), (0, 17), (1, 65535))),
        ("3000 scans", slow[:-2] + scan * 3000 + b"\xff\xd9"), plain[:2] + plain[plain.index(b"\xff\xc0") :],
        plain[: start + 14] + b"\xff\xd0\xff\xd1" * 50_000, plain[: start + 14] + b"\xff\x00" * 10**6,
        plain[: start + 1], ("comments by the thousand", plain[:2] + (b"\xff\xfe\x00\x03x" * 20_000) + plain[2:]),
        plain[:2] + b"\xff\xe5\xff\xff", segment(0xE1, b"Exif\0\0" + ifd_loop()[:9000]),
        segment(0xE1, b"Exif\0\0" + bytes(range(256)) * 30), segment(0xE2, b"ICC_PROFILE\0\xff\xff" + bytes(60_000)),
        segment(0xED, b"Photoshop 3.0\x008BIM" + b"\xff" * 500), segment(0xE2, b"MPF\0" + ifd_loop()[:5000]),
        segment(0xEE, b"Adobe\0\x64\0\0\0\0\xff"),
        # components, bits, frames of other kinds, tables
        plain[: frame + 4] + b"\5" + plain[frame + 5 :], plain[: frame - 1] + b"\x10" + plain[frame:],
        *(plain.replace(b"\xff\xc0", b"\xff" + bytes([marker]), 1) for marker in (0xC1, 0xC3, 0xC9, 0xF7)),
        plain[: frame + 6] + b"\xff" + plain[frame + 7 :], segment(0xDB, bytes(65)), segment(0xDD, b"\0\1"),
        slow[: len(slow) // 3],
    )  # fmt: skip


# ---- TIFF
def tiff(entries, extra=b"", *, next_ifd=0, order="<", pixels=bytes(204)):
    """A TIFF of one directory: {tag: (type, values)}; pixels start at byte 8, `extra` follows the directory."""
    sizes = {1: "B", 2: "B", 3: "H", 4: "I", 11: "f", 12: "d", 16: "Q"}
    place = 8 + len(pixels)
    values_at, rows, values = place + 2 + 12 * len(entries) + 4, b"", b""
    for tag, (kind, given) in sorted(entries.items()):
        count, given = given if isinstance(given, tuple) else (len(given), given)
        packed = given if isinstance(given, bytes) else struct.pack(f"{order}{len(given)}{sizes[kind]}", *given)
        if len(packed) > 4:
            packed, values = struct.pack(order + "I", values_at + len(values)), values + packed
        rows += struct.pack(order + "HHI", tag, kind, count) + packed.ljust(4, b"\0")
    start = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", place)
    count, following = struct.pack(order + "H", len(entries)), struct.pack(order + "I", next_ifd)
    return start + pixels + count + rows + following + values + extra


def ifd_loop():
    """EXIF whose directories point to themselves, and whose entries claim much."""
    entries = {0x8769: (4, [8]), 0x8825: (4, [8]), 0x0112: (3, (2**31, b"\0\0\0\0")), 0xA005: (4, [8])}
    return tiff(entries, next_ifd=8, pixels=b"")


BASE = {256: (4, [17]), 257: (4, [12]), 258: (3, [8]), 259: (3, [1]), 262: (3, [1]), 273: (4, [8]), 277: (3, [1]),
        278: (4, [12]), 279: (4, [204])}  # fmt: skip


def make_tiff():
    def changed(**options):
        tags = {int(name[1:]): value for name, value in options.items() if name.startswith("t")}
        rest = {name: value for name, value in options.items() if not name.startswith("t")}
        return tiff({tag: value for tag, value in (BASE | tags).items() if value is not None}, **rest)

    body, pages = b"", 5000
    for number in range(pages):
        entries = b"".join(struct.pack("<HHII", tag, kind, 1, value[0]) for tag, (kind, value) in sorted(BASE.items()))
        place = 8 + 204 + number * (2 + len(entries) + 4)
        following = place + 2 + len(entries) + 4 if number < pages - 1 else 0
        body += struct.pack("<H", len(BASE)) + entries + struct.pack("<I", following)
    large = {"t256": (4, [30_000]), "t257": (4, [30_000])}
    tiles = {"t273": None, "t279": None, "t278": None, "t324": (4, [8]), "t325": (4, [204])}
    deflate = zlib.compress(bytes(10**8))
    strip = {"t278": (4, [30_000]), "t279": (4, [len(deflate)])}
    yield from (
        changed(t259=(3, [8]), pixels=deflate, **large, **strip),
        # directories, sizes, bits, samples, compressions
        ("next directory is itself", changed(next_ifd=212)), changed(next_ifd=8), changed(next_ifd=2**31),
        b"II*\0" + struct.pack("<I", 212) + bytes(204) + body,
        *(changed(t256=(4, [width]), t257=(4, [height])) for width, height in (
            (0, 12), (2**31, 2**31), (2**32 - 1, 1))),
        *(changed(t258=(3, [bits])) for bits in (0, 12, 24, 64)), *(changed(t277=(3, [count])) for count in (0, 65535)),
        *(changed(t259=(3, [compression])) for compression in (0, 2, 7, 8, 34712, 65535)),
        # strips, tags, tiles, other tags, BigTIFF
        changed(t279=(4, [2**32 - 1])), changed(t273=(4, [2**31])),
        changed(t273=(4, (10**6, b"\x08\0\0\0")), t279=(4, (10**6, b"\x08\0\0\0"))), changed(t273=None, t279=None),
        changed(t278=(4, [0])), changed(t270=(2, (2**32 - 1, b"\x08\0\0\0"))),
        changed(t270=(3, (9, b"\x08\0\0\0")), t271=(1, (2**31, b"\x08\0\0\0"))),
        *(changed(**tiles, t322=(4, [side]), t323=(4, [side])) for side in (0, 1, 2**31)),
        changed(**tiles, **large, t322=(4, [1]), t323=(4, [1])), changed(t274=(3, [99])),
        *(changed(t262=(3, [photometric])) for photometric in (0, 2, 3, 6, 65535)),
        changed(t262=(3, [3]), t320=(3, [1, 2, 3])),
        *(changed(t339=(3, [kind]), t258=(3, [32]), t256=(4, [4])) for kind in (0, 3, 5)),
        changed(t34665=(4, [212]), t330=(4, [212])), changed(t284=(3, [2]), t277=(3, [3]), t258=(3, [8, 8, 8])),
        changed(t317=(3, [3]), t259=(3, [8])), changed(t259=(3, [7]), t347=(1, bytes(range(200)))),
        b"II+\0\x08\0\0\0" + struct.pack("<Q", 2**63) + bytes(100),
        b"II+\0\x08\0\0\0" + struct.pack("<QQ", 16, 2**64 - 1) + bytes(100),
    )  # fmt: skip


# ---- BMP, WebP, GIF
def bmp(width=4, height=4, bits=8, compression=0, *, header=40, offset=None, data=bytes(400), colors=0):
    info = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, compression, 0, 0, 0, colors, 0)
    palette = bytes(1024) if bits <= 8 else b""
    start = 14 + len(info) + len(palette) if offset is None else offset
    return b"BM" + struct.pack("<IHHI", 14, 0, 0, start) + info + palette + data


def make_bmp():
    yield from (
        *(bmp(width, height) for width, height in (
            (0, 4), (-4, 4), (4, -(2**31)), (BIG, 1))),
        *(bmp(bits=bits) for bits in (1, 2, 32)), *(bmp(compression=compression) for compression in (2, 3, 99)),
        *(bmp(header=header) for header in (0, 12, 108, 2**31)), bmp(offset=2**31), bmp(offset=2), bmp(colors=2**31),
        bmp(9000, 9000, compression=1, data=b"\0\2\1\0" * 10**5),
        bmp(9000, 9000, bits=4, compression=2, data=b"\xff\x12" * 10**5),
    )  # fmt: skip


def riff(*chunks):
    packed = (name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2) for name, data in chunks)
    body = b"WEBP" + b"".join(packed)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def make_webp():
    lossless, lossy = saved(COLOR, "WEBP", lossless=True), saved(COLOR, "WEBP")
    picture, animation = (b"VP8L", lossless[20:]), (b"ANIM", bytes(6))
    largest, small = b"\x12\0\0\0" + b"\xff" * 6, b"\x12\0\0\0" + b"\x10\0\0\x0b\0\0"
    frame = (b"ANMF", bytes(6) + b"\x10\0\0\x0b\0\0" + bytes(4) + lossless[12:])
    outside = (b"ANMF", b"\xff" * 12 + bytes(4) + lossless[12:])
    yield from (
        riff((b"VP8X", largest), picture), riff((b"VP8X", small), animation, outside), riff((b"VP8X", small)),
        riff((b"VP8X", small), animation, *[frame] * 5000), riff((b"VP8L", b"\x2f" + b"\xff" * 4 + bytes(90))),
        riff((b"VP8 ", lossy[20:26] + b"\xff\x3f\xff\x3f" + lossy[30:])),
        b"RIFF\xff\xff\xff\xff" + lossy[8:], riff((b"VP8X", b"\x08" + small[1:]), picture, (b"EXIF", b"\xff" * 999)),
        riff((b"VP8X", b"\x20" + small[1:]), (b"ICCP", b"\xff" * 999), picture),
        riff((b"VP8X", b"\x10" + small[1:]), (b"ALPH", b"\xff" * 99), (b"VP8 ", lossy[20:])),
    )  # fmt: skip


def make_gif():
    plain = saved(Image.fromarray(GRAY), "GIF")
    start = plain.index(b"\x2c")
    head, frame, code = plain[:start], plain[start:-1], 10
    yield from (
        *(head[:6] + struct.pack("<HH", size, size) + head[10:] + frame + b";" for size in (0, 65535)),
        head + frame[:5] + struct.pack("<HH", 65535, 65535) + frame[9:] + b";",
        head + frame[:1] + b"\xff\xff\xff\xff" + frame[5:] + b";",
        *(head + frame[:code] + bytes([size]) + frame[code + 1 :] + b";" for size in (0, 255)),
        head + frame * 5000 + b";", head[:6] + struct.pack("<HH", 9000, 9000) + head[10:] + frame * 100 + b";",
        head + b"\x21\xfe" + b"\xffx" * 90_000, head + frame[: code + 1] + b"\xff" * 10**6, head + b";", head + frame,
        plain[:10] + b"\0" + plain[11:13] + frame + b";", head + b"\x77" * 10**6 + frame + b";",
        head + b"\x21\xf9\x04\xff\xff\xff\xff\0" + frame * 3 + b";",
    )  # fmt: skip


# ---- DICOM
def dicom(name="MR_small.dcm", **elements):
    """The bytes of a file that pydicom includes, with elements set, or dropped where None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = pydicom.dcmread(get_testdata_file(name, download=False))
        for keyword, value in elements.items():
            if value is None:
                delattr(dataset, keyword)
            elif keyword.endswith("Descriptor"):  # signed or unsigned: pydicom would want to know
                dataset.add_new(keyword, "US", value)
            else:
                setattr(dataset, keyword, value)
        file = io.BytesIO()
        dataset.save_as(file)
    return file.getvalue()


def element(group, number, kind, data, length=None):
    """One element, little endian, with its type."""
    length = len(data) if length is None else length
    start = struct.pack("<HH2s", group, number, kind.encode())
    long = kind in ("OB", "OW", "SQ", "UN", "UT")
    return start + (struct.pack("<HI", 0, length) if long else struct.pack("<H", length)) + data


EXPLICIT, DEFLATED, JPEG_2000 = "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.1.99", "1.2.840.10008.1.2.4.90"


def raw_dicom(*, syntax=EXPLICIT, rows=8, columns=8, bits=8, frames=None, pixels=None, before=b"", after=b"", samples=1,
              kind="MONOCHROME2", packed=None):  # fmt: skip
    """A file written element by element, with anything before and after its pixels."""
    uid = syntax.encode() + b"\0" * (len(syntax) % 2)
    meta = element(2, 0x10, "UI", uid)
    body = before + element(0x28, 2, "US", struct.pack("<H", samples)) + element(0x28, 4, "CS", kind.encode().ljust(12))
    if frames is not None:
        text = str(frames)
        body += element(0x28, 8, "IS", (text + " " * (len(text) % 2)).encode())
    body += element(0x28, 0x10, "US", struct.pack("<H", rows)) + element(0x28, 0x11, "US", struct.pack("<H", columns))
    body += element(0x28, 0x100, "US", struct.pack("<H", bits)) + element(0x28, 0x101, "US", struct.pack("<H", bits))
    body += element(0x28, 0x102, "US", struct.pack("<H", max(0, bits - 1))) + element(0x28, 0x103, "US", b"\0\0")
    if pixels is None:
        pixels = element(0x7FE0, 0x10, "OB", bytes(min(rows * columns * samples * max(1, bits // 8), 10**6)))
    body += pixels + after
    if packed:
        deflater = zlib.compressobj(wbits=-15)
        body = deflater.compress(body) + deflater.flush()
    return bytes(128) + b"DICM" + meta + body


def fragments(*parts, table=b""):
    """Encapsulated pixels."""
    items = b"".join(b"\xfe\xff\x00\xe0" + struct.pack("<I", len(part)) + part for part in (table, *parts))
    return element(0x7FE0, 0x10, "OB", items + b"\xfe\xff\xdd\xe0\0\0\0\0", 2**32 - 1)


SIGNATURE = b"\0\0\0\x0cjP  \r\n\x87\n"


def boxes(length, *, kind=b"junk", before=b""):
    return SIGNATURE + before + struct.pack(">I", length) + kind + bytes(40)


def make_dicom():
    rle = "1.2.840.10008.1.2.5"

    def jpeg_2000(*parts):
        return raw_dicom(syntax=JPEG_2000, pixels=fragments(*parts))

    def run_lengths(*parts):
        return raw_dicom(syntax=rle, pixels=fragments(*parts))

    def deflated(**more):
        return raw_dicom(syntax=DEFLATED, packed=True, **more)

    later, zeros = struct.pack(">I4s", 20, b"ftyp") + bytes(12), bytes(4 * 10**7)
    two = raw_dicom(syntax=JPEG_2000, frames=2, pixels=fragments(boxes(40, kind=b"jp2c"), boxes(0)))
    item, nothing = struct.pack("<HHI", 0xFFFE, 0xE000, 2**32 - 1), b"\xfe\xff\x0d\xe0\0\0\0\0"
    known = element(0x5200, 0x9229, "SQ", b"", 2**32 - 1) + item
    empty = element(0x5200, 0x9230, "SQ", (item + nothing) * 100_000, 2**32 - 1)
    unknown = element(9, 0x1010, "UN", (item + nothing) * 50_000, 2**32 - 1)
    offsets = element(0x7FE0, 1, "OV", b"\xff" * 8000, None)
    far = struct.pack("<16I", 15, *[2**32 - 1] * 15)
    segment = struct.pack("<16I", 1, 64, *[0] * 14) + b"\x81\0" * 10**5
    large = {"rows": 30_000, "columns": 30_000}
    segments = struct.pack("<6H", 2, 1, 0, 2, 1, 0) * 900
    luts = {f"{color}PaletteColorLookupTableDescriptor": [0, 0, 16] for color in ("Red", "Green", "Blue")}
    luts |= {f"Segmented{color}PaletteColorLookupTableData": segments for color in ("Red", "Green", "Blue")}
    table = Dataset()
    table.add_new("LUTDescriptor", "US", [0, 65535, 16])
    table.add_new("LUTData", "OW", b"\1\2")
    table.ModalityLUTType = "US"
    jpeg, baseline = saved(Image.new("L", (3000, 3000)), "JPEG"), "1.2.840.10008.1.2.4.50"
    slow = saved(Image.new("L", (2000, 2000)), "JPEG", progressive=True)
    scan = slow[slow.rindex(b"\xff\xda") : -2]
    endless = slow[:-2] + scan * 300 + b"\xff\xd9"
    for keyword, value in (
        ("RescaleSlope", "1e308"), ("RescaleSlope", "-1e-320"), ("WindowWidth", "1e400"), ("PixelSpacing", ["0", "0"]),
    ):  # fmt: skip
        given = {"RescaleSlope": "1", "RescaleIntercept": "0", "WindowCenter": "1", "WindowWidth": "9", keyword: value}
        yield dicom(**given)
    for descriptor in ([0, 0, 16], [2, 0, 8], [256, 65535, 99]):
        lut = {f"{color}PaletteColorLookupTable{part}": value for color in ("Red", "Green", "Blue")
               for part, value in (("Descriptor", descriptor), ("Data", bytes(8)))}  # fmt: skip
        pixels = {"SamplesPerPixel": 1, "PhotometricInterpretation": "PALETTE COLOR"}
        yield dicom(**pixels, **lut)
    yield from (
        # boxes of JPEG 2000, deflated files, many and deep elements
        *((f"JPEG 2000 box of {length}", jpeg_2000(boxes(length))) for length in (0, 1, 7)),
        *(raw_dicom(syntax=f"1.2.840.10008.1.2.4.{n}", pixels=fragments(boxes(0))) for n in (91, 203)),
        ("JPEG 2000 second box of 0", jpeg_2000(boxes(0, before=later))),
        ("JPEG 2000 box of 0 in the second frame", two),
        ("JPEG 2000 box of 0 over two fragments", jpeg_2000(boxes(0)[:14], boxes(0)[14:])),
        jpeg_2000(b"\xff\x4f\xff\x51" + bytes(60)),
        jpeg_2000(boxes(0, before=(struct.pack(">I", 8) + b"free") * 10_000)),
        ("deflated zeros", deflated(before=zeros)), ("deflated zeros after the pixels", deflated(after=zeros)),
        ("deflated padding after the pixels", deflated(after=element(0xFFFC, 0xFFFC, "OB", zeros))),
        deflated(before=element(9, 0x1010, "OB", zeros)),
        ("deflated pixels that are too many", deflated(pixels=element(0x7FE0, 0x10, "OB", zeros))),
        raw_dicom(syntax=DEFLATED),
        ("tiny elements by the million", raw_dicom(before=element(9, 0x1010, "LO", b"") * 10**6)),
        ("tiny elements after the pixels", raw_dicom(after=element(0xFFFC, 0x10, "LO", b"") * 10**6)),
        raw_dicom(before=known * 3000), raw_dicom(before=element(9, 0x1010, "SQ", b"", 2**32 - 1)),
        ("frame groups by the thousand", raw_dicom(before=empty)),
        ("unknown sequence of thousands", raw_dicom(before=unknown)),
        raw_dicom(before=element(9, 0x1010, "OB", b"", 2**31)),
        # pixels in fragments, run lengths
        raw_dicom(pixels=element(0x7FE0, 0x10, "OB", b"", 2**32 - 2)), run_lengths(*[b""] * 200_000),
        raw_dicom(syntax=rle, frames=3, pixels=fragments(bytes(64), table=b"\xff" * 4000)),
        raw_dicom(syntax=rle, frames=1000, pixels=offsets + fragments(bytes(64))), run_lengths(far),
        run_lengths(segment), raw_dicom(syntax=rle, **large, pixels=fragments(segment)),
        # what the elements say of the pixels; tables, and pixels of another size
        *(raw_dicom(bits=bits) for bits in (0, 1, 12, 64)), *(raw_dicom(samples=samples) for samples in (0, 3)),
        *((f"{str(frames)[:5]} frames", raw_dicom(frames=frames)) for frames in (
            -1, 0, 2, 4097, "abc", "1e9", "9" * 4000)), raw_dicom(rows=0),
        ("size 65535x65535", raw_dicom(rows=65535, columns=65535)),
        *(raw_dicom(kind=kind) for kind in ("RGB", "PALETTE COLOR", "")),
        *(raw_dicom(syntax=syntax, pixels=fragments(saved(COLOR, "JPEG"))) for syntax in ("", "1",
            "1.2.840.10008.1.2.4.50", "1.2.840.10008.1.2.4.70", "é")),
        dicom(SamplesPerPixel=1, PhotometricInterpretation="PALETTE COLOR", **luts),
        dicom(ModalityLUTSequence=Sequence([table])), raw_dicom()[132:], bytes(128) + b"DICM",
        dicom("MR_small_bigendian.dcm").replace(b"1.2.840.10008.1.2.2", b"1.2.840.10008.1.2.1"),
        raw_dicom(syntax=baseline, pixels=element_of(encapsulate([jpeg]))),
        raw_dicom(syntax=baseline, rows=2000, columns=2000, pixels=element_of(encapsulate([endless]))),
    )  # fmt: skip


def element_of(data):
    return element(0x7FE0, 0x10, "OB", data, 2**32 - 1)


# ---- NIfTI, NumPy, and what is none of them
def nifti(array=None, *, patch=(), kind=nibabel.Nifti1Image, affine=None):
    """A volume, with bytes of its header replaced: (offset, format, values)."""
    array = np.arange(60, dtype=np.int16).reshape(3, 4, 5) if array is None else array
    content = bytearray(kind(array, np.eye(4) if affine is None else affine).to_bytes())
    for offset, form, *values in patch:
        struct.pack_into("<" + form, content, offset, *values)
    return bytes(content)


def make_nifti():
    huge, nan, inf = nifti(patch=[(40, "4h", 3, 30_000, 30_000, 1)]), float("nan"), float("inf")
    for value in (nan, inf, 3e38):  # spacing, affine, quaternion
        yield nifti(patch=[(76, "8f", *[value] * 8)])
        yield nifti(patch=[(254, "h", 1), (280, "12f", *[value] * 12)])
        yield nifti(patch=[(252, "2h", 1, 0), (256, "6f", *[value] * 6)])
    yield from (
        # dimensions, types, offsets, scales, windows
        *(nifti(patch=[(40, f"{len(dims)}h", *dims)]) for dims in (
            (3, -1, 4, 5), (3, 0, 4, 5), (7, *[32767] * 7), (0,), (9, 1, 1, 1))),
        *(nifti(patch=[(70, "h", code)]) for code in (0, 128, 768, 1024, 9999)),
        *(nifti(patch=[(108, "f", offset)]) for offset in (nan, inf, 0.0, 1e30, 353.5)),
        *(nifti(patch=[(112, "2f", *scale)]) for scale in ((nan, 0), (inf, 0), (0, 5), (1e-45, 0), (1, nan))),
        *(nifti(patch=[(124, "2f", *window)]) for window in ((1, nan), (3e38, -3e38))),
        # extensions, versions, values, gzip
        nifti(patch=[(348, "4B", 1, 0, 0, 0), (352, "2i", 2**31 - 1, 4)]),
        nifti(patch=[(108, "f", 400.0), (348, "4B", 1, 0, 0, 0), (352, "2i", 0, 4)]),
        nifti(patch=[(344, "4s", b"ni1\0")]), nifti(kind=nibabel.Nifti2Image, patch=[(16, "8q", 3, *[2**62] * 7)]),
        nifti(kind=nibabel.Nifti2Image, patch=[(168, "q", -(2**62))]), nifti(patch=[(0, "4s", b"\0\0\x01\x5c")]),
        nifti(np.full((3, 4, 5), np.nan, np.float32)), nifti(np.array([[[-1e308, 1e308]]])), nifti()[:-9],
        gzip.compress(huge + bytes(10**7)), gzip.compress(nifti(patch=[(108, "f", 1e9)]) + bytes(10**8)),
        gzip.compress(bytes(10**8)), gzip.compress(nifti())[:-30], gzip.compress(nifti())[:-8] + bytes(8),
        gzip.compress(b"") * 10_000 + gzip.compress(nifti()), b"\x1f\x8b\x08\x08" + bytes(6) + b"a" * 10**6,
    )  # fmt: skip


def npy(header, data=bytes(64), *, version=(1, 0), length=None):
    header = header if isinstance(header, bytes) else header.encode("latin1")
    size = struct.pack("<H" if version == (1, 0) else "<I", len(header) if length is None else length)
    return b"\x93NUMPY" + bytes(version) + size + header + data


def make_npy():
    def describe(descr="'|u1'", shape="(8, 8)", order="False"):
        return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}"

    yield from (
        *(npy(describe(), version=version) for version in ((0, 0), (2, 0), (9, 9))),
        *(npy("{}", length=length) for length in (0, 1, 65_535)),
        *(npy(describe(repr(descr), "(2, 2)")) for descr in (
            "|O", "<U9", "|S0", "<M8[s]", "<c16", "<f2", ">i8", "|b1", "x", "f4,f4")),
        *(npy(describe(descr, "(2, 2)")) for descr in (
            "[('a', '<f4', (99999, 99999))]", "('<f4', (9, 9))", "None", "{}", "[" * 99 + "]" * 99)),
        *(npy(describe(shape=shape)) for shape in (
            "(99999, 99999)", "(-1, 8)", "(0, 8)", "(True, True)", "(8.0, 8)", "()", f"({2**63}, 2)",
            f"({10**400}, 2)", "(2, 2, 9)", "[8, 8]")),
        *(npy(describe(order=order)) for order in ("True", "'maybe'")),
        *map(npy, (  # headers that are code, deep, long or no mapping
            "__import__('os').system('true')", "[" * 4000 + "]" * 4000, "-" * 9000 + "1", "9" * 9000, "9**9**9",
            "[1]", "'" * 3, "\0", "+".join("1" * 4000), "{}.__class__", "{[]: 1}")),
        npy(describe("'<f8'", "(8, 9)")), ("much behind", npy(describe(), bytes(10**7))),
    )  # fmt: skip


def make_other():
    for magic in (
        b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\0", b"BM", b"GIF89a", b"RIFF\0\0\0\0WEBP", b"\x1f\x8b",
        b"\x93NUMPY", struct.pack("<i", 348),
    ):  # fmt: skip
        yield from (magic, magic + b"\xff" * 5000, magic + bytes(5000))
    # EPS, a pickle, PPM, FITS, FLI and PhotoCD have decoders of Pillow that are not asked; TGA and ICO have no mark
    yield from (
        b"", b"\0", b"<svg onload='x'/>", b"%!PS-Adobe-3.0 EPSF-3.0\n", bytes(10**6), b"\x80\x04cos\nsystem\n",
        b"P6 99999 99999 255\n", b"SIMPLE  =" + b" " * 2880, bytes(4) + b"\x11\xaf" + bytes(122),
        bytes(2048) + b"PCD_" + bytes(90), b"\0\0\2" + bytes(90), b"\0\0\1\0" + bytes(90),
    )  # fmt: skip


MAKERS = {
    "PNG": make_png, "JPEG": make_jpeg, "TIFF": make_tiff, "BMP": make_bmp, "WebP": make_webp, "GIF": make_gif,
    "DICOM": make_dicom, "NIfTI": make_nifti, "npy": make_npy, "other": make_other,
}  # fmt: skip


def make_files(kind):
    """The files of a format by their names, which are numbers where no test asks for one."""
    rows = enumerate(MAKERS[kind]())
    return dict(row if isinstance(row, tuple) else (str(number), row) for number, row in rows)
