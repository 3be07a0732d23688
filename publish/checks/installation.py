"""Rows about a package before any of its code runs: what its files say, its wheel, and what it declares."""

import re
import sys
from pathlib import Path

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from ...errors import ConfigError
from ..author_files import check_file
from ..release import is_version
from ..vendor import list_imports
from . import fresh
from .project import ENTRY_POINTS, Project
from .rows import Failed, check, shorten
from .trial import Limits, Trial, run_limited

NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
BUILD = Path(__file__).with_name("build.py")


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
    given = table.get("license")
    if given is None and trial.project.is_published:  # `viewbox publish` sends it to no hub
        return "no license is stated: --license does; " + ", ".join(table.get("keywords", ()))
    if not isinstance(given, str) or not given.strip():
        raise Failed(f"license = {given!r}; allowed: an SPDX name")
    try:
        license = canonicalize_license_expression(given)
    except InvalidLicenseExpression as error:
        raise Failed(f"license = {given!r}: {error}") from error
    tags = table.get("tags") or table.get("keywords")
    if not isinstance(tags, list) or not tags or not all(isinstance(tag, str) and tag.strip() for tag in tags):
        raise Failed(f"keywords = {tags!r}; allowed: a list of words")
    return f"{license}; {', '.join(tags)}"


@check(
    "files",
    needs=("metadata",),
    mend="remove it from the package; read keys from environment variables, and replace a key that was written down",
)
def check_files(trial: Trial) -> str:
    """No file of the module, hidden ones too, is a link, too large, named like a secret, or holds a key."""
    files, problems = trial.project.list_files(hidden=True), []
    for path in files:
        try:
            check_file(trial.project.folder / path)
        except ConfigError as error:
            problems.append(str(error).replace(f"{trial.project.folder}/", ""))
    if problems:
        raise Failed(shorten(problems))
    return f"{len(files)} files; no links, no keys"


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
    with fresh.open_wheel(trial.wheel) as file:
        held = set(file.namelist())
    files = [path.as_posix().removeprefix("src/") for path in trial.project.list_files()]
    missing = [path for path in files if path not in held]
    if missing:
        raise Failed(f"the wheel lacks {shorten(missing)}")
    return f"{trial.wheel.name}, {len(files)} files of the module"


def build_wheel(project: Project, to: Path, *, home: Path, limits: Limits) -> Path:
    """Build the wheel of a project into a new folder, in a process with limits and a home folder of its own.

    Raises:
        Failed: the build fails, or gives no wheel.
    """
    to.mkdir()
    command: list[str | Path] = [sys.executable, "-s", "-P", BUILD, to]
    outcome = run_limited(command, folder=project.folder, home=home, limits=limits)
    wheels = list(to.glob("*.whl"))
    if outcome.status != 0 or len(wheels) != 1:
        backend = project.build.get("build-backend", "setuptools")
        requires = " ".join(map(str, project.build.get("requires", ["setuptools"])))
        missing = f"install what builds it: pip install '{requires}'" if "ModuleNotFoundError" in outcome.tail else None
        raise Failed(f"the build by {backend} {outcome.explain()}", missing)
    return wheels[0]


@check(
    "dependencies",
    needs=("wheel",),
    mend="add each imported package to `dependencies` in pyproject.toml (or to an extra), and install it here",
)
def check_dependencies(trial: Trial) -> str:
    """Everything that the code imports, also inside functions, is declared and installed here."""
    assert trial.wheel is not None
    table = trial.project.table
    found = fresh.find_requirements(table.get("dependencies", ()))
    trial.python = fresh.make_environment(trial.folder / "fresh", trial.wheel, found)
    compile_all: list[str | Path] = [
        trial.python,
        "-m",
        "compileall",
        "-q",
        trial.folder / "fresh",
    ]  # once, not in each process
    run_limited(compile_all, folder=trial.folder, home=trial.make_home("compile"), limits=trial.limits)
    optional = [line for lines in table.get("optional-dependencies", {}).values() for line in lines]
    declared = [*found, *fresh.find_installed(optional)]
    known = {module for one in declared for module in fresh.list_modules(one)} | sys.stdlib_module_names
    for path in trial.project.list_files():  # what the package brings itself, and what a published one copies
        parts = path.parts[1:] if path.parts[0] == "src" else path.parts
        known |= {parts[0].removesuffix(".py")} | ({parts[2]} if parts[1:2] == ("_vendor",) else set())
    undeclared: dict[str, str] = {}
    for path in trial.project.list_files():
        if path.suffix == ".py" and path.parts[1:3] != ("_vendor", "viewbox"):
            for module in _list_modules(trial.project.folder / path):
                if module not in known:
                    undeclared.setdefault(module, f"{path} imports {module!r}, which no declared package brings")
    if undeclared:
        raise Failed(shorten(list(undeclared.values())))
    return (
        f"{len(table.get('dependencies', ()))} declared, {len(found)} with theirs; all that is imported is among them"
    )


def _list_modules(path: Path) -> set[str]:
    """The top-level modules that a file imports, but not where the failure is caught."""
    try:
        return {name.partition(".")[0] for name in list_imports(path, caught=False)}
    except (SyntaxError, ValueError, RecursionError, OSError):
        return set()  # the rows `import` and `files` say so
