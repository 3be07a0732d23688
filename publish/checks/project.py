"""The project that is checked: what its pyproject.toml says, a copy of it elsewhere, and its wheel."""

import re
import shutil
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...utils.files import open_regular, read_regular
from ..contents import CODE, MAX_FILE
from .process import Limits, run_limited
from .rows import Failed

ENTRY_POINTS = "viewbox.environments"  # the group whose one entry names the environment of a package
MARK = b"Written by `viewbox publish`"
LEFT = ("__pycache__", "build", "dist", "node_modules")  # folders that are made, not written
KEPT = (".gitignore", ".github")  # the hidden ones that are copied
# What `viewbox new` says of its example
EXAMPLE = ("How many bright discs", "The pictures are drawn by the code; no data of others is in here", "counting")
MAX_WHEEL = 2**30  # bytes that a wheel unpacks to
AT_START = re.compile(r".*\.(pth|egg-link)|(sitecustomize|usercustomize)(\..*)?", re.IGNORECASE)  # Python runs them
BUILD = """
import sys, tomllib
from operator import attrgetter
from importlib import import_module
from pathlib import Path

to = sys.argv[1]  # a build backend may change it
build = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8")).get("build-system", {})
sys.path[:0] = [str(Path(folder).resolve()) for folder in build.get("backend-path", ())]
module, _, name = build.get("build-backend", "setuptools.build_meta:__legacy__").partition(":")
backend = import_module(module)
attrgetter(f"{name}.build_wheel" if name else "build_wheel")(backend)(to)
"""


@dataclass(frozen=True)
class Project:
    """A folder with a pyproject.toml."""

    folder: Path
    table: Mapping[str, Any]
    build: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.table.get("name", ""))

    @property
    def environment(self) -> str:
        """`module:Class`, or "" if the project names no environment."""
        entries = self.table.get("entry-points", {}).get(ENTRY_POINTS, {})
        return str(next(iter(entries.values()))) if len(entries) == 1 else ""

    @property
    def module(self) -> str:
        """The top-level module that holds the environment."""
        return self.environment.partition(":")[0].split(".")[0]

    @property
    def is_published(self) -> bool:
        """Whether `viewbox publish` wrote it, for verifiers."""
        try:
            return bool(self.module) and MARK in read_regular(self.folder / self.module / "__init__.py", limit=MAX_FILE)
        except OSError:  # there is none
            return False

    @property
    def home(self) -> Path:
        """The folder that holds the module: `src`, or the folder itself."""
        source = self.folder / "src"
        return source if (source / self.module).exists() or (source / f"{self.module}.py").exists() else self.folder

    def list_files(self, *, hidden: bool = False) -> list[Path]:
        """Return the files of the module, relative to the folder, without what Python writes, and hidden ones if asked
        for."""
        single = self.home / f"{self.module}.py"
        found = [single] if single.is_file() else sorted((self.home / self.module).rglob("*"))
        files = [path for path in found if (path.is_symlink() and hidden) or (path.is_file() and path.suffix != ".pyc")]
        paths = [path.relative_to(self.folder) for path in files]
        left = [path for path in paths if not any(part in LEFT for part in path.parts)]
        return left if hidden else [path for path in left if not any(part[0] == "." for part in path.parts)]


def is_project(path: str | Path) -> bool:
    """Whether a path is a folder with a pyproject.toml."""
    return (Path(path) / "pyproject.toml").is_file()


def read_toml(folder: Path) -> dict[str, Any]:
    """Read the pyproject.toml of a folder; raise `ConfigError` if it is not TOML."""
    file = folder / "pyproject.toml"
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: cannot be read as a project ({type(error).__name__}: {error!s:.200})") from error


def read_project(folder: Path) -> Project:
    """Read the project in a folder. Raise `ConfigError` if there is no pyproject.toml, or it is not TOML with a section
    `project`."""
    if not is_project(folder):
        raise ConfigError(f"{folder}: has no pyproject.toml; allowed: the folder of a package (`viewbox new NAME`)")
    read = read_toml(folder)
    table, build = read.get("project"), read.get("build-system", {})
    if not isinstance(table, dict) or not isinstance(build, dict):
        problem = "`project` and `build-system` are not tables"
        raise ConfigError(f"{folder / 'pyproject.toml'}: cannot be read as a project ({problem})")
    return Project(folder, table, build)


def list_left_words(project: Project) -> list[str]:
    """Return which parts of a project still say what `viewbox new` says of its example, if it is another environment
    now."""
    files = [path for path in project.list_files() if path.suffix in CODE]
    code = [read_regular(project.folder / path, limit=MAX_FILE) for path in files]
    if any(re.search(rb"\bdiscs\b", re.sub(rb'"""[\s\S]*?"""|#.*', b"", text)) for text in code):
        return []
    said = {name: str(project.table.get(name)) for name in ("description", "keywords")}
    with suppress(OSError):  # the row `metadata` says it
        content = read_regular(project.folder / str(project.table.get("readme")), limit=MAX_FILE)
        said["README"] = content.decode("utf-8", "replace")
    return [place for place, text in said.items() if any(words in text for words in EXAMPLE)]


def copy_project(project: Project, to: Path) -> Project:
    """Return a copy of a project elsewhere: what works there does not lean on the folder it was written in."""

    def leave_out(folder: str, names: list[str]) -> list[str]:
        is_top = Path(folder) == project.folder  # what is hidden deeper may be packed
        hidden = [name for name in names if is_top and name.startswith(".") and name not in KEPT]
        made = [
            name
            for name in names
            if name in (*LEFT, ".git") or name.endswith(".egg-info") or (Path(folder) / name / "pyvenv.cfg").is_file()
        ]
        return [*hidden, *made]

    try:
        shutil.copytree(project.folder, to, symlinks=True, ignore=leave_out)
    except (OSError, RecursionError) as error:  # such as a pipe or a socket
        raise ConfigError(f"{project.folder}: cannot be copied ({error!s:.300}); allowed: files and folders") from error
    return Project(to, project.table, project.build)


def build_wheel(project: Project, to: Path, *, home: Path, limits: Limits) -> Path:
    """Build the wheel of a project into a new folder, in a process with limits and a home folder of its own. Raise
    `Failed` if the build fails, or gives no wheel."""
    to.mkdir()
    command: list[str | Path] = [sys.executable, "-s", "-P", "-c", BUILD, to]
    outcome = run_limited(command, folder=project.folder, home=home, limits=limits)
    wheels = list(to.glob("*.whl"))
    if outcome.status != 0 or len(wheels) != 1:
        backend = project.build.get("build-backend", "setuptools")
        requires = " ".join(map(str, project.build.get("requires", ["setuptools"])))
        lacks = re.search(r"ModuleNotFoundError: No module named '([\w.]+)'\s*$", outcome.tail)
        if lacks and str(backend).startswith("hatchling"):
            raise Failed(f"{lacks[1]}, which builds it, is not installed", "pip install 'viewbox[hub]'")
        missing = f"install what builds it: pip install '{requires}'" if lacks else None
        raise Failed(f"the build by {backend} {outcome.explain()}", missing)
    return wheels[0]


def runs_at_start(name: str) -> bool:
    """Return whether Python runs a file of a wheel by itself: at the top, or wherever pip puts what is in `.data`.

    >>> [runs_at_start(name) for name in (".//sitecustomize.pyc", "a-1.data/purelib/x.pth", "a/weights.pth")]
    [True, True, False]
    """
    parts = [segment for segment in re.split(r"[/\\]", name) if segment not in ("", ".", "..")]
    places = parts if parts and parts[0].lower().endswith(".data") else parts[:1]
    return any(AT_START.fullmatch(segment) for segment in places)


@contextmanager
def open_wheel(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a wheel that an author's build made. Raise `Failed` if it is no regular file, unpacks to too much, or holds
    a file that Python would run at its start."""
    try:
        with open_regular(path, limit=MAX_WHEEL, inside=path.parent) as opened, zipfile.ZipFile(opened) as file:
            size = sum(member.file_size for member in file.infolist())
            if size > MAX_WHEEL:
                raise Failed(f"the wheel holds {size / 2**30:.1f} GiB; allowed: {MAX_WHEEL / 2**30:g} GiB")
            if at_start := [name for name in file.namelist() if runs_at_start(name)]:
                raise Failed(f"the wheel holds {at_start[0]!r:.200}, which Python runs whenever it starts")
            yield file
    except (OSError, zipfile.BadZipFile) as error:
        raise Failed(f"the wheel {path.name!r:.200} cannot be read ({error!s:.200})") from error
