"""`write_project`: a new package with one working environment, which passes `viewbox check` as it is."""

import datetime
import keyword
import re
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from ..errors import ConfigError
from ..utils.files import check_out, create_whole
from ..version import __version__
from .templates import read_template, write_files

FILES = {  # of the new package: the template
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "LICENSE": "LICENSE",
    ".gitignore": "gitignore",
    ".github/workflows/test.yml": "test.yml",
    "{module}/__init__.py": "__init__.py",
    "{module}/env.py": "env.py",
    "tests/test_env.py": "test_env.py",
}
TAKEN = ("viewbox", "verifiers", "tests", "test", "conftest", "build", "dist", "runs", "outputs", "vllm", "verl", "ray")


def _list_taken() -> set[str]:
    """Return the modules that would be hidden, in lower case: Python's, those installed, and what viewbox may need."""
    try:
        needed = [re.split(r"[^\w-]", line)[0].replace("-", "_") for line in requires("viewbox") or ()]
    except PackageNotFoundError:  # it is not installed
        needed = []
    return {name.lower() for name in (*TAKEN, *sys.stdlib_module_names, *packages_distributions(), *needed)}


def write_project(name: str, folder: str | Path = ".") -> Path:
    """Write a package with an environment, its tests, a README, a license and a file for CI. Raise `ConfigError` if the
    name cannot be that of a package, or the folder exists."""
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ConfigError(f"name {name!r}; allowed: lower-case letters and digits in words joined by -")
    class_name = "".join(word.capitalize() for word in name.split("-"))
    used = re.search(rf"(?m)^(from|import|class) .*\b{class_name}\b", read_template("new/env.py"))
    if module in _list_taken() or keyword.iskeyword(module) or keyword.iskeyword(class_name) or used:
        problem = f"the module {module} is taken, or the class {class_name}"
        raise ConfigError(f"name {name!r}: {problem}; allowed: another name")
    root = check_out(folder, "folder", "--in") / name
    fields = {
        "name": name,
        "module": module,
        "class_name": class_name,
        "viewbox": ".".join(__version__.split(".")[:2]),
        "year": str(datetime.date.today().year),
    }
    with create_whole(root, "NAME") as draft:
        write_files(draft, "new", {path.format(module=module): template for path, template in FILES.items()}, fields)
    return root
