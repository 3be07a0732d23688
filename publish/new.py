"""`write_project`: a new package with one working environment, which passes `viewbox check` as it is."""

import datetime
import keyword
import re
import sys
from pathlib import Path

from ..errors import ConfigError
from ..version import __version__
from .templates import write_files

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
TAKEN = ("viewbox", "verifiers", "tests", "test")


def write_project(name: str, folder: str | Path = ".") -> Path:
    """Write a package with an environment, its tests, a README, a license and a file for CI.

    Args:
        name: of the package: lower-case letters and digits in words joined by '-'.
        folder: where the new folder `name` is made.

    Returns:
        The new folder.

    Raises:
        ConfigError: the name cannot be that of a package, or the folder exists.
    """
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ConfigError(f"name {name!r}; allowed: lower-case letters and digits in words joined by -", given=name)
    if module in TAKEN or module in sys.stdlib_module_names or keyword.iskeyword(module):
        raise ConfigError(f"name {name!r}: the module {module} is taken; allowed: another name", given=name)
    root = Path(folder) / name
    if root.exists():
        raise ConfigError(f"{root} exists; allowed: a name whose folder does not exist", given=name)
    fields = {
        "name": name,
        "module": module,
        "class_name": "".join(part.capitalize() for part in name.split("-")),
        "viewbox": ".".join(__version__.split(".")[:2]),
        "year": str(datetime.date.today().year),
    }
    write_files(root, "new", {path.format(module=module): template for path, template in FILES.items()}, fields)
    return root
