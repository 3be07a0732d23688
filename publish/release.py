"""A release on its way: each file is listed, a person agrees, the hub takes it, and what it gives back is tried.

A file is listed with what it says in words beside its pixels, which may name a person: headers are read, and nothing is
decoded.
"""

import gzip
import re
import struct
import subprocess
import tempfile
import venv
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, TypedDict

import pydicom
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.version import InvalidVersion, Version
from PIL import ExifTags, JpegImagePlugin, TiffImagePlugin

from ..errors import ConfigError
from ..images.files.dicom_header import is_dicom
from ..images.files.formats import TIFFS
from ..images.files.volume_files import MAX_HEADER, get_header_size, is_headed
from ..utils.terminal import make_line
from .contents import COPY, read_members
from .hubs import Hub, open_hub
from .hubs.base import Kind, Release, SentFile, compute_hash
from .hubs.hf import OF_THE_HUB

# What people read or Python runs, and the weights of models; everything else is data.
TEXT = (".py", ".pyi", ".j2", ".toml", ".md")
TEXT_NAMES = ("py.typed", "LICENSE", "NOTICE")
WEIGHTS = ".safetensors"
TITLE = re.compile(r"(?i)\b(?:the|licen[cs]e|version|public|software)\b|v(?=\d)|[\s,-]+")  # what no SPDX name has
BUMPS = ("patch", "minor", "major")
FIRST = "0.1.0"
DICOM = (
    "PatientName", "PatientID", "PatientBirthDate", "PatientAddress", "OtherPatientIDs", "AccessionNumber",
    "InstitutionName", "ReferringPhysicianName", "StudyDate",
)  # fmt: skip
EXIF = re.compile("Description|Name|Artist|Copyright|Computer|DateTime|Comment|XP|GPSInfo|XMLPacket|IPTC")
META = re.compile(rb"Comment|Name|Patient|Study|Series|Date|Time")  # keys with words as values
PNG, CHUNKS = b"\x89PNG", (b"tEXt", b"zTXt", b"iTXt", b"eXIf", b"EXIF", b"XMP ")  # of PNG and WebP
NIFTI = {"db_name": (14, 32), "descrip": (148, 228), "aux_file": (228, 252)}  # bytes
# Imports the package as verifiers does, in the environment that it was installed into
OPEN = """
import gc, importlib, sys

module, name = sys.argv[1:]
import verifiers.v1 as vf

env_class, package = vf.environment_class(name), importlib.import_module(module)
assert env_class is package.ViewboxEnv, f"verifiers resolves {name!r} to {env_class}"
from viewbox.integrations.verifiers import ViewboxTasksetConfig

taskset = getattr(package, package.__all__[0])(ViewboxTasksetConfig(id=name))
data = next(iter(taskset)).data
data.env().reset(data.task(), seed=0)
gc.freeze()  # else it takes a second to end
"""
MAX_LISTED = 5  # files that a message names
VERSION = r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?"
# Called with the lines that describe a release; False: nothing is sent.
Confirm = Callable[[list[str]], bool]


class ReleaseOptions(TypedDict, total=False):
    """Where a release goes, and how.

    Args:
        to: where to: dir, a folder; prime, the Environments Hub of Prime Intellect; hf, the Hugging Face hub. Default:
            dir.
        id: name of the package, by default viewbox-NAME; on a hub OWNER/NAME.
        version: version. Default: that of the folder, or 0.1.0.
        bump: raise this part of the latest version there: patch, minor or major.
        license: license (SPDX). Default: what the author's project states; for a model, its base model's.
        public: let everybody read it on the hub. Default: private.
        verify: download what was published, compare it, and install it into a fresh environment. Default: from a hub.
        dry_run: check everything and list the files, without writing or sending them.
        force: replace a package that was written to the folder before.
    """

    to: str
    id: str | None
    version: str | None
    bump: str | None
    license: str | None
    public: bool
    verify: bool | None
    dry_run: bool
    force: bool


@dataclass(frozen=True)
class PublishedPackage:
    """A package that was written or sent, or would be; `place` is its folder or address, `bytes` its size.
    `findings` says what was checked and done."""

    id: str
    version: str
    place: str
    files: int
    bytes: int
    findings: tuple[str, ...]


class Delivery:
    """The way of one release to its target; `confirm` is asked before anything leaves this machine."""

    def __init__(self, kind: Kind, out: str | Path | None, target: ReleaseOptions, confirm: Confirm | None) -> None:
        public, force = target.get("public", False), target.get("force", False)
        self.hub = open_hub(target.get("to", "dir"), kind, target.get("id"), out, public=public, force=force)
        self.target, self.confirm = target, confirm

    def choose_version(self, stated: str | None = None) -> str:
        """Choose the version of the release; `stated` is the one that its source has."""
        version, bump = self.target.get("version"), self.target.get("bump")
        version = version if version or bump else stated
        if version is not None and not re.fullmatch(VERSION, version):
            raise ConfigError(f"--version {version!r}; allowed: a release such as 0.1.0, 1.2, 1.0rc1 or 1.0.post1")
        held = self.hub.list_versions() if bump or self.hub.asks else ()
        return choose_version(version, bump, held, self.hub.describe())

    def send(self, release: Release, findings: Sequence[str]) -> PublishedPackage:
        """Send the release, or say what would be sent; `findings` is what was found before. Raise `ConfigError` if
        nobody agreed, the hub refused, or what it gives back is not what was sent."""
        hub, dry_run, verify = self.hub, self.target.get("dry_run", False), self.target.get("verify")
        findings = list(findings)
        if not dry_run:
            hub.check(release)
            if hub.asks and (self.confirm is None or not self.confirm(describe_release(release, hub.describe()))):
                raise ConfigError("nothing was sent", key="yes")
            address = hub.push(release)
            findings += [f"sent to {address}"] if hub.asks else []
            findings += verify_release(hub, release) if (hub.asks if verify is None else verify) else []
        if dry_run or not hub.asks:
            findings += describe_release(release, hub.describe(), every=hub.asks)
        place, files = hub.describe(), len(release.files)
        return PublishedPackage(release.name, release.version, place, files, release.size, tuple(findings))


def verify_release(hub: Hub, release: Release) -> list[str]:
    """Download a release, compare each file with what was sent, and install a package into a fresh environment. Raise
    `ConfigError` if a file differs, or the installed package does not open its first task."""
    with tempfile.TemporaryDirectory(prefix="viewbox-verify-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary).resolve() / "downloaded"
        folder.mkdir()
        hub.fetch(release, folder)
        _refuse_changes(compare_files(release.hashes, folder, (*OF_THE_HUB, ".cache")), hub, "gives back")
        findings = [f"downloaded again: all {len(release.files)} files are those that were sent"]
        if release.kind == "environment":
            findings.append(install_and_open(hub, release, folder))
    return findings


def install_and_open(hub: Hub, release: Release, folder: Path) -> str:
    """Install a package from its hub into a fresh virtual environment, and open its first task there.
    `folder` is what was downloaded."""
    place = folder.parent / "environment"
    venv.EnvBuilder(with_pip=True, symlinks=True).create(place)
    bin = place / "bin"
    hub.install(release, folder, bin)
    python = str(bin / "python")
    query = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    libraries = Path(subprocess.run([python, "-c", query], capture_output=True, text=True, check=True).stdout.strip())
    inside = f"{release.module}/"
    hashes = {name.removeprefix(inside): value for name, value in release.hashes.items() if name.startswith(inside)}
    _refuse_changes(compare_files(hashes, libraries / release.module), hub, "installs")
    command = [python, "-I", "-c", OPEN, release.module, release.name]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder.parent, check=False)
    if done.returncode:
        raise ConfigError(f"what was published does not work where it is installed:\n{done.stderr.strip()[-2000:]}")
    return "installed from there into a fresh environment: verifiers finds it and opens its first task"


def _refuse_changes(changes: list[str], hub: Hub, verb: str) -> None:
    if changes:
        more = f" and {len(changes) - MAX_LISTED} more" if len(changes) > MAX_LISTED else ""
        raise ConfigError(
            f"{hub.describe()} {verb} something else than was sent: {'; '.join(changes[:MAX_LISTED])}{more}. "
            "Do not use it; delete it there, and ask the hub",
            key="to",
        )


def list_files(folder: Path) -> tuple[SentFile, ...]:
    """Return every file of a folder, sorted. Raise `ConfigError` if one of them is a link or no regular file."""
    files = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ConfigError(f"{path}: is a link, or no regular file; allowed: files and folders")
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            files.append(SentFile(name, path.stat().st_size, compute_hash(path), describe_file(path, name)))
    return tuple(files)


def describe_file(path: Path, name: str) -> str:
    """Return what kind of file it is, for the list that a person reads; empty for code and text."""
    if path.suffix in TEXT or path.name in TEXT_NAMES or COPY.fullmatch(name):
        return ""
    if path.suffix == WEIGHTS:
        return "weights"
    with path.open("rb") as file:
        contents = [find_words(file, name)]
    contents += [find_words(BytesIO(content), member) for member, content in read_members(path)]
    kind = "DICOM" if "DICOM" in dict(contents) else "data"
    words = dict.fromkeys(word for _, words in contents for word in words)
    return f"{kind} with {', '.join(words)}" if words else kind


def describe_release(release: Release, place: str, *, every: bool = True) -> list[str]:
    """Return the lines that a person reads before the files leave: each file, and then what to look at twice.
    `every` says whether each file has a line, or scans and what is no code of a package alone."""
    lines = [
        f"{file.size:>12,}  {make_line(file.path)}" + (f"  ({file.note})" if file.note else "")
        for file in release.files
        if every or file.is_dicom or (file.note and "/_vendor/" not in file.path)
    ]
    data = [file for file in release.files if file.note.startswith("data")]
    scans = [file for file in release.files if file.is_dicom]
    about = f"{release.name} {release.version}, {len(release.files)} files, {release.size / 1000:,.0f} kB"
    lines += [f"{about}; to {place}"] if every else []
    worded = [file for file in data if file.note != "data"]
    for kind, files in (("data files", data), ("words beside pixels", worded), ("DICOM files", scans)):
        names = [file.path if files is data else f"{file.path} ({file.note})" for file in files]
        lines += [f"{kind} ({len(files)}): {_list_some(names)}"] * bool(files)
    if scans or worded:
        lines.append("their headers travel as they are: make sure that they name no patient")
    return lines


def _list_some(names: list[str], most: int = 20) -> str:
    rest = f" and {len(names) - most} more, listed above" if len(names) > most else ""
    return ", ".join(map(make_line, names[:most])) + rest


def compare_files(sent: Mapping[str, str], folder: Path, ignored: Collection[str] = ()) -> list[str]:
    """Return how the files of a folder differ from those that were sent; empty if they are the same.
    Names in `ignored`, at the top, are not looked at, nor is `__pycache__` anywhere."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if name.parts[0] in ignored or "__pycache__" in name.parts or (path.is_dir() and not path.is_symlink()):
            continue
        found[name.as_posix()] = "a link" if path.is_symlink() else compute_hash(path)
    lines = [f"{make_line(name, 200)} is missing" for name in sent if name not in found]
    lines += [f"{make_line(name, 200)} was never sent" for name in found if name not in sent]
    lines += [f"{make_line(name, 200)} has other content" for name in sent if found.get(name, sent[name]) != sent[name]]
    return lines


def choose_version(version: str | None, bump: str | None, held: Sequence[str], where: str) -> str:
    """Return the version of the next release. Raise `ConfigError` if the version exists there, or both or an unknown
    part are given.

    Args:
        version: the version that was asked for.
        bump: "patch", "minor" or "major": the part of the latest held version that is raised.
        held: the versions that exist there; what is no version is passed over.
        where: the place, for messages.

    >>> choose_version(None, "minor", ["0.1.0", "0.2.1"], "hub"), choose_version(None, None, [], "hub")
    ('0.3.0', '0.1.0')
    """
    if bump is not None and bump not in BUMPS:
        raise ConfigError(f"--bump {bump!r}; allowed: {', '.join(BUMPS)}", key="bump")
    if bump is not None and version is not None:
        raise ConfigError(f"--bump {bump} and --version {version}; allowed: one of them", key="bump")
    known = sorted(Version(text) for text in held if is_version(text))
    if bump is not None:
        return bump_version(known[-1], bump) if known else FIRST
    chosen = version or FIRST
    if Version(chosen) in known:
        following = bump_version(known[-1], "patch")
        raise ConfigError(
            f"--version {chosen}: {where} has it already; allowed: --version {following}, or --bump patch|minor|major",
            key="version",
        )
    return chosen


def bump_version(version: Version, part: str) -> str:
    """Return the release after a version, with one part raised.

    >>> [bump_version(Version("1.2.3rc1"), part) for part in BUMPS]
    ['1.2.4', '1.3.0', '2.0.0']
    """
    major, minor, patch = version.major, version.minor, version.micro
    if part == "major":
        return f"{major + 1}.0.0"
    return f"{major}.{minor + 1}.0" if part == "minor" else f"{major}.{minor}.{patch + 1}"


def read_license(text: str) -> str:
    """Return a license as SPDX writes it.

    >>> read_license("apache-2.0 OR mit")
    'Apache-2.0 OR MIT'
    >>> read_license("Apache License, Version 2.0")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: license = 'Apache License, Version 2.0'; allowed: an SPDX name such as Apache-2.0 or \
CC-BY-4.0, or LicenseRef-NAME for one of your own (did you mean 'Apache-2.0'?)
    """
    name, licenses = "-".join(filter(None, TITLE.split(text))), []
    for spelled in (text, *(name + end for end in ("", ".0", "-Clause", "-only"))):
        with suppress(InvalidLicenseExpression):
            licenses.append(canonicalize_license_expression(spelled))
        if licenses and spelled is text:
            return licenses[0]
    near = f" (did you mean {licenses[0]!r}?)" if licenses else ""
    allowed = "an SPDX name such as Apache-2.0 or CC-BY-4.0, or LicenseRef-NAME for one of your own"
    raise ConfigError(f"license = {text!r:.100}; allowed: {allowed}{near}", key="license")


def is_version(text: str) -> bool:
    """Return whether a text is a version (PEP 440)."""
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def find_words(file: BinaryIO, name: str) -> tuple[str, list[str]]:
    """Return "DICOM" and the tags that may name a person and have a value; of another file "data" and what holds words.

    >>> find_words(BytesIO(b"words"), "words.txt")
    ('data', [])
    """
    head = file.read(MAX_HEADER)
    file.seek(0)
    kind = "DICOM" if is_dicom(head) or name.lower().endswith((".dcm", ".dicom", ".ima")) else "data"
    with suppress(Exception):  # pydicom and Pillow raise anything for a damaged file
        if kind == "data":
            return kind, list(dict.fromkeys(_iter_words(file, head)))
        header = pydicom.dcmread(file, stop_before_pixels=True, specific_tags=list(DICOM), force=True)
        return kind, [tag for tag in DICOM if str(header.get(tag, "") or "").strip()]
    return kind, ["a header that cannot be read"]


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
