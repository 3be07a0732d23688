"""What a file says in words beside its pixels, which may name a person. Headers are read, and nothing is decoded."""

import gzip
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pydicom
from PIL import ExifTags, JpegImagePlugin, TiffImagePlugin

from ..images.files.dicom_header import is_dicom
from ..images.files.formats import TIFFS
from ..images.files.headed import MAX_HEADER, get_header_size, is_headed

DICOM = (
    "PatientName", "PatientID", "PatientBirthDate", "PatientAddress", "OtherPatientIDs", "AccessionNumber",
    "InstitutionName", "ReferringPhysicianName", "StudyDate",
)  # fmt: skip
EXIF = re.compile("Description|Name|Artist|Copyright|Computer|DateTime|Comment|XP|GPSInfo|XMLPacket|IPTC")
META = re.compile(rb"Comment|Name|Patient|Study|Series|Date|Time")  # keys with words as values
PNG, CHUNKS = b"\x89PNG", (b"tEXt", b"zTXt", b"iTXt", b"eXIf", b"EXIF", b"XMP ")  # of PNG and WebP
NIFTI = {"db_name": (14, 32), "descrip": (148, 228), "aux_file": (228, 252)}  # bytes


def find_words(path: Path) -> tuple[str, list[str]]:
    """Return "DICOM" and the tags that may name a person and have a value; of another file "data" and what holds words.

    >>> find_words(Path(__file__))
    ('data', [])
    """
    with path.open("rb") as file:
        head = file.read(MAX_HEADER)
        file.seek(0)
        if is_dicom(head) or path.suffix.lower() in (".dcm", ".dicom", ".ima"):
            with suppress(Exception):  # pydicom raises anything for a damaged file
                header = pydicom.dcmread(file, stop_before_pixels=True, specific_tags=list(DICOM), force=True)
                return "DICOM", [tag for tag in DICOM if str(header.get(tag, "") or "").strip()]
            return "DICOM", ["a header that cannot be read"]
        with suppress(Exception):  # so does Pillow
            return "data", list(dict.fromkeys(_iter_words(file, head)))
    return "data", ["a header that cannot be read"]


def _iter_words(file: BinaryIO, head: bytes) -> Iterator[str]:
    if head.startswith((PNG, b"RIFF")):
        form, place = (">I4s", 8) if head.startswith(PNG) else ("<4sI", 12)
        while len(chunk := file.read(8) if file.seek(place) else b"") == 8:
            size, name = sorted(struct.unpack(form, chunk), key=lambda part: isinstance(part, bytes))
            place += 8 + size + (4 if form == ">I4s" else size % 2)
            if name in CHUNKS:
                yield name.decode().strip()
    elif head.startswith(b"\xff\xd8\xff") or head[:4] in TIFFS:
        image = (TiffImagePlugin.TiffImageFile if head[:4] in TIFFS else JpegImagePlugin.JpegImageFile)(file)
        exif = image.getexif()
        names = [ExifTags.TAGS.get(tag, "") for tag in (*exif, *exif.get_ifd(ExifTags.IFD.Exif))]
        yield from (f"EXIF {name}" for name in names if EXIF.search(name))
        yield from (name for name in ("comment", "photoshop", "xmp") if image.info.get(name))
    elif is_headed(head):
        header = re.split(rb"\r?\n\r?\n|\nElementDataFile", head, maxsplit=1)[0]
        sign = b":=" if head.startswith(b"NRRD") else b"="
        parts = [line.partition(sign) for line in header.splitlines()]
        named = [key for key, _, value in parts if value.strip() and (sign == b":=" or META.search(key))]
        yield from (key.decode("latin-1").strip() for key in named)
        yield from ["comment"] * (sign == b":=" and re.search(rb"^(#|content:)", header, re.MULTILINE) is not None)
    else:
        start = gzip.GzipFile(fileobj=file).read(348) if head.startswith(b"\x1f\x8b") else head
        if get_header_size(start) == 348:
            yield from (name for name, (low, high) in NIFTI.items() if start[low:high].strip(b"\0 "))
