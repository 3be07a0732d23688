"""`publish`: an environment package for verifiers 0.4, tried out and then written."""

import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viewbox import __version__
from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.errors import ConfigError, describe_unknown
from viewbox.publish import author_code, preflight, templates, vendor
from viewbox.publish.author_code import Source
from viewbox.publish.output import place

TARGETS = ("dir",)
TAGS = ("viewbox", "vision", "multimodal", "multi-turn", "tool-use", "rl", "train", "eval")
LICENSE = "Apache-2.0"
VERSION = r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?"


@dataclass(frozen=True)
class Published:
    """What was written, and what was found out about it."""

    id: str
    version: str
    folder: Path
    files: int
    bytes: int
    findings: tuple[str, ...]


def publish(
    environment: str,
    out: str | Path,
    *,
    to: str = "dir",
    settings: Mapping[str, Any] | None = None,
    id: str | None = None,
    version: str = "0.1.0",
    license: str = LICENSE,
    force: bool = False,
) -> Published:
    """Writes `environment` (a name, `package.module:Class` or `file.py:Class`) with `settings` as a package to `out`.

    It is tried first: its tasks open, its reward scores, and a fresh process can use the package with only what is in
    it. Raises `ConfigError`, and leaves `out` as it was, where something is wrong.
    """
    if to not in TARGETS:
        raise ConfigError(f"--to: {describe_unknown('target', to, TARGETS)}")
    chosen = _plain(settings or {})
    found = author_code.find(environment, chosen)
    name = id or f"viewbox-{re.sub(r'[^a-z0-9]+', '-', found.env.name.lower()).strip('-')}"
    module = _module(name, found)
    if not re.fullmatch(VERSION, version):
        raise ConfigError(f"--version {version!r}; allowed: a release such as 0.1.0, 1.2, 1.0rc1 or 1.0.post1")
    if found.env.restricted:
        raise ConfigError(f"{found.env.name}: its data are restricted: they must not be published")
    findings = [preflight.check_playable(found.env)]
    with tempfile.TemporaryDirectory(prefix="viewbox-publish-") as temporary:
        staged = Path(temporary)
        _write(staged, found, name, module, version, license, chosen)
        findings.append(preflight.check_package(staged, module, name))
        for cache in staged.rglob("__pycache__"):
            shutil.rmtree(cache)
        about = {"id": name, "version": version, "environment": environment, "viewbox": __version__}
        files = place(staged, Path(out), about, force=force)
    size = sum((Path(out) / path).stat().st_size for path in files)
    return Published(name, version, Path(out), len(files), size, tuple(findings))


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return json.loads(json.dumps(settings, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"--set: settings are written as JSON: {error}") from error


def _module(name: str, found: Source) -> str:
    """The importable name of a package id; verifiers derives it in the same way."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ConfigError(f"--id {name!r}; allowed: lower-case letters and digits in words joined by -")
    module = name.replace("-", "_")
    taken = {"viewbox", "verifiers", *(path.stem for path in (found.module, found.package) if path)}
    if module in taken:
        raise ConfigError(f"--id {name!r}: {module} is a module the package itself needs; choose another id")
    return module


def _write(
    root: Path, found: Source, name: str, module: str, version: str, license: str, settings: dict[str, Any]
) -> None:
    env, copies = found.env, root / module / "_vendor"
    for path in vendor.library():
        _copy(vendor.ROOT / path, copies / "viewbox" / path)
    provides = [f'provide("viewbox", "{__version__}")']
    if found.package:
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(found.package, copies / found.package.name, ignore=ignored)
        provides.append(f'provide("{found.package.name}")')
    if found.module:
        _copy(found.module, root / module / found.module.name)
    words = {
        "id": name,
        "module": module,
        "viewbox": __version__,
        "taskset": "".join(part.capitalize() for part in name.removeprefix("viewbox-").split("-")) + "Taskset",
        "environment": found.inside(module),
        "settings": settings,
        "summary": _summary(env),
    }
    project = {
        "id": name,
        "version": version,
        "description": _summary(env).splitlines()[0],
        "license": license,
        "tags": list(TAGS),
        "dependencies": vendor.dependencies(found.files),
        "module": module,
    }
    toml = {key: json.dumps(value, ensure_ascii=False) for key, value in project.items()}
    _text(root / "pyproject.toml", templates.PYPROJECT.format(**toml))
    _text(root / "README.md", templates.README.format(**words | _facts(env, settings)))
    description = _summary(env).splitlines()[0].replace("\\", "").replace('"', "'")  # in a docstring
    init = templates.INIT.format(**words, description=description, provides="\n".join(provides))
    _text(root / module / "__init__.py", init)
    _text(copies / "__init__.py", templates.VENDOR)


def _summary(env: BaseMultiTurnEnv) -> str:
    """The author's first sentence about the environment."""
    return (type(env).__doc__ or f"The {env.name} environment.").strip().split("\n\n")[0].split("\n    >>>")[0]


def _facts(env: BaseMultiTurnEnv, settings: Mapping[str, Any]) -> dict[str, str]:
    parts = [f"{part.weight:g} {name} ({part.reward.name})" for name, part in env.reward.components.items()]
    return {
        "tasks": f"{len(env.tasks):,}" if isinstance(env.tasks, Sized) else "as many as the source gives",
        "tools": ", ".join(env.tools) or "none",
        "max_turns": str(env.max_turns),
        "answer": env.skeleton,
        "reward": " + ".join(parts),
        "settings": json.dumps(settings),
    }


def _copy(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, to)


def _text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
