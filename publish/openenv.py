"""Writes an environment as a folder for OpenEnv: its server, a Dockerfile and the files that OpenEnv's commands expect.

The folder depends on viewbox instead of carrying a copy. Until an index has viewbox, its wheel lies in `wheels/`.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..core.portable import check_portable
from ..envs import make
from ..errors import ConfigError
from ..integrations.session import check_served
from ..registry import ENVIRONMENTS
from ..utils.files import check_out, create_whole
from ..utils.secrets import mask_settings
from ..version import __version__
from .models import find_paths
from .templates import write_files

PORT = 8000
FILES = {  # of the folder: the template; "": an empty file
    "openenv.yaml": "openenv.yaml",
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "server/__init__.py": "",
    "server/app.py": "app.py",
    "server/Dockerfile": "Dockerfile",
    "wheels/.gitkeep": "",
}


def write_openenv(environment: str, out: str | Path, settings: Mapping[str, object] | None = None) -> list[Path]:
    """Write the folder `out`, which must not exist or be empty; return its files, sorted.

    Args:
        environment: a registered name, or `package.module:Class` of a package that the image can install.
        out: the folder.
        settings: of the environment; JSON values without paths of this machine.

    Raises:
        ConfigError: an environment that cannot be made, is restricted or has no tasks; a file instead of a package; a
            setting that cannot travel; a folder that is not empty.
    """
    if environment not in ENVIRONMENTS and not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", environment):
        raise ConfigError(
            f"{environment}: an image cannot import it; allowed: a registered name, or package.module:Class of a "
            "package that its Dockerfile installs",
            key="environment",
        )
    settings = dict(settings or {})
    env = make(environment, **settings)
    check_served(env)
    for keys, path in find_paths(env, settings):
        if Path(path).exists():
            where = ".".join(keys)
            problem = "is on this machine, and the image would not hold it"
            allowed = "what is shipped, or on a hub"
            raise ConfigError(f"settings.{where} = {path!r}: {problem}; allowed: {allowed}", key=where)
    check_portable(settings, "settings")
    if mask_settings(settings) != settings:
        raise ConfigError(
            "settings: one is named like a secret, or holds what looks like a key, and would be in the image; "
            "read keys from environment variables",
            key="settings",
        )
    folder = check_out(out, "folder", "--write")
    with suppress(OSError):  # it is missing, or not empty
        folder.rmdir()
    name = re.sub(r"[^a-z0-9]+", "-", env.name.lower()).strip("-") or "environment"
    fields = {
        "name": name,
        "environment": environment,
        "environment_repr": repr(environment),
        "settings": repr(json.dumps(settings)),
        "version": __version__,
        "port": str(PORT),
    }
    with create_whole(folder, "--write") as draft:
        return [folder / path.relative_to(draft) for path in write_files(draft, "openenv", FILES, fields)]
