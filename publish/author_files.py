"""Chooses the files of an author's package that are published: those that its build packs, and nothing secret."""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from glob import glob
from pathlib import Path

from ..errors import ConfigError
from ..utils.secrets import find_key_form

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
    found = {pattern: {*map(Path, glob(pattern, root_dir=package, recursive=True))} & set(files) for pattern in data}
    built = (
        sorted(_walk(packed)) if packed else [path for path in files if path.suffix in CODE or path.name == "py.typed"]
    )
    folders = {path.parent for path in built}
    taken = sorted(
        {
            *built,
            *(path for paths in found.values() for path in paths),
            *(path for path in files if path.parent in folders and is_license(package / path)),
        }
    )
    for pattern, paths in found.items():
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
    content = path.read_bytes()
    for text in (content, content.translate(None, b"\0")):  # the second holds the words of UTF-16 and UTF-32
        for number, line in enumerate([path.name, *text.decode("latin-1").splitlines()]):
            kind = find_key_form(line)
            if kind is not None:
                where = f"line {number}" if number else "its name"
                raise ConfigError(
                    f"{path}, {where}: holds what looks like {kind}, and would be published; "
                    "remove it (and replace the key: it may be in your history); read keys from environment variables"
                )


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
