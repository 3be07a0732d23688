"""Writes an environment as a folder for OpenEnv: its server, a Dockerfile and the files that OpenEnv's commands expect.

The folder depends on viewbox instead of carrying a copy. Until an index has viewbox, its wheel lies in `wheels/`.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from ..core.portable import check_portable
from ..envs import make
from ..errors import ConfigError
from ..plugins import ENVIRONMENTS
from ..utils.secrets import mask_settings
from ..version import __version__
from .session import check_served

PORT = 8000

YAML = """\
spec_version: 1
name: {name}
type: space
runtime: fastapi
app: server.app:app
port: {port}
"""

PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "openenv-{name}"
version = "0.1.0"
description = "The viewbox environment {environment} as an OpenEnv server"
requires-python = ">=3.11"
dependencies = ["viewbox[openenv]>={version}", "openenv>=0.10,<0.11"]

[project.scripts]
server = "server.app:main"

[tool.setuptools]
packages = ["server"]
"""

APP = '''\
"""The OpenEnv server of the viewbox environment {environment}."""

import json

import uvicorn
from viewbox.integrations.openenv import build_app

SETTINGS = json.loads({settings})
app = build_app({environment!r}, SETTINGS)


def main(host: str = "127.0.0.1", port: int = {port}) -> None:
    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
'''

DOCKERFILE = """\
FROM python:3.12-slim
WORKDIR /app/env
COPY . /app/env
RUN pip install --no-cache-dir --find-links wheels "viewbox[openenv]>={version}" \\
    && useradd --create-home player
USER player
EXPOSE {port}
HEALTHCHECK --interval=30s --timeout=3s --start-period=10s \\
    CMD python -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}/health', timeout=2)"
CMD ["python", "-m", "uvicorn", "server.app:app", "--host", "0.0.0.0", "--port", "{port}"]
"""

README = """\
# {name}: a viewbox environment as an OpenEnv server

Until an index has viewbox {version}, put its wheel into `wheels/`, from a copy of its repository:

    pip wheel --no-deps --wheel-dir wheels PATH/TO/viewbox

Then build and run:

    docker build -f server/Dockerfile -t {name} .
    docker run --rm -p 127.0.0.1:{port}:{port} {name}

Without Docker: `pip install 'viewbox[openenv]'` and `python -m server.app`. OpenEnv's own commands work too, after
`uv lock`: `openenv validate .`, `openenv push`.

The client plays over a WebSocket:

    from viewbox.integrations.openenv import ViewboxClient

    with ViewboxClient("http://127.0.0.1:{port}").sync() as client:
        result = client.reset(seed=7)
        print(result.observation.messages)
        result = client.step("the reply of a model")
"""


def write_openenv(environment: str, out: str | Path, settings: Mapping[str, object] | None = None) -> list[Path]:
    """Write the folder `out`, which must not exist or be empty; returns its files, sorted.

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
            given=environment,
        )
    settings = dict(settings or {})
    env = make(environment, **settings)
    check_served(env)
    check_portable(settings, "settings")
    if mask_settings(settings) != settings:
        raise ConfigError(
            "settings: one is named like a secret, or holds what looks like a key, and would be in the image; "
            "read keys from environment variables",
            key="settings",
        )
    folder = Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder}: it exists and is not an empty folder", key="out", given=str(out))
    name = re.sub(r"[^a-z0-9]+", "-", env.name.lower()).strip("-") or "environment"
    values = {
        "name": name,
        "environment": environment,
        "settings": repr(json.dumps(settings)),
        "version": __version__,
        "port": PORT,
    }
    files = {
        "openenv.yaml": YAML,
        "pyproject.toml": PYPROJECT,
        "README.md": README,
        "server/__init__.py": "",
        "server/app.py": APP,
        "server/Dockerfile": DOCKERFILE,
        "wheels/.gitkeep": "",
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text.format(**values), encoding="utf-8")
    return sorted(folder / path for path in files)
