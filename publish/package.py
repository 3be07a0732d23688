"""`publish`: checks an environment, and writes it as a package for verifiers 0.4 or sends it to a hub."""

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from ..configs import yaml_reader
from ..configs.schema import load
from ..core.base import BaseMultiTurnEnv
from ..core.portable import check_portable
from ..envs.data.settings import merge_data
from ..errors import ConfigError, ViewboxError
from ..network.data_policy import check_may_leave
from ..rewards.declare import get_reward_name
from ..rollouts.scoring.restriction import find_in_section
from ..tools.specialists.models.model import ModelSpecialist
from ..utils.docstrings import read_docstring
from ..utils.importing import add_to_search_path
from ..utils.secrets import mask_settings
from ..version import __version__
from . import author_code, contents, models, task_data
from .author_code import EnvironmentSource
from .checks import CheckRow, Limits, check_package
from .checks.project import ENTRY_POINTS, is_project, list_left_words, read_project
from .hubs.base import Release
from .models import CarriedModels, find_paths
from .release import Confirm, Delivery, PublishedPackage, ReleaseOptions, list_files, read_license
from .templates import fill

MEND = "give a name that `viewbox publish` takes, or the folder of a package (`viewbox new NAME` writes one)"
TAGS = ("viewbox", "vision", "multimodal", "multi-turn", "tool-use", "rl", "train", "eval")
LICENSES = "licenses"  # in the module: of the top folder, `prime` sends README.md and code alone
HUB_TAGS = ("rl-environment", "verifiers")  # by which the Hugging Face hub finds environments
LICENSE = "Apache-2.0"  # of viewbox, and of its environments whose pictures it draws itself


def publish(
    environment: str,
    out: str | Path | None = None,
    *,
    settings: Mapping[str, object] | None = None,
    viewbox: contents.Provision = contents.DEFAULT,
    data: Sequence[str] = (),
    confirm: Confirm | None = None,
    on_files: Callable[[Sequence[Path], Sequence[Path]], None] | None = None,
    check: Callable[[Path], Sequence[CheckRow]] | None = None,
    **target: Unpack[ReleaseOptions],
) -> PublishedPackage:
    """Write an environment as a package, into a folder or onto a hub.
    Of the author's package, its Python files and the declared data are published (`contents.py`).

    It is checked before, in a folder elsewhere, as `viewbox check` does it (`checks/`). Nothing is sent to a hub before
    `confirm` agreed; what the hub gives back is compared and installed afterwards.

    Args:
        environment: a name, `package.module:Class`, `file.py:Class`, the folder of a package whose pyproject.toml
            names its environment (`viewbox new`), or a config, of which `env` is published. Tasks from files on this
            machine travel with the package (`task_data.py`).
        out: the folder to write, for "dir".
        settings: settings of the environment, which become the defaults of the package.
        viewbox: whether the package holds a "copy" of viewbox or has it as a "dependency".
        data: patterns of data files of the author's package that are published, too.
        confirm: gets the lines that list every file before it leaves, and agrees or not.
        on_files: called before anything is written, with the author's files that are published and those that are not.
        check: gives the rows of the written package, or raises; default: all of `checks/` must pass.
        target: where it goes (`release.ReleaseOptions`). Without `license`, it is what the author's project states,
            Apache-2.0 of viewbox's own environments without others' data or files, or not stated, which a hub refuses.

    Raises:
        ConfigError: an argument is invalid or a check fails; `out` is unchanged.
    """
    delivery = Delivery("environment", out, target, confirm)
    hub = delivery.hub
    license = read_license(license_text) if (license_text := target.get("license")) else None
    environment, own_settings, stated = _read_source(environment)
    values = _to_json_values(_change_settings(own_settings, settings or {}))
    with tempfile.TemporaryDirectory(prefix="viewbox-publish-") as temporary:
        source = author_code.find_environment(environment, values, data, Path(temporary))
        id = target.get("id")
        name = f"viewbox-{re.sub(r'[^a-z0-9]+', '-', source.env.name.lower()).strip('-')}"
        if id is not None:
            name = id.partition("/")[2] if hub.asks else id
        module = _build_module_name(name, source)
        check_may_leave(
            source.env, "others", action="publishing gives its package to", allowed="no published package of it"
        )
        parts = getattr(source.env, "parts", {})
        if any(task_data.is_local(part) for part in parts.values()):
            allowed = "publish each environment by itself"
            raise ConfigError(f"{source.env.name}: mixes data on this machine; allowed: {allowed}")
        license = license or _find_license(source, values)
        if license is None and hub.asks:
            problem = f"nothing states the license of {source.name}, and --to {target['to']} needs one"
            raise ConfigError(f"{problem}; allowed: --license with its SPDX name, such as CC-BY-4.0", key="license")
        version = delivery.choose_version(stated)
        taken = source.chosen.taken or tuple(Path(path.name) for path in source.files)
        staged = Path(temporary, "package")
        staged.mkdir()
        plan = PackagePlan(name, module, version, license, values, viewbox, hub.reads_front_matter)
        carried = write_package(staged, source, plan)
        if on_files is not None:
            on_files((*taken, *carried.taken), (*source.chosen.left_out, *carried.left_out))
        files = list_files(staged)
        for file in files:
            if any(part.startswith(".") for part in Path(file.path).parts):
                raise ConfigError(f"{file.path}: is a hidden file, and would be published; allowed: none")
            if not contents.COPY.fullmatch(file.path):  # whose files were looked at when they were packed
                contents.check_file(staged / file.path)
        findings = [*carried.lines, *(f"{row.name}: {row.finding}" for row in (check or check_staged)(staged))]
        about = {"id": name, "version": version, "environment": source.name, "viewbox": __version__}
        return delivery.send(Release("environment", name, version, staged, files, about, module), findings)


def check_staged(folder: Path, on_row: Callable[[CheckRow], None] | None = None) -> list[CheckRow]:
    """Return the rows of a package that was written, if all passed; `on_row` gets each when it is known. Raise
    `ConfigError` if a row failed; the message has every row that did, with how to mend it."""
    rows = check_package(folder, on_row=on_row)
    bad = [row for row in rows if not row.passed]
    if bad:
        told = [row for row in bad if row.tried] or bad
        lines = [f"{row.name}: {row.finding}" + (f"\n  to mend it: {row.mend}" if row.mend else "") for row in told]
        raise ConfigError("the package was checked, and is not published:\n" + "\n".join(lines))
    return rows


def check_any(
    target: str,
    settings: Mapping[str, object],
    *,
    limits: Limits | None = None,
    rows: Collection[str] | None = None,
    on_row: Callable[[CheckRow], None] | None = None,
) -> list[CheckRow]:
    """Check the package in a folder, or the one that `viewbox publish` would write of an environment.
    `settings` are those of a named environment; the rest is as of `check_package`."""
    if is_project(target) or Path(target).is_dir():
        return check_package(target, limits=limits, rows=rows, on_row=on_row)
    with tempfile.TemporaryDirectory(prefix="viewbox-check-", ignore_cleanup_errors=True) as temporary:
        out = Path(temporary).resolve() / "published"
        try:
            publish(target, out, settings=settings, check=lambda folder: [])
        except ViewboxError as error:
            row = CheckRow("package", False, str(error), MEND)
            if on_row is not None:
                on_row(row)
            return [row]
        return check_package(out, limits=limits, rows=rows, on_row=on_row)


def _find_license(source: EnvironmentSource, settings: Mapping[str, Any]) -> str | None:
    if source.module or source.package:
        return source.wheel.license if source.wheel else None
    parts = getattr(source.env, "parts", {"": source.env})
    has_data = any(task_data.is_local(part) or task_data.is_on_hub(part) for part in parts.values())
    return None if has_data or any(find_paths(source.env, settings)) else LICENSE


def _read_source(environment: str) -> tuple[str, dict[str, Any], str | None]:
    """Return what a config or the folder of a package says: name and settings of the environment, and the version.
    Any other name stays as it is."""
    if is_project(environment):
        project = read_project(Path(environment))
        if not project.environment:
            group = f'[project.entry-points."{ENTRY_POINTS}"]'
            raise ConfigError(f'{environment}/pyproject.toml: {group}: allowed: one entry, NAME = "module:Class"')
        if left := list_left_words(project):
            problem = f"still as `viewbox new` wrote it for its example, and would be published: {', '.join(left)}"
            raise ConfigError(f"{environment}: {problem}; allowed: words on what your environment is")
        add_to_search_path(project.home.resolve())
        version = project.table.get("version")
        return project.environment, {}, version if isinstance(version, str) else None
    if not environment.endswith((".yaml", ".yml")):
        return environment, {}, None
    config = load(environment)
    if config.reward is not None:
        raise ConfigError(
            f"{environment}: has a section `reward`, and a package has its environment's own; allowed: no such "
            "section, or a class that sets the reward",
            key="reward",
        )
    if why := find_in_section({**config.env.settings, "eval": config.env.eval}, f"{environment}: env", None):
        raise ConfigError(f"{why}, but publishing gives it to others", key="env")
    return config.env.name, config.env.settings, None


def _change_settings(own: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a config with changes; a block `data` is changed key by key, as by `env.eval`."""
    before, after = own.get("data"), changes.get("data")
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        changes = {**changes, "data": merge_data(before, after)}
    return {**own, **changes}


def _to_json_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(json.dumps(settings, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"--set: {error}; allowed: values that JSON can hold") from error
    if mask_settings(values) != values:
        raise ConfigError(
            "--set: a setting is named like a secret, or holds what looks like a key, and would be published; "
            "read keys from environment variables"
        )
    return values


def _build_module_name(name: str, source: EnvironmentSource) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ConfigError(f"--id {name!r}; allowed: lower-case letters and digits in words joined by -")
    module = name.replace("-", "_")
    taken = {"viewbox", "verifiers", *(path.stem for path in (source.module, source.package) if path)}
    if module in taken:
        free = next(free for end in ("env", "package") if (free := f"{name}-{end}").replace("-", "_") not in taken)
        raise ConfigError(f"--id {name!r}: the package itself needs a module {module}; allowed: another id, as {free}")
    return module


@dataclass(frozen=True)
class PackagePlan:
    """What a package is called and says of itself; `front_matter`: whether its README begins with YAML for a hub."""

    id: str
    module: str
    version: str
    license: str | None
    settings: dict[str, Any]
    viewbox: contents.Provision = contents.DEFAULT
    front_matter: bool = False


def write_package(root: Path, source: EnvironmentSource, plan: PackagePlan) -> CarriedModels:
    """Write a package into an empty folder; return the models, snapshots and files that travel with it. Raise
    `ConfigError` if a file or a setting cannot travel."""
    env, settings, module = source.env, plan.settings, plan.module
    copies, is_copied = root / module / "_vendor", plan.viewbox == "copy"
    if is_copied:
        copies.mkdir(parents=True)
        (copies / contents.LIBRARY).write_bytes(contents.pack_library())
    if source.package:
        for path in source.chosen.taken:
            _copy_file(source.package / path, copies / source.package.name / path)
    if source.module:
        _copy_file(source.module, root / module / source.module.name)
    for name, path in source.wheel.licenses.items() if source.wheel else ():
        _copy_file(path, root / module / LICENSES / name)
    carried = models.write_models(env, root / module)
    if carried.taken:
        settings = {**settings, "specialists": carried.specs}
    tasks = {"data": task_data.write_tasks(env, root / module)} if task_data.is_local(env) else {}
    named = {name: value for name, value in settings.items() if name not in tasks}
    settings = {**models.write_files(env, named, carried), **tasks}
    check_portable(settings, "env")
    _write_project(root, source, plan)
    summary = _get_summary(env)
    fields = {
        "id": plan.id,
        "module": module,
        "viewbox": __version__,
        "copy": contents.LIBRARY,
        "taskset": _build_class_name(plan.id),
        "license": f"{plan.license}, chosen" if plan.license else "not stated",
        "summary": summary,
    }
    shown = {**fields, **_describe_environment(env), "settings": _fence(json.dumps(settings))}
    provided = "copied" if is_copied else "required"
    card = fill("package/README.md", {**shown, "provided": fill(f"package/{provided}.md", fields).rstrip()})
    readme = source.wheel.readme if source.wheel else ""
    if source.wheel and not source.wheel.is_markdown and readme:
        _write_text(root / module / "README.rst", readme + "\n")
        card, readme = card + f"\nThe author's description is in {module}/README.rst.\n", ""
    header, readme = _build_header(plan, readme) if plan.front_matter else ("", readme)
    _write_text(root / "README.md", header + (f"{readme}\n\n---\n\n" if readme else "") + card)
    code = {
        "description": summary.splitlines()[0].replace("\\", "").replace('"', "'"),  # in a docstring
        "library": f'provide("viewbox", "{contents.LIBRARY}")' if is_copied else "",
        "own": f'provide("{source.package.name}")' if source.package else "",
        "environment": repr(f"{module}.{source.name}" if source.module else source.name),
        "settings": repr(settings),
    }
    _write_text(root / module / "__init__.py", fill("package/__init__.py", {**fields, **code}))
    return carried


def _write_project(root: Path, source: EnvironmentSource, plan: PackagePlan) -> None:
    specialists = [spec for _, spec in models.list_specialists(source.env)]
    project = {
        "id": plan.id,
        "version": plan.version,
        "description": _get_summary(source.env).splitlines()[0],
        "tags": list(TAGS),
        "dependencies": contents.list_dependencies(
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
    names = source.wheel.licenses if source.wheel else ()
    files = sorted(f"{plan.module}/{LICENSES}/{name.as_posix()}" for name in names)
    license = f"license = {json.dumps(plan.license)}\n" if plan.license else ""
    license += f"license-files = {json.dumps(files)}\n" if files else ""
    _write_text(root / "pyproject.toml", fill("package/pyproject.toml", {**toml, "license": license}))


def _build_class_name(id: str) -> str:
    return "".join(word.capitalize() for word in id.removeprefix("viewbox-").split("-")) + "Taskset"


def _build_header(plan: PackagePlan, readme: str) -> tuple[str, str]:
    """Return the YAML at the head of README.md, with what the author's README has there, and the rest of that.
    It holds license and tags for the hub's filters; no table of the files is shown."""
    values: dict[str, Any] = {"license": str(plan.license).lower(), "pretty_name": plan.id, "tags": [], "viewer": False}
    match = re.match(r"---\n(.*?\n)---\n", readme, re.DOTALL)
    header = yaml_reader.parse(match[1], "README.md")[0] if match else None
    if match and isinstance(header, dict):
        values, readme = {**header, **values}, readme[match.end() :].lstrip()
    tags = header.get("tags") if isinstance(header, dict) else None
    values["tags"] = list(dict.fromkeys([*HUB_TAGS, *TAGS, *(tags if isinstance(tags, list) else ())]))
    return f"---\n{yaml_reader.write(values)}---\n\n", readme


def _get_summary(env: BaseMultiTurnEnv) -> str:
    return (read_docstring(type(env)) or f"The {env.name} environment.").strip().split("\n\n")[0].split("\n>>>")[0]


def _describe_environment(env: BaseMultiTurnEnv) -> dict[str, str]:
    names = {name: get_reward_name(component.reward) for name, component in env.reward.components.items()}
    parts = [
        f"{component.weight:g} x {name}" + (f" ({names[name]})" if names[name] != name else "")
        for name, component in env.reward.components.items()
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
