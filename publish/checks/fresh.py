"""Makes a fresh virtual environment that holds a wheel, what it declares, and nothing else; without a network.

The declared packages, and those that these declare, are linked from the environment in which viewbox runs. What a
package imports without declaring it is therefore missing, as it would be after `pip install`. The versions are those
installed here: whether a lower bound is low enough is not tried.
"""

import os
import re
import venv
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement

from ...utils.files import open_regular
from ...version import __version__
from .rows import Failed, shorten

SCRIPT = "#!{python}\nimport sys\nfrom {module} import {name}\nsys.exit({call}())\n"
SCRIPT_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*", re.ASCII)  # a file of one folder
CALL = re.compile(r"\s*([^\W\d]\w*(?:\.[^\W\d]\w*)*)\s*:\s*([^\W\d]\w*(?:\.[^\W\d]\w*)*)\s*(?:\[[\w\s,.-]*\])?\s*")
AT_START = re.compile(r"[^/]*\.(pth|egg-link)|(sitecustomize|usercustomize)(\.py|/.*)", re.IGNORECASE)  # run by Python
MEND_SCRIPTS = "correct [project.scripts] in pyproject.toml"
MAX_SCRIPTS, MAX_MEMBERS, MAX_WHEEL = 200, 100_000, 2**30  # of a wheel: programs, files, and their bytes unpacked


def make_environment(folder: Path, wheel: Path, found: Iterable[Distribution]) -> Path:
    """A virtual environment with a wheel and linked distributions; returns its Python."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    libraries = next(folder.glob("lib/python*/site-packages"))
    with open_wheel(wheel) as file:
        file.extractall(libraries)
    own = [Distribution.at(path) for path in libraries.glob("*.dist-info")]
    others = list(found)
    for one in others:
        _link(one, libraries)
    python = folder / "bin" / "python"
    for one in [*own, *others]:
        _write_scripts(one, folder / "bin", python)
    return python


@contextmanager
def open_wheel(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a wheel that an author's build made.

    Raises:
        Failed: it is no regular file, unpacks to too much, or holds a file that leads out of its folder or that Python
            would run at its start.
    """
    try:
        with open_regular(path, limit=MAX_WHEEL, inside=path.parent) as opened, zipfile.ZipFile(opened) as file:
            members = file.infolist()
            size = sum(one.file_size for one in members)
            if len(members) > MAX_MEMBERS or size > MAX_WHEEL:
                most = f"{MAX_MEMBERS:,} files of {MAX_WHEEL / 2**30:g} GiB"
                raise Failed(f"the wheel holds {len(members):,} files of {size / 2**30:.1f} GiB; allowed: {most}")
            for one in members:
                parts = PurePosixPath(one.filename.replace("\\", "/")).parts
                if one.filename.startswith(("/", "\\")) or ".." in parts or ":" in one.filename[:2]:
                    raise Failed(f"the wheel holds {one.filename!r:.200}, which leads out of its folder")
                if AT_START.fullmatch("/".join(parts)):
                    raise Failed(f"the wheel holds {one.filename!r:.200}, which Python runs whenever it starts")
            yield file
    except (OSError, zipfile.BadZipFile) as error:
        raise Failed(f"the wheel {path.name!r:.200} cannot be read ({error!s:.200})") from error


def find_requirements(names: Sequence[str]) -> list[Distribution]:
    """The distributions that requirements name, and all that these require, as installed here.

    Raises:
        Failed: a requirement cannot be read, is not installed here, or is in a version that it does not allow.
    """
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    problems: list[str] = []
    waiting = [(name, frozenset[str](), True) for name in names]
    while waiting:
        text, extras, is_direct = waiting.pop()
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            problems.append(f"{text!r} is not a requirement ({error})")
            continue
        if requirement.marker and not any(requirement.marker.evaluate({"extra": one}) for one in (*extras, "")):
            continue
        key, wanted = normalize(requirement.name), frozenset(requirement.extras)
        if (key, wanted) in seen:
            continue
        seen.add((key, wanted))
        try:
            found[key] = distribution(requirement.name)
        except PackageNotFoundError:
            problems.append(f"{text} is not installed here") if is_direct else None
            continue
        version = __version__ if key == "viewbox" else found[key].version  # of the source that runs
        if is_direct and not requirement.specifier.contains(version, prereleases=True):
            problems.append(f"{text}: version {version} is installed here")
        waiting += [(line, wanted, False) for line in found[key].requires or ()]
    if problems:
        raise Failed(shorten(problems))
    return list(found.values())


def find_installed(names: Sequence[str]) -> list[Distribution]:
    """The distributions that requirements name, and all that these require, as far as they are installed here."""
    found: list[Distribution] = []
    for name in names:
        try:
            found += find_requirements([name])
        except Failed:
            continue
    return found


def normalize(name: str) -> str:
    """The name of a distribution as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def list_modules(found: Distribution) -> set[str]:
    """The top-level modules of a distribution."""
    if normalize(found.name) == "viewbox":
        return {"viewbox"}
    tops = {Path(path.parts[0]) for path in _list_files(found) if path.suffix in (".py", ".so", ".pyd")}
    return {top.name.partition(".")[0] for top in tops}


def _link(found: Distribution, libraries: Path) -> None:
    """Link a distribution into a folder. A folder of it is linked whole if it is a regular package."""
    if normalize(found.name) == "viewbox":
        _link_path(Path(__file__).parents[2], libraries / "viewbox")
    files = list(_list_files(found))
    packages = {path.parent for path in files if path.name == "__init__.py"}
    done: set[PurePosixPath] = set()
    for path in files:
        above = (parent for parent in reversed(path.parents) if parent in packages or parent.suffix == ".dist-info")
        place = next(above, path)
        if place not in done:
            done.add(place)
            _link_path(Path(str(found.locate_file(str(place)))), libraries / place)


def _list_files(found: Distribution) -> Iterator[PurePosixPath]:
    """The files of a distribution in its folder of libraries; of an installed viewbox, its description only."""
    own = normalize(found.name) == "viewbox"
    for path in found.files or ():
        if path.parts[0] not in ("..", "__pycache__") and (not own or path.parts[0].endswith(".dist-info")):
            yield PurePosixPath(path)


def _link_path(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not os.path.lexists(to):
        to.symlink_to(path.absolute())


def _write_scripts(found: Distribution, folder: Path, python: Path) -> None:
    """Write the programs of a distribution, of which none replaces what is there, such as the Python itself."""
    entries = [one for group in ("console_scripts", "gui_scripts") for one in found.entry_points.select(group=group)]
    if len(entries) > MAX_SCRIPTS:
        raise Failed(f"{found.name} declares {len(entries):,} scripts; allowed: {MAX_SCRIPTS}", MEND_SCRIPTS)
    for entry in entries:
        call = CALL.fullmatch(entry.value)
        if not SCRIPT_NAME.fullmatch(entry.name) or call is None:
            given = f"script {entry.name!r:.200} = {entry.value!r:.200}"
            allowed = 'a name of letters, digits, "_", "-" and ".", and "module:function"'
            raise Failed(f"{given}; allowed: {allowed}", MEND_SCRIPTS)
        if not os.path.lexists(folder / entry.name):
            text = SCRIPT.format(python=python, module=call[1], name=call[2].partition(".")[0], call=call[2])
            (folder / entry.name).write_text(text, encoding="utf-8")
            (folder / entry.name).chmod(0o755)
