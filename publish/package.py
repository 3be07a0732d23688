"""`publish`: checks an environment and writes it as a package for verifiers 0.4."""

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viewbox import __version__
from viewbox.configs.schema import load
from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.envs.data.settings import merge_data
from viewbox.errors import ConfigError, describe_unknown
from viewbox.network.data_policy import check_may_leave
from viewbox.network.secrets import mask_settings
from viewbox.publish import author_code, models, task_data, templates, vendor
from viewbox.publish.author_code import EnvironmentSource
from viewbox.publish.checks import Row, check_package
from viewbox.publish.models import CarriedModels
from viewbox.publish.output import replace_folder

TARGETS = ("dir",)
TAGS = ("viewbox", "vision", "multimodal", "multi-turn", "tool-use", "rl", "train", "eval")
LICENSE = "Apache-2.0"
VERSION = r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?"


@dataclass(frozen=True)
class PublishedPackage:
    """A package that was written, or would be; `bytes` is the size of its files, `findings` says what was checked."""

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
    data: Sequence[str] = (),
    dry_run: bool = False,
    on_files: Callable[[Sequence[Path], Sequence[Path]], None] | None = None,
) -> PublishedPackage:
    """Writes an environment as a package.

    Of the author's package, its Python files and the declared data are published (`author_files.py`).

    It is checked before, in a folder elsewhere, as `viewbox check` does it (`checks/`).

    Args:
        environment: a name, `package.module:Class`, `file.py:Class`, or a config, of which `env` is published. Tasks
            from files on this machine travel with the package (`task_data.py`).
        out: the folder to write.
        to: the kind of target; so far only "dir", a folder.
        settings: settings of the environment, which become the defaults of the package.
        id: the name of the package; default: `viewbox-<name>`.
        version: the version of the package (PEP 440).
        license: the license of the package (an SPDX identifier), which its author chooses.
        force: whether a package that was written to `out` before is replaced.
        data: patterns of data files of the author's package that are published, too.
        dry_run: whether everything is checked but nothing is written.
        on_files: called before anything is written, with the author's files that are published and those that are not.

    Raises:
        ConfigError: an argument is invalid or a check fails; `out` is unchanged.
    """
    if to not in TARGETS:
        raise ConfigError(f"--to: {describe_unknown('target', to, TARGETS)}")
    environment, own_settings = _read_config(environment)
    values = _to_json_values(_change_settings(own_settings, settings or {}))
    source = author_code.find_environment(environment, values, data)
    name = id or f"viewbox-{re.sub(r'[^a-z0-9]+', '-', source.env.name.lower()).strip('-')}"
    module = _build_module_name(name, source)
    if not re.fullmatch(VERSION, version):
        raise ConfigError(f"--version {version!r}; allowed: a release such as 0.1.0, 1.2, 1.0rc1 or 1.0.post1")
    check_may_leave(
        source.env, "others", action="publishing gives its package to", allowed="no published package of it"
    )
    parts = getattr(source.env, "parts", {})
    for env in (source.env, *parts.values()):
        reason = getattr(env, "why_not_published", None)
        if reason is not None:
            raise ConfigError(f"{env.name}: {reason}")
    if any(task_data.is_local(part) for part in parts.values()):
        raise ConfigError(f"{source.env.name}: mixes data on this machine; allowed: publish each environment by itself")
    own = source.chosen.taken or tuple(Path(path.name) for path in source.files)
    with tempfile.TemporaryDirectory(prefix="viewbox-publish-") as temporary:
        staged = Path(temporary)
        carried = _write_package(staged, source, name, module, version, license, values)
        if on_files is not None:
            on_files((*own, *carried.taken), (*source.chosen.left_out, *carried.left_out))
        findings = (*carried.lines, *(f"{row.name}: {row.finding}" for row in check_staged(staged)))
        about = {"id": name, "version": version, "environment": environment, "viewbox": __version__}
        files = [path for path in staged.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        if not dry_run:
            replace_folder(staged, Path(out), about, force=force)
    return PublishedPackage(name, version, Path(out), len(files), size, findings)


def check_staged(folder: Path) -> list[Row]:
    """The rows of a package that was written, if all passed.

    Raises:
        ConfigError: a row failed; the message has every row that did, with how to mend it.
    """
    rows = check_package(folder)
    failed = [f"{row.name}: {row.finding}\n  to mend it: {row.mend}" for row in rows if row.tried and not row.passed]
    if not all(row.passed for row in rows):
        raise ConfigError("the package was checked, and is not published:\n" + "\n".join(failed))
    return rows


def _read_config(environment: str) -> tuple[str, dict[str, Any]]:
    """The name and the settings of the environment in a config; any other name stays as it is."""
    if not environment.endswith((".yaml", ".yml")):
        return environment, {}
    config = load(environment)
    if config.reward is not None:
        raise ConfigError(
            f"{environment}: has a section `reward`, and a package has its environment's own; allowed: no such "
            "section, or a class that sets the reward",
            key="reward",
        )
    return config.env.name, config.env.settings


def _change_settings(own: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a config with changes; a block `data` is changed key by key, as by `env.eval`."""
    before, after = own.get("data"), changes.get("data")
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        changes = {**changes, "data": merge_data(before, after)}
    return {**own, **changes}


def _to_json_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    try:
        values = json.loads(json.dumps(settings, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"--set: {error}; allowed: values that JSON can hold") from error
    if mask_settings(values) != values:
        raise ConfigError(
            "--set: a setting is named like a secret, or holds what looks like a key, and would be published; "
            "read keys from environment variables"
        )
    return values


def _build_module_name(name: str, source: EnvironmentSource) -> str:
    """The importable name of a package id, as verifiers derives it."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ConfigError(f"--id {name!r}; allowed: lower-case letters and digits in words joined by -")
    module = name.replace("-", "_")
    taken = {"viewbox", "verifiers", *(path.stem for path in (source.module, source.package) if path)}
    if module in taken:
        raise ConfigError(f"--id {name!r}: the package itself needs a module {module}; allowed: another id")
    return module


def _write_package(
    root: Path, source: EnvironmentSource, name: str, module: str, version: str, license: str, settings: dict[str, Any]
) -> CarriedModels:
    env, copies = source.env, root / module / "_vendor"
    for path in vendor.list_library_files():
        _copy_file(vendor.ROOT / path, copies / "viewbox" / path)
    provides = [f'provide("viewbox", "{__version__}")']
    if source.package:
        for path in source.chosen.taken:
            _copy_file(source.package / path, copies / source.package.name / path)
        provides.append(f'provide("{source.package.name}")')
    if source.module:
        _copy_file(source.module, root / module / source.module.name)
    if task_data.is_local(env):
        settings = {**settings, "data": task_data.write_tasks(env, root / module)}
    carried = models.write_models(env, root / module)
    if carried.names or carried.snapshots:
        settings = {**settings, "specialists": dict(carried.specs)}
    fields = {
        "id": name,
        "module": module,
        "viewbox": __version__,
        "taskset": "".join(part.capitalize() for part in name.removeprefix("viewbox-").split("-")) + "Taskset",
        "environment": source.get_published_name(module),
        "settings": settings,
        "license": license,
        "summary": _get_summary(env),
    }
    project = {
        "id": name,
        "version": version,
        "description": _get_summary(env).splitlines()[0],
        "license": license,
        "tags": list(TAGS),
        "dependencies": vendor.list_dependencies(
            source.files,
            hub=task_data.is_on_hub(env),
            mcp=_asks_mcp(env),
            models=models.runs_models(env),
            modules=models.list_modules(env),
        ),
        "module": module,
    }
    project["taskset"] = f"{module}:{fields['taskset']}"
    toml = {key: json.dumps(value, ensure_ascii=False) for key, value in project.items()}
    _write_text(root / "pyproject.toml", templates.PYPROJECT.format(**toml))
    _write_text(root / "README.md", templates.README.format(**fields | _describe_environment(env, settings)))
    description = _get_summary(env).splitlines()[0].replace("\\", "").replace('"', "'")  # in a docstring
    init = templates.INIT.format(**fields, description=description, provides="\n".join(provides))
    _write_text(root / module / "__init__.py", init)
    _write_text(copies / "__init__.py", templates.VENDOR)
    return carried


def _asks_mcp(env: BaseMultiTurnEnv) -> bool:
    return any(specialist.kind == "mcp" for _, specialist in models.list_specialists(env))


def _get_summary(env: BaseMultiTurnEnv) -> str:
    """The first paragraph of the environment's docstring."""
    return (type(env).__doc__ or f"The {env.name} environment.").strip().split("\n\n")[0].split("\n    >>>")[0]


def _describe_environment(env: BaseMultiTurnEnv, settings: Mapping[str, Any]) -> dict[str, str]:
    parts = [f"{part.weight:g} x {name} ({part.reward.name})" for name, part in env.reward.components.items()]
    return {
        "tasks": f"{len(env.tasks):,}" if isinstance(env.tasks, Sized) else "unknown number",
        "tools": ", ".join(env.tools) or "none",
        "max_turns": str(env.max_turns),
        "answer": env.answer_format,
        "reward": " + ".join(parts),
        "settings": json.dumps(settings),
    }


def _copy_file(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, to)


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
