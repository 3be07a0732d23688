"""What a person reads before files leave, how versions are chosen, and which settings hold a path of this machine."""

import tomllib
import zipfile
import zlib
from pathlib import Path

import nibabel
import numpy as np
import pydicom
import pytest
from PIL import Image, PngImagePlugin
from pydicom.dataset import FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

from tests.support.publishing import check_only
from tests.support.tables import each
from viewbox import __version__
from viewbox.core.portable import check_portable, hide_paths, names_local_path
from viewbox.errors import ConfigError
from viewbox.publish import contents, publish
from viewbox.publish.hubs.base import Release
from viewbox.publish.release import choose_version, compare_files, describe_file, describe_release, list_files


def write_scan(path, **tags):
    scan = pydicom.Dataset()
    scan.file_meta = FileMetaDataset()
    scan.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    scan.file_meta.MediaStorageSOPClassUID = scan.SOPClassUID = CTImageStorage
    scan.file_meta.MediaStorageSOPInstanceUID = scan.SOPInstanceUID = generate_uid()
    scan.Rows = scan.Columns = 2
    scan.BitsAllocated = scan.BitsStored = 8
    scan.HighBit, scan.PixelRepresentation, scan.SamplesPerPixel = 7, 0, 1
    scan.PhotometricInterpretation = "MONOCHROME2"
    scan.PixelData = np.zeros((2, 2), np.uint8).tobytes()
    for name, value in tags.items():
        setattr(scan, name, value)
    scan.save_as(path, enforce_file_format=True)


def describe(folder):
    return describe_release(Release("environment", "dots", "0.1.0", folder, list_files(folder)), "the hub (private)")


def test_every_file_is_listed_and_data_and_scans_are_named_again(tmp_path):
    (tmp_path / "dots" / "data").mkdir(parents=True)
    (tmp_path / "dots" / "__init__.py").write_text("x = 1\n")
    (tmp_path / "dots" / "data" / "rows.jsonl").write_text("{}\n")
    write_scan(tmp_path / "dots" / "data" / "a1", PatientName="Doe^Jane", PatientID="7")  # no ending
    write_scan(tmp_path / "dots" / "data" / "b2.dcm", PatientName="")
    lines = describe(tmp_path)
    assert [line.split()[1] for line in lines[:4]] == [
        "dots/__init__.py", "dots/data/a1", "dots/data/b2.dcm", "dots/data/rows.jsonl",
    ]  # fmt: skip
    assert lines[1].endswith("dots/data/a1  (DICOM with PatientName, PatientID)")
    assert lines[2].endswith("dots/data/b2.dcm  (DICOM)")
    assert "Doe" not in "".join(lines)
    assert lines[4].startswith("dots 0.1.0, 4 files, ")
    assert lines[4].endswith("to the hub (private)")
    assert lines[5] == "data files (1): dots/data/rows.jsonl"
    assert lines[6].startswith("DICOM files (2): dots/data/a1 (DICOM with PatientName, PatientID), ")
    assert "name no patient" in lines[7]


def write_words(folder):
    """A file of each kind with the name of a person beside its pixels, and one of each without."""
    exif, gray, name = Image.Exif(), Image.new("L", (4, 4)), "Patient Jane Doe"
    exif[0x010E] = name
    exif.get_ifd(0x8769)[0x9286] = name
    text = PngImagePlugin.PngInfo()
    text.add_text("Patient", name)
    for suffix in ("jpg", "tif", "webp", "png"):
        words = {"pnginfo": text} if suffix == "png" else {"exif": exif}
        gray.save(folder / f"plain.{suffix}")
        gray.save(folder / f"words.{suffix}", **words)
    gray.save(folder / "xmp.jpg", xmp=f"<x>{name}</x>".encode(), comment=name)
    gray.save(folder / "exif.png", exif=exif)
    late = (folder / "plain.png").read_bytes()  # behind the pixels
    end = late.index(b"IEND") - 4
    chunk = b"tEXtPatient\0" + name.encode()
    crc = zlib.crc32(chunk).to_bytes(4, "big")
    (folder / "late.png").write_bytes(late[:end] + (len(chunk) - 4).to_bytes(4, "big") + chunk + crc + late[end:])
    head = "NDims = 2\n{}DimSize = 1 1\nElementType = MET_UCHAR\nElementDataFile = LOCAL\nComment = x"
    (folder / "words.mha").write_text(head.format(f"Comment = {name}\n"))
    (folder / "plain.mha").write_text(head.format(""))
    (folder / "words.nrrd").write_text(f"NRRD0004\n# {name}\npatient:={name}\ntype: uint8\n\n# x")
    (folder / "plain.nrrd").write_text("NRRD0004\ntype: uint8\n\n# x")
    volume = nibabel.Nifti1Image(np.zeros((2, 2, 2), np.uint8), np.eye(4))
    nibabel.save(volume, folder / "plain.nii")
    volume.header["descrip"] = name
    nibabel.save(volume, folder / "words.nii.gz")
    write_scan(folder / "dicom", PatientName=name)
    (folder / "IM0001").write_bytes((folder / "dicom").read_bytes()[132:])  # without preamble and suffix


def test_what_says_words_beside_its_pixels_is_named(tmp_path):
    write_words(tmp_path)
    notes = {file.path: file.note for file in list_files(tmp_path)}
    assert notes.pop("IM0001") == notes.pop("dicom") == "DICOM with PatientName"
    assert {path: note for path, note in notes.items() if not path.startswith("plain")} == {
        "words.jpg": "data with EXIF ImageDescription, EXIF UserComment",
        "words.tif": "data with EXIF ImageDescription",
        "xmp.jpg": "data with comment, xmp", "words.png": "data with tEXt", "late.png": "data with tEXt",
        "exif.png": "data with eXIf", "words.webp": "data with EXIF", "words.mha": "data with Comment",
        "words.nrrd": "data with patient, comment", "words.nii.gz": "data with descrip",
    }  # fmt: skip
    assert {note for path, note in notes.items() if path.startswith("plain")} == {"data"}
    assert "words beside pixels (10): " in (said := "\n".join(describe(tmp_path)))
    assert "name no patient" in said


def test_what_lies_in_a_zip_file_is_looked_at_as_if_it_lay_beside_it(tmp_path):
    write_scan(tmp_path / "scan.dcm", PatientName="Doe^Jane")
    members = {
        "a": {"scan": (tmp_path / "scan.dcm").read_bytes()}, "b": {"x/.env": b""}, "c": {"x": b"hf_" + b"a" * 20},
    }  # fmt: skip
    for name, files in members.items():
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as packed:
            [packed.writestr(member, content) for member, content in files.items()]
    assert describe_file(tmp_path / "a.zip", "a.zip") == "DICOM with PatientName"
    contents.check_file(tmp_path / "a.zip")
    for name, words in (("b", r"b\.zip/x/\.env: is named like"), ("c", r"c\.zip/x, line 1: .* Hugging Face")):
        with pytest.raises(ConfigError, match=words):
            contents.check_file(tmp_path / f"{name}.zip")


def test_a_broken_scan_is_named_a_name_that_acts_on_the_terminal_is_written_out_and_a_link_is_refused(tmp_path):
    for content in (b"", b"\0" * 128 + b"DICM", b"\0" * 128 + b"DICM" + b"\xff" * 200, b"junk" * 99):
        (tmp_path / "x.dcm").write_bytes(content)
        (one,) = list_files(tmp_path)
        assert one.is_dicom
    (tmp_path / "x.dcm").unlink()
    (tmp_path / "a\x1b[2Jb\nc.txt").write_text("1")
    assert "\x1b" not in "".join(lines := describe(tmp_path))
    assert "\\x1b[2Jb c.txt" in lines[0]
    (tmp_path / "link").symlink_to("/etc/hostname")
    with pytest.raises(ConfigError, match="is a link"):
        list_files(tmp_path)


def test_what_came_back_is_compared_by_name_and_content(tmp_path):
    for name in ("same", "changed", "gone"):
        (tmp_path / name).write_text(name)
    sent = {file.path: file.sha256 for file in list_files(tmp_path)}
    assert compare_files(sent, tmp_path) == []
    (tmp_path / "changed").write_text("other")
    (tmp_path / "gone").unlink()
    (tmp_path / "new").write_text("1")
    (tmp_path / "same").unlink()
    (tmp_path / "same").symlink_to("/etc/hostname")
    complaints = ["gone is missing", "new was never sent", "changed has other content", "same has other content"]
    assert compare_files(sent, tmp_path) == complaints


CHOSEN = [  # the version, the bump and those that are there: the next one
    ((None, None, []), "0.1.0"), (("2.0", None, ["0.1.0"]), "2.0"), ((None, "patch", []), "0.1.0"),
    ((None, "patch", ["0.9.0", "0.10.1", "0.2.0"]), "0.10.2"), ((None, "minor", ["1.2.3"]), "1.3.0"),
    ((None, "major", ["1.2.3", "latest", "<script>"]), "2.0.0"), ((None, "patch", ["1.0.0rc1"]), "1.0.1"),
]  # fmt: skip
IMPOSSIBLE = [
    (("0.1", None, ["0.1.0"]), r"there has it already; allowed: --version 0\.1\.1"),
    ((None, None, ["0.1.0", "0.4.0"]), r"allowed: --version 0\.4\.1, or --bump"),
    (("1.0", "patch", []), "one of them"), ((None, "huge", []), "allowed: patch, minor, major"),
]  # fmt: skip


def test_the_next_version_and_one_that_cannot_be():
    for given, chosen in CHOSEN:
        assert choose_version(*given, "there") == chosen
    for given, words in IMPOSSIBLE:
        with pytest.raises(ConfigError, match=words):
            choose_version(*given, "there")


LOCAL = ("/data/a.csv", "~/a", "~me/a", "C:\\a", "d:/a", "\\\\server\\a", "file:///a", " /data/a", "/etc")
ANYWHERE = (
    "", "a", "a/b.csv", "/no_think", "https://x.org/a/b", "1/2", "owner/name", "half / whole", "~", "a: b",
    "/think now",
)  # fmt: skip


def test_a_path_of_this_machine_is_refused_wherever_it_stands_and_other_text_is_none():
    for text in LOCAL:
        assert names_local_path(text)
        for value in (text, [1, text], {"a": {"b": text}}, {text: 1}):
            with pytest.raises(ConfigError, match="is a path of this machine"):
                check_portable(value, "env")
    for text in ANYWHERE:
        assert not names_local_path(text)
        assert hide_paths({"a": [text]}) == {"a": [text]}
    assert names_local_path(f"python {Path.home()}/server.py")
    assert not names_local_path(f"https://x.org{Path.home()}/server.py")


PATHS = [
    ("digits", {"templates": {"notes": "/data/a.txt"}}, r"env\.templates\.notes: '/data/a\.txt' is a path"),
    ("mixture", {"environments": {"digits": {}, "software_adviser": {"catalogue": "/data/a.jsonl"}}},
        r"software_adviser\.catalogue: '/data/a\.jsonl' is a path"),
]  # fmt: skip


@each("name, settings, words", PATHS)
def test_a_package_with_a_path_in_its_settings_is_not_written(tmp_path, name, settings, words):
    with pytest.raises(ConfigError, match=words):
        publish(name, tmp_path / "out", settings=settings)
    assert not (tmp_path / "out").exists()


def test_a_package_that_depends_on_viewbox_carries_no_copy_and_plays(tmp_path, monkeypatch):
    check_only(monkeypatch, "verifiers")
    package = publish("digits", tmp_path / "out", settings={"split": "test", "num_tasks": 3}, viewbox="dependency")
    assert not list(tmp_path.glob("out/*/_vendor"))
    needed = tomllib.loads((tmp_path / "out" / "pyproject.toml").read_text())["project"]["dependencies"]
    assert set(needed) == {contents.VERIFIERS, contents.require_viewbox(__version__)}
    assert "pip installs with the package" in (tmp_path / "out" / "README.md").read_text()
    assert any(line.startswith("verifiers: ") for line in package.findings)
