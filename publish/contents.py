"""Chooses what a package holds: the author's files that the build packs and nothing secret, and what plays of viewbox.

The folders of viewbox that play and score travel whole (`ROOMS`), with the files that these need (`FILES`), as one zip
file that Python imports from. It is the same in every package of one version. The dependencies are what its files and
the author's files import.
"""

import ast
import io
import os
import re
import shutil
import sys
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from glob import glob
from importlib.metadata import packages_distributions, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from ..errors import ConfigError
from ..utils.secrets import find_key_form
from ..version import __version__

CODE = (".py", ".pyi")
# Names of files that hold secrets, in lower case; a Python file may have them, because its content is read.
SECRET_FILES = (
    ".env", ".env.*", "*.env", ".envrc", "credential*", "*credentials*", "client_secret*", "secret*", "*.secret",
    "*secrets.*", "*.pem", "*.key", "*.p8", "*.p12", "*.pfx", "*.ppk", "*.jks", "*.keystore", "*.kdbx", "*.gpg",
    "*.asc", "*.ovpn", "*.token", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "identity", "authorized_keys",
    "known_hosts", "service?account*", "*service?account*.json", "token", "token.*", "token_*", "tokens.*", "*_token",
    "*_token.*", "*api?key*", "*apikey*", "password*", "*passwords.*", "passwd*", ".netrc", "_netrc", ".npmrc",
    ".pypirc", ".pgpass", ".htpasswd", ".git-credentials", ".dockercfg", ".dockerconfigjson", "kubeconfig*",
    "*.kubeconfig", ".boto", ".s3cfg", "rclone.conf", ".bash_history", ".python_history", "wandb-id",
    "terraform.tfstate*", "*.tfvars",
)  # fmt: skip
LICENSES = re.compile(
    r"(licen[cs]es?|copying|notices?|copyright|attributions?|citations?)([-.][\w.-]+)?", re.IGNORECASE
)
MAX_FILE = 64 * 2**20  # bytes
UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError)  # damaged, or with a password
# How a package gets viewbox. The maintainers of viewbox set DEFAULT to "dependency" in the release that an index holds.
Provision = Literal["copy", "dependency"]
PROVISIONS: tuple[Provision, ...] = ("copy", "dependency")
DEFAULT: Provision = "copy"

LIBRARY = f"viewbox-{__version__}.zip"
COPY = re.compile(r"\w+/_vendor/viewbox-([\w.]+)\.zip", re.ASCII)  # viewbox in a package, no data of the author

ROOT = Path(__file__).parents[1]
ROOMS = ("utils", "network", "configs", "images", "rewards", "tools", "core", "envs")
FILES = (
    *("LICENSE", "__init__.py", "py.typed", "errors.py", "registry.py", "records.py", "version.py"),
    *("assets/__init__.py", "integrations/__init__.py", "integrations/session.py", "integrations/verifiers.py"),
)
LEFT_OUT = ("envs/from_config.py", "configs/schema.py", "configs/train_sections.py")  # of a run's config
SUFFIXES = (".py", ".j2")  # code and templates
DATA_SUFFIXES = (".jsonl", ".txt", ".yaml", ".npz")  # only files that the code beside them names
VERIFIERS = "verifiers>=0.4,<0.5"  # without a version, it would be published for the old interface
DATASETS = "datasets>=5"
MCP = "mcp>=2,<3"  # as in the extra
MODELS = ("torch>=2.8", "torchvision>=0.23", "transformers>=5.23,<6")  # bring safetensors and huggingface-hub
DISTRIBUTIONS = {"PIL": "pillow", "cv2": "opencv-python-headless", "yaml": "pyyaml", "pydantic_core": "pydantic"}


@dataclass(frozen=True)
class AuthorFiles:
    """Files of a package, relative to its folder: those that are published, and those that nobody declared."""

    taken: tuple[Path, ...] = ()
    left_out: tuple[Path, ...] = ()


def list_author_files(package: Path, data: Sequence[str] = (), packed: Path | None = None) -> AuthorFiles:
    """Choose the files of a package: those that its build packs, and the data that are named.
    Hidden files and folders and `__pycache__` never travel. License files beside others do.

    Args:
        data: patterns of data files relative to it, which are published, too.
        packed: the package as its wheel holds it; what else is published is copied there. Without it, the package has
            no build, and its Python files are published.

    Raises:
        ConfigError: a link leads out of the package; or a file that would be published is named like a secret, holds
            what looks like a key, or is too large.
    """
    for pattern in data:
        if pattern.startswith("/") or ".." in Path(pattern).parts:
            raise ConfigError(f"--data {pattern!r}: leads out of the package; allowed: a path in {package}", key="data")
    files = sorted(_walk(package))
    matches = {pattern: {*map(Path, glob(pattern, root_dir=package, recursive=True))} & set(files) for pattern in data}
    built = (
        sorted(_walk(packed)) if packed else [path for path in files if path.suffix in CODE or path.name == "py.typed"]
    )
    folders = {path.parent for path in built}
    taken = sorted(
        {
            *built,
            *(path for paths in matches.values() for path in paths),
            *(path for path in files if path.parent in folders and is_license(package / path)),
        }
    )
    for pattern, paths in matches.items():
        if not paths:
            raise ConfigError(f"--data {pattern!r}: no such file in {package}", key="data")
    for path in taken:
        if (package / path).exists():
            check_file(package / path)
        if packed is not None:
            if not (packed / path).exists():
                (packed / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(package / path, packed / path)
            check_file(packed / path)
    return AuthorFiles(tuple(taken), tuple(path for path in files if path not in set(taken)))


def check_name(path: Path, inside: str, *, hidden: bool = False) -> None:
    """Raise `ConfigError` if a file must not be published for its name `inside` a folder: a secret's, or, unless they
    may be, one that is hidden."""
    parts = Path(inside).parts
    if not hidden and any(part.startswith(".") and part != ".." for part in parts):
        problem = "is hidden, or in a hidden folder"
    elif Path(inside).suffix in CODE or not any(fnmatch(parts[-1].lower(), pattern) for pattern in SECRET_FILES):
        return
    else:
        problem = "is named like a file that holds secrets"
    raise ConfigError(f"{path}: {problem}, and would be published; leave it out, or rename it if it holds none")


def check_file(path: Path) -> None:
    """Raise `ConfigError` if a file must not be published: its name or its content is that of a secret."""
    check_name(path, path.name, hidden=True)
    if path.is_symlink() or not path.is_file():
        raise ConfigError(f"{path}: is not a regular file, or a link; allowed: a copy of the file it leads to")
    if path.stat().st_size > MAX_FILE:
        raise ConfigError(f"{path}: {path.stat().st_size:,} bytes; allowed: at most {MAX_FILE:,} in a published file")
    _check_content(path, path.read_bytes())
    for name, content in read_members(path):
        check_name(path / name, name, hidden=True)
        _check_content(path / name, content)


def _check_content(path: Path, content: bytes) -> None:
    for text in {content, content.translate(None, b"\0")}:  # the second holds the words of UTF-16 and UTF-32
        for number, line in enumerate([path.name, *text.decode("latin-1").splitlines()]):
            kind = find_key_form(line)
            if kind is not None:
                where = f"line {number}" if number else "its name"
                raise ConfigError(
                    f"{path}, {where}: holds what looks like {kind}, and would be published; "
                    "remove it (and replace the key: it may be in your history); read keys from environment variables"
                )


def read_members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the files in a zip file, at most `MAX_FILE` bytes of each."""
    if zipfile.is_zipfile(path):
        with suppress(*UNREADABLE), zipfile.ZipFile(path) as packed:
            for member in packed.infolist():
                with packed.open(member) as file:
                    yield member.filename, file.read(MAX_FILE)


def is_license(path: Path) -> bool:
    """Return whether a file is named like a license or an attribution.

    >>> [is_license(Path(name)) for name in ("LICENSE", "license-data.txt", "CITATION.cff", "license.csv")]
    [True, True, True, False]
    """
    is_text = path.suffix.lower() in ("", ".txt", ".md", ".rst", ".cff", ".bib") and not path.is_dir()
    return is_text and LICENSES.fullmatch(path.name) is not None


def _walk(package: Path) -> Iterator[Path]:
    root = package.resolve()
    for folder, folders, names in os.walk(package):
        here = Path(folder)
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        names = [name for name in names if not name.startswith(".")]
        for path in (here / name for name in (*folders, *names)):
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                raise ConfigError(
                    f"{path}: is a link out of the package, to {os.readlink(path)}; "
                    "allowed: files of the package itself; move the link out of the folder, or replace it by a copy"
                )
        yield from ((here / name).relative_to(package) for name in names if not name.endswith((".pyc", ".pyo")))


@cache
def list_library_files() -> tuple[Path, ...]:
    """Return the files of viewbox that travel, relative to its root, sorted."""
    paths = [path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*") if _is_copied(path)]
    return tuple(sorted({*paths, *map(Path, FILES)} - set(map(Path, LEFT_OUT))))


@cache
def pack_library() -> bytes:
    """Return these files as a zip file that says nothing of when and where it was written."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name, content in read_library().items():
            _check_content(ROOT / name, content)
            member = zipfile.ZipInfo(name)  # of 1980
            member.external_attr = 0o644 << 16
            file.writestr(member, content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def read_library() -> dict[str, bytes]:
    """Return the contents of these files by their names in the zip file."""
    return {f"viewbox/{path.as_posix()}": (ROOT / path).read_bytes() for path in list_library_files()}


@cache
def list_library_modules(files: tuple[Path, ...]) -> set[str]:
    """Return the top-level modules that files of viewbox import, without the standard library."""
    return list_third_party(ROOT / path for path in files if path.suffix == ".py")


def list_dependencies(
    author: Iterable[Path],
    *,
    hub: bool = False,
    mcp: bool = False,
    models: bool = False,
    modules: Collection[str] = (),
    viewbox: Provision = DEFAULT,
) -> list[str]:
    """Return the requirements of the published package. For packages that viewbox requires, its own version ranges
    hold; any other package that the author's files import is required at least at the installed version. Raise
    `ConfigError` if the author's files import, or the settings name, a module that belongs to no installed package.

    Args:
        author: the author's Python files.
        hub: whether the tasks are those of a hub dataset.
        mcp: whether tools of an MCP server are offered.
        models: whether a tool runs a model.
        modules: the top-level modules that the settings name.
        viewbox: whether it travels as a copy, whose requirements are then the package's own, or is one of them.
    """
    core = [line.split(";")[0].strip() for line in requires("viewbox") or () if "extra ==" not in line]
    stated = {get_distribution(re.split(r"[^\w.-]", line)[0]): line for line in core} | {"verifiers": VERIFIERS}
    if viewbox == "copy":
        used = map(get_distribution, list_library_modules(list_library_files()))
        needed = {stated[name] for name in used if name in stated}
    else:
        needed = {require_viewbox(__version__)}
    needed |= {*[DATASETS] * hub, *[MCP] * mcp, *MODELS[: len(MODELS) * models]}
    author = list(author)
    local = {path.stem for path in author} | {path.parent.name for path in author}
    installed = packages_distributions() if author or modules else {}
    for module in sorted((list_third_party(author) | set(modules)) - local - set(sys.stdlib_module_names)):
        name = get_distribution(module)
        if name in stated:
            needed.add(stated[name])
        elif module in installed:
            name = installed[module][0]
            needed.add(f"{name}>={version(name)}")
        elif find_spec(module) is not None:
            user = "a specialist names" if module in modules else f"{author[0].name} imports"
            raise ConfigError(
                f"{user} {module!r}, which is not part of an installed package and would be missing; "
                "allowed: both in one package, published as package.module:Class"
            )
    return [VERIFIERS, *sorted(needed - {VERIFIERS})]


def require_viewbox(version: str) -> str:
    """Return the requirement of a package that depends on viewbox: this version or a later patch, which scores the
    same.

    >>> require_viewbox("0.3.1")
    'viewbox>=0.3.1,<0.4'
    """
    major, minor = version.split(".")[:2]
    return f"viewbox>={version},<{major}.{int(minor) + 1}"


def list_third_party(files: Iterable[Path]) -> set[str]:
    """Return the top-level modules that Python files import, without viewbox and the standard library."""
    modules = {name.split(".")[0] for path in files for name in list_imports(path)}
    return modules - set(sys.stdlib_module_names) - {"viewbox"}


def get_distribution(module: str) -> str:
    """Return the name of the package on the index that provides a top-level module."""
    return DISTRIBUTIONS.get(module, module.lower().replace("_", "-"))


def _is_copied(path: Path) -> bool:
    if not path.is_file() or path.is_symlink():
        return False
    return path.suffix in SUFFIXES or (
        path.suffix in DATA_SUFFIXES
        and any(f'"{path.name}"' in code.read_text(encoding="utf-8") for code in path.parent.rglob("*.py"))
    )


def list_imports(path: Path, *, caught: bool = True) -> Iterator[str]:
    """Yield the modules that a file imports by their full names, also inside functions, but not for type checking only.
    `path`: the file. `caught`: whether those count whose failure is caught."""
    waiting: list[ast.AST] = [ast.parse(path.read_bytes())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in vars(node.test).values():  # alone, or of `typing`
            waiting += node.orelse
            continue
        if isinstance(node, ast.Try) and not caught and any("ImportError" in ast.unparse(one) for one in node.handlers):
            waiting += [*node.handlers, *node.orelse, *node.finalbody]
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
