"""Rows about a package before it is played: what its files say, its wheel, what it declares, and its import."""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ...errors import ConfigError
from ...version import __version__
from ..contents import COPY, LIBRARY, ROOT, check_file, list_imports, read_library, read_members
from ..release import is_version, read_license
from .project import ENTRY_POINTS, build_wheel, list_left_words, open_wheel
from .rows import Failed, check, shorten
from .trial import Trial

NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"


@check(
    "metadata",
    mend="write them into the section [project] of pyproject.toml; `viewbox new NAME` shows one that is complete",
)
def check_metadata(trial: Trial) -> str:
    """Name, version, description, README and environment are stated."""
    table, problems = trial.project.table, []
    if not re.fullmatch(NAME, trial.project.name):
        problems.append(f"name = {trial.project.name!r}; allowed: letters, digits, '-', '_' and '.'")
    if "version" in table.get("dynamic", ()):
        problems.append("version is dynamic; allowed: a version that is written down")
    elif not is_version(str(table.get("version", ""))):
        problems.append(f"version = {table.get('version')!r}; allowed: such as 0.1.0")
    if not str(table.get("description", "")).strip():
        problems.append("there is no description")
    readme = table.get("readme", "")
    if not isinstance(readme, str) or not (trial.project.folder / readme).is_file():
        problems.append(f"readme = {readme!r}: is not a file of the folder")
    if not re.fullmatch(r"\w+(\.\w+)*:\w+(\.\w+)*", trial.project.environment):
        problems.append(f'[project.entry-points."{ENTRY_POINTS}"] does not hold one entry NAME = "module:Class"')
    elif not trial.project.list_files():
        problems.append(f"{trial.project.environment}: the folder has no module {trial.project.module}")
    if problems:
        raise Failed(shorten(problems, 6))
    return f"{trial.project.name} {table['version']}, the environment is {trial.project.environment}"


@check(
    "license and tags",
    mend='in [project]: license = "Apache-2.0" (or another SPDX name: your choice), and keywords = ["...", ...]',
)
def check_license(trial: Trial) -> str:
    """A license by its SPDX name, and tags by which a hub finds the package."""
    table = trial.project.table
    license_ = table.get("license")
    if license_ is None and trial.project.is_published:  # `viewbox publish` sends it to no hub
        return "no license is stated: --license does; " + ", ".join(table.get("keywords", ()))
    if not isinstance(license_, str):
        raise Failed(f"license = {license_!r}; allowed: an SPDX name")
    try:
        license = read_license(license_)
    except ConfigError as error:
        raise Failed(str(error)) from error
    tags = table.get("tags") or table.get("keywords")
    if not isinstance(tags, list) or not tags or not all(isinstance(tag, str) and tag.strip() for tag in tags):
        raise Failed(f"keywords = {tags!r}; allowed: a list of words")
    return f"{license}; {', '.join(tags)}"


@check(
    "own words",
    needs=("metadata",),
    mend="write what your environment is: in README.md, and in [project] description and keywords",
    applies=lambda trial: not trial.project.is_published,
)
def check_words(trial: Trial) -> str:
    """README, description and keywords are those of `viewbox new` only while the environment is its example."""
    if left := list_left_words(trial.project):
        raise Failed(f"still as `viewbox new` wrote it for its example, which counts discs: {', '.join(left)}")
    return "README, description and keywords are your own, or the environment is the example"


@check(
    "files",
    needs=("metadata",),
    mend="remove it from the package; read keys from environment variables, and replace a key that was written down",
)
def check_files(trial: Trial) -> str:
    """No file of the module, hidden or in a zip file, is a link, too large, named like a secret, or holds a key."""
    files, problems = trial.project.list_files(hidden=True), list[str]()
    for path in files:
        try:
            check_file(trial.project.folder / path)
        except ConfigError as error:
            problems.append(str(error).replace(f"{trial.project.folder}/", ""))
    if problems:
        raise Failed(shorten(problems))
    return f"{len(files)} files; no links, no keys"


def list_libraries(trial: Trial) -> list[Path]:
    """Return the zip files with viewbox that a published package carries."""
    return [path for path in trial.project.list_files() if COPY.fullmatch(path.as_posix())]


@check(
    "carried viewbox",
    needs=("files",),
    mend="publish the environment again; if it came so from a hub, do not use it",
    applies=lambda trial: trial.project.is_published and bool(list_libraries(trial)),
)
def check_library(trial: Trial) -> str:
    """The viewbox that the package carries is that of its version: the contents of its files are compared."""
    (path,), library = list_libraries(trial), read_library()
    held = dict(read_members(trial.project.folder / path))
    if not held:
        raise Failed(f"{path}: cannot be read as a zip file", "download it again; a file of git-lfs needs git-lfs")
    if path.name != LIBRARY:
        return f"{path.stem}, not compared: that needs viewbox of its version, and this is {__version__}"
    problems = {
        name: "is missing" if name not in held else "has other content" if name in library else "is no file of viewbox"
        for name in sorted({*library, *held})
        if library.get(name) != held.get(name)
    }
    if problems:
        raise Failed(f"{path}: {shorten([f'{name} {problem}' for name, problem in problems.items()])}")
    return f"{path.stem}: its {len(held)} files are those of this viewbox"


@check(
    "wheel",
    needs=("metadata",),
    mend="declare the data files in pyproject.toml: [tool.setuptools.package-data] for setuptools; hatchling takes all "
    "that .gitignore does not name; move files that are not part of the package out of its folder",
)
def check_wheel(trial: Trial) -> str:
    """The wheel builds and holds every file of the module."""
    home = trial.make_home("wheel")
    trial.wheel = build_wheel(trial.project, trial.folder / "wheel", home=home, limits=trial.limits)
    with open_wheel(trial.wheel) as file:
        held = set(file.namelist())
    files = [path.as_posix().removeprefix("src/") for path in trial.project.list_files()]
    missing = [path for path in files if path not in held]
    if missing:
        raise Failed(f"the wheel lacks {shorten(missing)}")
    return f"{trial.wheel.name}, {len(files)} files of the module"


@check(
    "dependencies",
    needs=("wheel",),
    mend="add each imported package to `dependencies` in pyproject.toml (or to an extra), and install it here",
)
def check_dependencies(trial: Trial) -> str:
    """Everything that the code imports, also inside functions, is declared and installed here."""
    assert trial.wheel is not None
    table = trial.project.table
    found = find_requirements(table.get("dependencies", ()))
    trial.site = unpack_wheel(trial.wheel, trial.folder / "site", with_viewbox="viewbox" in found)
    unpacked = {path.name.partition(".")[0] for path in trial.site.iterdir()}
    tops = packages_distributions()
    trial.hidden = tops.keys() - _list_modules(tops, found) - unpacked
    known = {*_list_modules(tops, {*found, *find_installed(_list_extras(trial))}), *unpacked, *sys.stdlib_module_names}
    undeclared: dict[str, str] = {}
    for path in trial.project.list_files():
        parts = path.parts
        if parts[1:2] == ("_vendor",):  # what a published package copies
            known.add(parts[2].partition("-")[0])  # viewbox-0.2.0.zip
        if path.suffix == ".py":
            for module in _list_imported(trial.project.folder / path):
                undeclared.setdefault(module, f"{path} imports {module!r}, which no declared package brings")
    if problems := [text for module, text in undeclared.items() if module not in known]:
        raise Failed(shorten(problems))
    count = len(table.get("dependencies", ()))
    return f"{count} declared, {len(found)} with theirs; all that is imported is among them"


def _list_modules(tops: Mapping[str, Sequence[str]], found: Iterable[str]) -> set[str]:
    wanted = set(found)
    brought = {module for module, names in tops.items() if wanted.intersection(map(canonicalize_name, names))}
    return brought | ({"viewbox"} & wanted)


def _list_extras(trial: Trial) -> list[str]:
    return [line for lines in trial.project.table.get("optional-dependencies", {}).values() for line in lines]


def _list_imported(path: Path) -> set[str]:
    """Return the top-level modules that a file imports, but not where the failure is caught."""
    try:
        return {name.partition(".")[0] for name in list_imports(path, caught=False)}
    except (SyntaxError, ValueError, RecursionError, OSError):
        return set()  # the rows `import` and `files` say so


def find_requirements(names: Sequence[str]) -> set[str]:
    """Return the names of the distributions that requirements name, and of all that these require, as installed here.
    Raise `Failed` if a requirement cannot be read, is not installed here, or is in a version that it does not allow."""
    distributions: dict[str, Distribution] = {}
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
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            continue
        key, wanted = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (key, wanted) in seen:
            continue
        seen.add((key, wanted))
        try:
            distributions[key] = distribution(requirement.name)
        except PackageNotFoundError:
            problems.append(f"{text} is not installed here") if is_direct else None
            continue
        version = __version__ if key == "viewbox" else distributions[key].version  # of the source that runs
        if is_direct and not requirement.specifier.contains(version, prereleases=True):
            problems.append(f"{text}: version {version} is installed here")
        waiting += [(line, wanted, False) for line in distributions[key].requires or ()]
    if problems:
        raise Failed(shorten(problems))
    return set(distributions)


def find_installed(names: Sequence[str]) -> set[str]:
    """Return the names of the distributions of requirements, as far as they are installed here."""
    installed: set[str] = set()
    for name in names:
        try:
            installed |= find_requirements([name])
        except Failed:
            continue
    return installed


def unpack_wheel(wheel: Path, site: Path, *, with_viewbox: bool) -> Path:
    """Unpack a wheel into a new folder, with a link to the viewbox that runs; return it."""
    with open_wheel(wheel) as file:
        file.extractall(site)
    if with_viewbox and not (site / "viewbox").exists():
        (site / "viewbox").symlink_to(ROOT)
    return site


@check(
    "import",
    needs=("dependencies",),
    mend="move work from the top of the module into functions; declare what it imports in `dependencies`",
)
def check_import(trial: Trial) -> str:
    """The package is imported with what it declares, in bounded time and memory."""
    figures = trial.first.get("import")
    return f"with what it declares, {figures['seconds']:.1f} s, {figures['memory'] / 2**20:.0f} MiB"


@check(
    "no network at import",
    needs=("dependencies",),
    mend="fetch data where it is first needed (`tasks`, `images`), or ship it in the package",
)
def check_network(trial: Trial) -> str:
    """Importing connects to nothing and looks no name up."""
    trial.first.refuse("network", "importing it calls out:")
    trial.first.require_end("import")
    return "no connection, no look-up of a name"


@check("no torch at import", needs=("import",), mend="import torch inside the function that uses it")
def check_torch(trial: Trial) -> str:
    """Importing does not load torch, which takes seconds and gigabytes in every worker."""
    if trial.first.get("import")["torch"]:
        raise Failed("importing it loads torch")
    return "torch is not loaded"
