"""Small files that say something unusual about their pixels, each written by the rules of its format.

Every helper writes one file (or a folder) and returns its path. Pixels are given as they are stored.
"""

import gzip
import io
import struct
import zlib
from itertools import count

import nibabel as nib
import numpy as np
import tifffile
from PIL import Image
from pydicom.dataelem import RawDataElement
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.sequence import Sequence
from pydicom.tag import Tag
from pydicom.uid import ExplicitVRLittleEndian

STORAGE = {  # PS3.4 B.5, without 1.2.840.10008.5.1.4.1.1
    "CT": "2", "enhanced CT": "2.1", "MR": "4", "enhanced MR": "4.1", "CR": "1", "DX": "1.1.1", "MG": "1.2",
    "tomosynthesis": "13.1.3", "SC": "7", "US multi": "3.1", "XA": "12.1", "PET": "128", "SEG": "66.4",
    "labels": "66.7", "map": "30", "dose": "481.2", "slide": "77.1.6", "US": "6.1", "XRF": "12.2", "photo": "77.1.4",
}  # fmt: skip
AXIAL = [1, 0, 0, 0, 1, 0]
_NUMBERS = count(1)


# ---- DICOM


def item(**elements):
    """An item of a sequence. (VR, value) gives an element of that VR; bytes in it are written as they are."""
    dataset = Dataset()
    for name, value in elements.items():
        if not isinstance(value, tuple):
            setattr(dataset, name, value)
        elif isinstance(value[1], bytes):
            dataset._dict[Tag(name)] = RawDataElement(Tag(name), value[0], len(value[1]), value[1], 0, False, True)
        else:
            dataset.add_new(name, *value)
    return dataset


def sequence(*items):
    return Sequence(items)


def dicom(path, pixels, kind="CT", *, frames=False, drop=(), **elements):
    """A file of a storage class. `frames`: the first axis of `pixels` counts frames. `drop`: elements left out."""
    pixels = np.asarray(pixels)
    shape, bits = pixels.shape[1:] if frames else pixels.shape, pixels.dtype.itemsize * 8
    name = {"f4": "FloatPixelData", "f8": "DoubleFloatPixelData"}.get(pixels.dtype.str[1:], "PixelData")
    uid = f"1.2.840.10008.5.1.4.1.1.{STORAGE[kind]}" if kind else None
    stored = elements.get("BitsStored", bits)
    given = {
        "SOPClassUID": uid, "SOPInstanceUID": f"1.2.3.{next(_NUMBERS)}", "StudyInstanceUID": "1.2.3", "Modality": "CT",
        "SeriesInstanceUID": "1.2.4", "Rows": shape[0], "Columns": shape[1], "SamplesPerPixel": 1,
        "BitsAllocated": bits, "PhotometricInterpretation": "MONOCHROME2",
    }  # fmt: skip
    if name == "PixelData":
        given |= {"BitsStored": stored, "HighBit": stored - 1, "PixelRepresentation": int(pixels.dtype.kind == "i")}
    if len(shape) == 3:
        given |= {"SamplesPerPixel": 3, "PhotometricInterpretation": "RGB", "PlanarConfiguration": 0}
    if frames:
        given["NumberOfFrames"] = len(pixels)
    vr = {"FloatPixelData": "OF", "DoubleFloatPixelData": "OD"}.get(name, "OW" if bits > 8 else "OB")
    given = {**given, name: (vr, memoryview(pixels.tobytes())), **elements}
    given[name] = given[name][0], bytes(given[name][1])
    dataset = item(**{key: value for key, value in given.items() if key not in drop and value is not None})
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.file_meta.MediaStorageSOPClassUID = uid or "1.2.5"
    dataset.file_meta.MediaStorageSOPInstanceUID = given["SOPInstanceUID"]
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.save_as(path, enforce_file_format=True)
    return path


HOUNSFIELD = {"RescaleSlope": 1, "RescaleIntercept": -1024}


def series(folder, pixels, *, step=(0, 0, 5), rows=AXIAL, spacing=(1, 1), change=None, **elements):
    """A folder with one slice a file, `step` mm from one to the next; `change`: elements of slices by number."""
    for number, stored in enumerate(pixels):
        given = {
            **HOUNSFIELD, "SeriesNumber": 1, "PixelSpacing": list(spacing), "ImageOrientationPatient": list(rows),
            "ImagePositionPatient": [float(number * side) for side in step], "InstanceNumber": number + 1,
        }  # fmt: skip
        dicom(folder / f"{number:02}", stored, **{**given, **elements, **((change or {}).get(number) or {})})
    return folder


def flat(values=range(0, 60, 10), shape=(16, 16)):
    """Slices of one value each, in HU, as a CT stores them."""
    return [np.full(shape, 1024 + value, np.int16) for value in values]


def groups(position=None, rows=None, spacing=None, scale=None, window=None, time=None, segment=None, lut=None):
    """An item of functional groups (PS3.3 C.7.6.16.2)."""
    given = {
        "PlanePositionSequence": position is not None and {"ImagePositionPatient": [float(side) for side in position]},
        "PlaneOrientationSequence": rows is not None and {"ImageOrientationPatient": [float(side) for side in rows]},
        "PixelMeasuresSequence": spacing and {"PixelSpacing": list(spacing), "SliceThickness": 5},
        "PixelValueTransformationSequence": scale
        and {"RescaleSlope": scale[0], "RescaleIntercept": scale[1], "RescaleType": scale[2]},
        "FrameVOILUTSequence": (window and {"WindowCenter": window[0], "WindowWidth": window[1]})
        or (lut and {"VOILUTSequence": sequence(lut)}),
        "FrameContentSequence": time and {"TemporalPositionIndex": time},
        "SegmentIdentificationSequence": segment and {"ReferencedSegmentNumber": segment},
    }
    return item(**{name: sequence(item(**inside)) for name, inside in given.items() if inside})


def enhanced(path, pixels, each, shared=None, kind="enhanced CT", **elements):
    """A multi-frame file with functional groups of each frame, and shared ones."""
    shared = shared or groups(rows=AXIAL, spacing=(1, 1), scale=(1, -1024, "HU"))
    nested = {"SharedFunctionalGroupsSequence": sequence(shared), "PerFrameFunctionalGroupsSequence": sequence(*each)}
    return dicom(path, pixels, kind, frames=True, **nested, **elements)


def segmentation(path, frames, places, segments=None, *, kind="BINARY", **elements):
    """A DICOM segmentation: (n, h, w) of 0 and 1 (or labels, or fractions), each at a place in z."""
    frames = np.asarray(frames, np.uint8)
    numbers = segments or [1] * len(frames)
    each = [
        groups((0, 0, place), segment=None if kind == "LABELMAP" else number)
        for place, number in zip(places, numbers, strict=True)
    ]
    if kind == "BINARY":
        bits = np.packbits(frames.ravel(), bitorder="little").tobytes()
        elements |= {"BitsAllocated": 1, "BitsStored": 1, "HighBit": 0, "PixelData": ("OB", memoryview(bits))}
    described = [item(SegmentNumber=number, SegmentLabel="x") for number in sorted(set(numbers))]
    given = {"Modality": "SEG", "SegmentationType": kind, "SegmentSequence": sequence(*described)}
    shared = groups(rows=AXIAL, spacing=(1, 1))
    return enhanced(path, frames, each, shared, "labels" if kind == "LABELMAP" else "SEG", **given, **elements)


def lut(first, entries, bits, vr="US"):
    """A VOI LUT (PS3.3 C.11.2.1.1): the first value mapped, its entries, bits of an entry."""
    size = len(entries) % 65536
    numbers = ("US", [int(entry) for entry in entries]) if size else ("OW", np.asarray(entries, "<u2").tobytes())
    return item(LUTDescriptor=(vr, [size, first, bits]), LUTData=numbers)


# ---- NIfTI


def nifti(path, voxels, affine=None, *, qform=False, **header):
    """A volume (i, j, k[, …]). `qform`: the affine is in the quaternion only. `header`: fields set at the end."""
    image = nib.Nifti1Image(voxels, np.eye(4) if affine is None else affine, dtype=voxels.dtype)
    if qform:
        image.set_sform(None, 0)
        image.set_qform(image.affine, 1)
    content = image.to_bytes()
    if header:
        fields = nib.Nifti1Header.from_fileobj(io.BytesIO(content[:348]), check=False)
        for name, value in header.items():
            fields[name] = value
        content = fields.binaryblock + content[348:]
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


# ---- PNG and TIFF


def png16(path, pixels, *chunks):
    """A PNG of 16 bits (ISO 15948, 11): (h, w) gray, (h, w, 2) with alpha, (h, w, 3) RGB, (h, w, 4) RGBA."""
    pixels = np.atleast_3d(pixels)
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 16, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    parts = [(b"IHDR", head), *chunks, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(part)) + kind + part + struct.pack(">I", zlib.crc32(kind + part)) for kind, part in parts
    )
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    return path


def tiff(path, *pages, bigtiff=False, imagej=False, metadata=None, **options):
    """A TIFF of pages: arrays, or (array, options of its page)."""
    with tifffile.TiffWriter(path, bigtiff=bigtiff, imagej=imagej) as writer:
        for page in pages:
            array, own = page if isinstance(page, tuple) else (page, {})
            color = array.ndim == 3 and array.shape[-1] in (3, 4)
            given = {"photometric": "rgb" if color else "minisblack", "metadata": metadata, **options, **own}
            writer.write(array, **given)
    return path


def packed_tiff(path, values, bits, photometric=1):
    """A TIFF of gray values of less than 8 bits (TIFF 6.0, section 4), without a byte that is not needed."""
    rows = np.unpackbits(values.astype(np.uint8)[:, :, None], axis=2)[:, :, -bits:].reshape(len(values), -1)
    content = np.packbits(rows, axis=1).tobytes()
    tags = {256: values.shape[1], 257: len(values), 258: bits, 259: 1, 262: photometric, 273: 122, 277: 1}
    tags |= {278: len(values), 279: len(content)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    path.write_bytes(struct.pack("<2sHIH", b"II", 42, 8, len(tags)) + entries + bytes(4) + content)
    return path


def picture(path, image, **options):
    """A file that Pillow writes."""
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    image.save(path, **options)
    return path


def profile(space=b"RGB "):
    """An ICC profile (ICC.1:2010, 7.2, 9.2) of sRGB's primaries, or of gray, that takes values as linear."""

    def fixed(*numbers):
        return b"XYZ \0\0\0\0" + b"".join(struct.pack(">i", round(number * 65536)) for number in numbers)

    tags = {b"wtpt": fixed(0.9642, 1, 0.8249), b"cprt": b"text\0\0\0\0none\0\0\0\0"}
    tags[b"desc"] = b"desc" + struct.pack(">II", 0, 4) + b"own\0" + bytes(80)
    linear, columns = b"curv" + struct.pack(">IIHH", 0, 1, 256, 0), {b"r": (0.4360, 0.2225, 0.0139)}
    columns |= {b"g": (0.3851, 0.7169, 0.0971), b"b": (0.1431, 0.0606, 0.7141)}
    for letter, column in columns.items() if space == b"RGB " else ((b"k", None),):
        tags |= {letter + b"TRC": linear} | ({letter + b"XYZ": fixed(*column)} if column else {})
    place, table = 132 + 12 * len(tags), b""
    for name, content in tags.items():
        table, place = table + name + struct.pack(">II", place, len(content)), place + len(content)
    head = struct.pack(">I4xI4s4s4s", place, 0x02200000, b"mntr", space, b"XYZ ") + bytes(12) + b"acsp" + bytes(28)
    whole = head + fixed(0.9642, 1, 0.8249)[8:] + bytes(48) + struct.pack(">I", len(tags)) + table
    return whole + b"".join(tags.values())


def bmp(path, pixels, kind=b"sRGB", behind=b"", masks=(0xFF0000, 0xFF00, 0xFF, 0xFF000000)):
    """A BMP with a header of version 5 (wingdi.h, BITMAPV5HEADER): uint8 (h, w, 3 or 4) in B, G, R, A."""
    height, width, channels = pixels.shape
    sizes = (124, width, -height, 1, 8 * channels, 3 if channels == 4 else 0, pixels.nbytes, 0, 0, 0, 0)
    header = struct.pack("<IiiHHIIiiII", *sizes) + struct.pack("<4I", *masks) + kind[::-1] + bytes(48)
    header += struct.pack("<4I", 4, 124 + pixels.nbytes, len(behind), 0)
    start = b"BM" + struct.pack("<IHHI", 138 + pixels.nbytes, 0, 0, 138)
    path.write_bytes(start + header + pixels.tobytes() + behind)
    return path


def text_on(ground, mode, ink):
    """A square of ink, rows 8 to 15 and columns 8 to 23, on a ground, 32 x 24."""
    image = Image.new(mode, (32, 24), ground)
    image.paste(ink, (8, 8, 24, 16))
    return image


# ---- MetaImage and NRRD

MET = {"u1": "UCHAR", "i1": "CHAR", "i2": "SHORT", "u2": "USHORT", "i4": "INT", "f4": "FLOAT", "f8": "DOUBLE"}
NRRD = {"u1": "uchar", "i2": "short", "u2": "ushort", "i4": "int", "f4": "float", "f8": "double"}


def meta_image(path, voxels, data="LOCAL", packed=False, order="<", **fields):
    """A MetaImage (.mha, or .mhd beside its data): voxels (z, y, x)."""
    content = voxels.astype(voxels.dtype.newbyteorder(order)).tobytes()
    content = zlib.compress(content) if packed else content
    given = {
        "ObjectType": "Image", "NDims": voxels.ndim, "BinaryData": "True", "BinaryDataByteOrderMSB": str(order == ">"),
        "CompressedData": str(packed), "TransformMatrix": "1 0 0 0 1 0 0 0 1", "Offset": "0 0 0",
        "ElementSpacing": "1 1 1", "DimSize": " ".join(map(str, voxels.shape[::-1])),
        "ElementType": f"MET_{MET[voxels.dtype.str[1:]]}", **fields, "ElementDataFile": data,
    }  # fmt: skip
    head = "".join(f"{key} = {value}\n" for key, value in given.items() if value is not None).encode()
    path.write_bytes(head + (content if data == "LOCAL" else b""))
    if data != "LOCAL":
        (path.parent / data).write_bytes(content)
    return path


def nrrd(path, voxels, data=None, encoding="raw", order="<", **fields):
    """A NRRD (.nrrd, or .nhdr beside its data): voxels (z, y, x); fields with _ for a blank."""
    content = voxels.astype(voxels.dtype.newbyteorder(order)).tobytes()
    content = gzip.compress(content) if encoding in ("gzip", "gz") else content
    given = {
        "type": NRRD[voxels.dtype.str[1:]], "dimension": voxels.ndim, "space": "left-posterior-superior",
        "sizes": " ".join(map(str, voxels.shape[::-1])), "space_directions": "(1,0,0) (0,1,0) (0,0,1)",
        "kinds": None, "endian": "big" if order == ">" else "little", "encoding": encoding, "space_origin": "(0,0,0)",
        **fields, "data_file": data,
    }  # fmt: skip
    lines = [f"{key.replace('_', ' ')}: {value}" for key, value in given.items() if value is not None]
    path.write_bytes(("\n".join(["NRRD0004", "# a comment", *lines]) + "\n\n").encode() + (b"" if data else content))
    if data:
        (path.parent / data).write_bytes(content)
    return path
