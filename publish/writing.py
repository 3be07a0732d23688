"""Writes the files of a published package: its project file, README and module, and the code and data it needs."""

import json
import re
import shutil
from collections.abc import Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..configs import yaml_reader
from ..core.base import BaseMultiTurnEnv
from ..core.portable import check_portable
from ..rewards.base import get_reward_name
from ..tools.specialists.models.model import ModelSpecialist
from ..version import __version__
from . import models, task_data, vendor
from .author_code import EnvironmentSource
from .models import CarriedModels
from .templates import fill

TAGS = ("viewbox", "vision", "multimodal", "multi-turn", "tool-use", "rl", "train", "eval")
HUB_TAGS = ("rl-environment", "verifiers")  # by which the Hugging Face hub finds environments


@dataclass(frozen=True)
class PackagePlan:
    """What a package is called and says of itself.

    Args:
        id, module: its name, and the name it is imported by.
        version, license: as the project file states them; None: no license is stated.
        settings: of the environment, its defaults in the package.
        viewbox: whether it holds a copy of viewbox.
        front_matter: whether the README begins with YAML for a hub.
    """

    id: str
    module: str
    version: str
    license: str | None
    settings: dict[str, Any]
    viewbox: vendor.Provision = vendor.DEFAULT
    front_matter: bool = False


def write_package(root: Path, source: EnvironmentSource, plan: PackagePlan) -> CarriedModels:
    """Write a package into an empty folder; returns the models and snapshots that travel with it.

    Raises:
        ConfigError: a file or a setting cannot travel.
    """
    env, settings, module = source.env, plan.settings, plan.module
    copies = root / module / "_vendor"
    for path in vendor.list_library_files() if plan.viewbox == "copy" else ():
        _copy_file(vendor.ROOT / path, copies / "viewbox" / path)
    provides = [f'provide("viewbox", "{__version__}")']
    if source.package:
        for path in source.chosen.taken:
            _copy_file(source.package / path, copies / source.package.name / path)
        provides.append(f'provide("{source.package.name}")')
    if source.module:
        _copy_file(source.module, root / module / source.module.name)
    for name, path in source.wheel.licenses.items() if source.wheel else ():
        _copy_file(path, root / name)
    if task_data.is_local(env):
        settings = {**settings, "data": task_data.write_tasks(env, root / module)}
    carried = models.write_models(env, root / module)
    if carried.taken:
        settings = {**settings, "specialists": carried.specs}
    check_portable(settings, "env")
    _write_project(root, source, plan)
    summary = _get_summary(env)
    fields = {
        "id": plan.id,
        "module": module,
        "viewbox": __version__,
        "taskset": _build_class_name(plan.id),
        "license": f"{plan.license}, chosen" if plan.license else "not stated",
        "summary": summary,
    }
    shown = {**fields, **_describe_environment(env), "settings": _fence(json.dumps(settings))}
    provided = "copied" if plan.viewbox == "copy" else "required"
    card = fill("package/README.md", {**shown, "provided": fill(f"package/{provided}.md", fields).rstrip()})
    readme = source.wheel.readme if source.wheel else ""
    if source.wheel and not source.wheel.is_markdown and readme:
        _write_text(root / "README.rst", readme + "\n")
        card, readme = card + "\nThe author's description is in README.rst.\n", ""
    header, readme = _build_header(plan, readme) if plan.front_matter else ("", readme)
    _write_text(root / "README.md", header + (f"{readme}\n\n---\n\n" if readme else "") + card)
    code = {
        "description": summary.splitlines()[0].replace("\\", "").replace('"', "'"),  # in a docstring
        "provides": "\n".join(provides),
        "environment": repr(f"{module}.{source.name}" if source.module else source.name),
        "settings": repr(settings),
    }
    _write_text(root / module / "__init__.py", fill("package/__init__.py", {**fields, **code}))
    _write_text(copies / "__init__.py", fill("package/vendor.py", {}))
    return carried


def _write_project(root: Path, source: EnvironmentSource, plan: PackagePlan) -> None:
    specialists = [spec for _, spec in models.list_specialists(source.env)]
    project = {
        "id": plan.id,
        "version": plan.version,
        "description": _get_summary(source.env).splitlines()[0],
        "tags": list(TAGS),
        "dependencies": vendor.list_dependencies(
            source.files,
            hub=task_data.is_on_hub(source.env),
            mcp=any(spec.kind == "mcp" for spec in specialists),
            models=any(isinstance(spec, ModelSpecialist) for spec in specialists),
            modules=models.list_modules(source.env),
            viewbox=plan.viewbox,
        ),
        "module": plan.module,
        "taskset": f"{plan.module}:{_build_class_name(plan.id)}",
    }
    toml = {key: json.dumps(value, ensure_ascii=False) for key, value in project.items()}
    files = sorted(name.as_posix() for name in source.wheel.licenses) if source.wheel else []
    license = f"license = {json.dumps(plan.license)}\n" if plan.license else ""
    license += f"license-files = {json.dumps(files)}\n" if files else ""
    _write_text(root / "pyproject.toml", fill("package/pyproject.toml", {**toml, "license": license}))


def _build_class_name(id: str) -> str:
    return "".join(part.capitalize() for part in id.removeprefix("viewbox-").split("-")) + "Taskset"


def _build_header(plan: PackagePlan, readme: str) -> tuple[str, str]:
    """Return the YAML at the head of README.md, with what the author's README has there, and the rest of that.

    It holds license and tags for the hub's filters; no table of the files is shown.
    """
    values: dict[str, Any] = {"license": str(plan.license).lower(), "pretty_name": plan.id, "tags": [], "viewer": False}
    found = re.match(r"---\n(.*?\n)---\n", readme, re.DOTALL)
    own = yaml_reader.parse(found[1], "README.md")[0] if found else None
    if found and isinstance(own, dict):
        values, readme = {**own, **values}, readme[found.end() :].lstrip()
    tags = own.get("tags") if isinstance(own, dict) else None
    values["tags"] = list(dict.fromkeys([*HUB_TAGS, *TAGS, *(tags if isinstance(tags, list) else ())]))
    return f"---\n{yaml_reader.write(values)}---\n\n", readme


def _get_summary(env: BaseMultiTurnEnv) -> str:
    """Return the first paragraph of the environment's docstring."""
    return (type(env).__doc__ or f"The {env.name} environment.").strip().split("\n\n")[0].split("\n    >>>")[0]


def _describe_environment(env: BaseMultiTurnEnv) -> dict[str, str]:
    names = {name: get_reward_name(part.reward) for name, part in env.reward.components.items()}
    parts = [
        f"{part.weight:g} x {name}" + (f" ({names[name]})" if names[name] != name else "")
        for name, part in env.reward.components.items()
    ]
    reward = " + ".join(parts).replace("`", "'").replace("|", "\\|")
    return {
        "tasks": f"{len(env.tasks):,}" if isinstance(env.tasks, Sized) else "unknown number",
        "tools": ", ".join(env.tools) or "none",
        "max_turns": str(env.max_turns),
        "answer": _fence(env.answer_format.text),
        "reward": " ".join(reward.split()),
    }


def _fence(text: str) -> str:
    """Return a text as a block of code, whatever it holds."""
    marks = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    return f"{marks}\n{text}\n{marks}"


def _copy_file(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, to)


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
