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
MAX_WHEEL = 2**30  # bytes that a wheel unpacks to


def make_environment(folder: Path, wheel: Path, found: Iterable[Distribution]) -> Path:
    """Make a virtual environment with a wheel and linked distributions; returns its Python."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    libraries, python = next(folder.glob("lib/python*/site-packages")), folder / "bin" / "python"
    with open_wheel(wheel) as file:
        file.extractall(libraries)
    for path in libraries.glob("*.dist-info"):
        _write_scripts(Distribution.at(path), python)
    add_distributions(python, found)
    return python


def add_distributions(python: Path, found: Iterable[Distribution]) -> None:
    """Link distributions into the virtual environment of a Python, and write their programs."""
    libraries = next(python.parents[1].glob("lib/python*/site-packages"))
    for one in found:
        _link(one, libraries)
        _write_scripts(one, python)


@contextmanager
def open_wheel(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a wheel that an author's build made.

    Raises:
        Failed: it is no regular file, unpacks to too much, or holds a file that Python would run at its start.
    """
    try:
        with open_regular(path, limit=MAX_WHEEL, inside=path.parent) as opened, zipfile.ZipFile(opened) as file:
            size = sum(one.file_size for one in file.infolist())
            if size > MAX_WHEEL:
                raise Failed(f"the wheel holds {size / 2**30:.1f} GiB; allowed: {MAX_WHEEL / 2**30:g} GiB")
            if at_start := [name for name in file.namelist() if AT_START.fullmatch(name)]:
                raise Failed(f"the wheel holds {at_start[0]!r:.200}, which Python runs whenever it starts")
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


def _write_scripts(found: Distribution, python: Path) -> None:
    """Write the programs of a distribution, of which none replaces what is there, such as the Python itself."""
    entries = [one for group in ("console_scripts", "gui_scripts") for one in found.entry_points.select(group=group)]
    for entry in entries:
        call, file = CALL.fullmatch(entry.value), python.parent / entry.name
        if not SCRIPT_NAME.fullmatch(entry.name) or call is None:
            given = f"script {entry.name!r:.200} = {entry.value!r:.200}"
            allowed = 'a name of letters, digits, "_", "-" and ".", and "module:function"'
            raise Failed(f"{given}; allowed: {allowed}", "correct [project.scripts] in pyproject.toml")
        if not os.path.lexists(file):
            text = SCRIPT.format(python=python, module=call[1], name=call[2].partition(".")[0], call=call[2])
            file.write_text(text, encoding="utf-8")
            file.chmod(0o755)
