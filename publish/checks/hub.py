"""Rows about a package that `viewbox publish` wrote: verifiers finds it, and what it carries loads."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .rows import Failed, check

if TYPE_CHECKING:
    from .trial import Trial

MEND = "publish the environment again with the installed viewbox and verifiers (pip install 'viewbox[hub]')"


def is_published(trial: "Trial") -> bool:
    """Whether the package was written by `viewbox publish`."""
    return trial.project.is_published


def has_carried(trial: "Trial") -> bool:
    """Whether a published package holds models or snapshots."""
    return trial.project.is_published and any(
        path.parts[1:2] in (("models",), ("snapshots",)) for path in trial.project.list_files()
    )


@check("verifiers", needs=("environment",), mend=MEND, inside=True, applies=is_published)
def check_verifiers(env: Any, project: Mapping[str, Any]) -> str:
    """verifiers finds the environment under the name of the package and opens its first task."""
    from importlib import import_module

    import verifiers.v1 as vf

    found, package = vf.environment_class(project["name"]), import_module(project["module"])
    if found is not package.ViewboxEnv:
        raise Failed(f"verifiers resolves {project['name']!r} to {found}")
    env.reset(next(iter(env.tasks)), seed=0)
    place = str(import_module("viewbox").__file__).rpartition("site-packages/")[2]  # that of the fresh environment
    return f"verifiers finds the package and opens its first task; viewbox is {place}"


@check(
    "carried files",
    needs=("environment",),
    mend="publish the environment again from the machine that has the models",
    inside=True,
    applies=has_carried,
)
def check_carried(env: Any, project: Mapping[str, Any]) -> str:
    """The models and snapshots that a published package carries load."""
    from pathlib import Path

    from viewbox.tools.specialists.spec import find_hook

    loaded = []
    for name, spec in env.specialists.items():
        place = getattr(spec, "model", None) or getattr(spec, "snapshot", None)
        if isinstance(place, str) and Path(place).is_absolute() and Path(place).exists():
            for tool in spec.build_tools(name):
                prepare = find_hook(tool, "prepare")
                if prepare is not None:
                    prepare()
            loaded.append(name)
    if not loaded:
        raise Failed("no specialist uses the models and snapshots in the package")
    return f"load: {', '.join(loaded)}"
