"""Rows about installing and importing a package: its wheel, what it declares, and what its import does."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from ...utils.files import read_regular
from ..author_files import MAX_FILE
from . import fresh
from .process import Limits, run_limited
from .project import Project
from .rows import Failed, NotTried, check, shorten
from .trial import Inside, Trial

BUILD = Path(__file__).with_name("build.py")
# Variables that programs of the field read keys from; a check sets them to a word that must not be printed.
KEYS = (
    "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "HF_TOKEN", "WANDB_API_KEY", "PRIME_API_KEY", "GITHUB_TOKEN",
    "AWS_SECRET_ACCESS_KEY", "NCBI_API_KEY",
)  # fmt: skip
CANARY = "viewbox-check-canary-3f9d1c77"


@check(
    "wheel",
    needs=("metadata",),
    mend="declare the data files in pyproject.toml: [tool.setuptools.package-data] for setuptools; hatchling takes all "
    "that .gitignore does not name; move files that are not part of the package out of its folder",
)
def check_wheel(trial: Trial) -> str:
    """The wheel builds and holds every file of the module."""
    if trial.python is None and trial.wheel is None:
        home = trial.folder / "homes" / "wheel"
        trial.wheel = build_wheel(trial.project, trial.folder / "wheel", home=home, limits=trial.limits)
    assert trial.wheel is not None
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
    trial.run("compile", [trial.python, "-m", "compileall", "-q", trial.folder / "fresh"])  # once, not in each process
    optional = [line for lines in table.get("optional-dependencies", {}).values() for line in lines]
    declared = [*found, *fresh.find_installed(optional)]
    known = {module for one in declared for module in fresh.list_modules(one)} | sys.stdlib_module_names
    known |= _list_own_modules(trial)
    undeclared: dict[str, str] = {}
    for path in trial.project.list_files():
        if path.suffix == ".py" and path.parts[1:3] != ("_vendor", "viewbox"):
            for module in _list_imports(trial.project.folder / path):
                if module not in known:
                    undeclared.setdefault(module, f"{path} imports {module!r}, which no declared package brings")
    if undeclared:
        raise Failed(shorten(list(undeclared.values())))
    return (
        f"{len(table.get('dependencies', ()))} declared, {len(found)} with theirs; all that is imported is among them"
    )


def _list_own_modules(trial: Trial) -> set[str]:
    """The top-level modules that a package brings itself; a published one also copies."""
    files = [_strip_source(path) for path in trial.project.list_files()]
    copies = (
        {path.parts[2] for path in files if path.parts[1:2] == ("_vendor",)} if trial.project.is_published else set()
    )
    return copies | {path.parts[0].removesuffix(".py") for path in files}


def _strip_source(path: Path) -> Path:
    return Path(*path.parts[1:]) if path.parts[0] == "src" else path


def _list_imports(path: Path) -> Iterator[str]:
    """The top-level modules that a file imports, but not for type checking or where the failure is caught."""
    try:
        waiting: list[ast.AST] = [ast.parse(read_regular(path, limit=MAX_FILE))]
    except (SyntaxError, ValueError, RecursionError, OSError):
        return  # the rows `import` and `files` say so
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif isinstance(node, ast.Try) and any("ImportError" in ast.unparse(one) for one in node.handlers):
            waiting += [*node.handlers, *node.orelse, *node.finalbody]
        else:
            waiting += ast.iter_child_nodes(node)
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0]


@check(
    "import",
    needs=("dependencies",),
    mend="move work from the top of the module into functions; declare what it imports in `dependencies`",
)
def check_import(trial: Trial) -> str:
    """The package is imported in the fresh environment, in bounded time and memory."""
    inside = trial.run_inside("opening", "import_package", name="import", opens=False)
    found = inside.get()
    return f"in a fresh environment, {inside.outcome.seconds:.1f} s, {found['memory'] / 2**20:.0f} MiB"


@check(
    "no network at import",
    needs=("dependencies",),
    mend="fetch data where it is first needed (`tasks`, `images`), or ship it in the package",
)
def check_network(trial: Trial) -> str:
    """Importing connects to nothing and looks no name up."""
    inside = trial.run_inside("opening", "import_package", name="import", opens=False)
    refused = inside.list_refused("network")
    if refused:
        raise Failed(f"importing it calls out: {shorten(refused)}")
    _require_end(inside)
    return "no connection, no look-up of a name"


@check("no torch at import", needs=("import",), mend="import torch inside the function that uses it")
def check_torch(trial: Trial) -> str:
    """Importing does not load torch, which takes seconds and gigabytes in every worker."""
    if trial.run_inside("opening", "import_package", name="import", opens=False).get()["torch"]:
        raise Failed("importing it loads torch")
    return "torch is not loaded"


@check(
    "writes nothing outside",
    needs=("dependencies",),
    mend="write into `tempfile.mkdtemp()` or the user's cache folder (below HOME), never beside the code or elsewhere",
)
def check_writes(trial: Trial) -> str:
    """Importing and playing write into the home and temporary folder only."""
    inside = _play_first(trial)
    refused = inside.list_refused("write")
    if refused:
        raise Failed(f"it writes {shorten(refused)}")
    _require_end(inside)
    return "importing and an episode write at most into home and temporary folder"


@check(
    "prints no secrets",
    needs=("dependencies",),
    mend="never print the environment or a variable that holds a key",
)
def check_secrets(trial: Trial) -> str:
    """Importing and playing print no value of a variable in which keys are kept."""
    inside = _play_first(trial)
    if CANARY in inside.outcome.output:
        line = next(line for line in inside.outcome.output.splitlines() if CANARY in line)
        named = [key for key in KEYS if key in line]
        raise Failed(f"it prints the value of {shorten(named) or 'a variable that holds a key'}")
    _require_end(inside)
    return f"{len(KEYS)} variables that hold keys: none is printed"


def _play_first(trial: Trial) -> Inside:
    """Import the package and play an episode, with keys in the variables and without a network."""
    variables = dict.fromkeys(KEYS, CANARY)
    return trial.run_inside("opening", "play_first", name="play first", offline=True, variables=variables)


def _require_end(inside: Inside) -> None:
    """Raise `NotTried` if the process ended before it had done all that the row looks at."""
    if inside.result is None or "value" not in inside.result:
        raise NotTried("the code did not get to its end, which is the failure of another row")
