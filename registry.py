"""What a name in a config stands for: one table a group, and what other packages add to it.

A value is a module, which registers its class when it is imported, or `module:Class`. It is imported when a config
names it. Another package adds a name by an entry point of the group, in its pyproject.toml:

    [project.entry-points."viewbox.environments"]
    lesions = "lesions.env:Lesions"
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module, metadata
from types import ModuleType
from typing import Literal

Group = Literal["credits", "engines", "environments", "rewards", "specialists"]

CREDITS: dict[str, str] = {  # `type` of `train.credit`
    "components": "viewbox.training.grpo.credit:ComponentsCredit",
    "episode": "viewbox.training.grpo.credit:EpisodeCredit",
    "turns": "viewbox.training.grpo.credit:TurnsCredit",
}
ENGINES: dict[str, str] = {  # `rollout.engine`; `engines/table.py` says what such a module has
    "hf": "viewbox.engines.hf",
    "vllm": "viewbox.engines.vllm",
}
ENVIRONMENTS: dict[str, str] = {  # `env.name`
    "chest_xray": "viewbox.envs.chest_xray:ChestXray",
    "consultation": "viewbox.envs.consultation:Consultation",
    "digits": "viewbox.envs.digits:Digits",
    "grounding": "viewbox.envs.grounding:Grounding",
    "literature_vqa": "viewbox.envs.literature_vqa:LiteratureVQA",
    "mixture": "viewbox.envs.mixture:Mixture",
    "phantom": "viewbox.envs.phantom:Phantom",
    "report": "viewbox.envs.report:Report",
    "software_adviser": "viewbox.envs.software_adviser.env:SoftwareAdviser",
    "vqa": "viewbox.envs.vqa:VQA",
}
REWARDS: dict[str, str] = {  # `type` of a reward; those of the room `rewards` register themselves
    "judge": "viewbox.rollouts.judge.reward"
}
SPECIALISTS: dict[str, str] = {  # `kind` of a specialist
    "classification": "viewbox.tools.specialists.models.classification",
    "detection": "viewbox.tools.specialists.models.detection",
    "function": "viewbox.tools.specialists.spec",
    "grounding": "viewbox.tools.specialists.models.detection",
    "http": "viewbox.tools.specialists.http",
    "literature": "viewbox.tools.search.tools",
    "mcp": "viewbox.tools.specialists.mcp",
    "prompted_segmentation": "viewbox.tools.specialists.models.segmentation",
    "segmentation": "viewbox.tools.specialists.models.segmentation",
    "text": "viewbox.tools.specialists.models.text",
}
TABLES: Mapping[Group, dict[str, str]] = {
    "credits": CREDITS,
    "engines": ENGINES,
    "environments": ENVIRONMENTS,
    "rewards": REWARDS,
    "specialists": SPECIALISTS,
}


def list_plugins(group: Group) -> dict[str, str]:
    """Return name → module, or `module:Class`, of a group. A name of viewbox is never another package's.

    >>> list_plugins("rewards")["judge"]
    'viewbox.rollouts.judge.reward'
    """
    return _read_entry_points(group) | TABLES[group]


def find_plugin(group: Group, name: str) -> str | None:
    """Return the module, or `module:Class`, that a name stands for; None if it stands for nothing.

    >>> find_plugin("environments", "vqa")
    'viewbox.envs.vqa:VQA'
    """
    return TABLES[group].get(name) or _read_entry_points(group).get(name)


def import_plugin(group: Group, name: str) -> ModuleType | None:
    """Import the module that a name stands for; None if it stands for nothing."""
    path = find_plugin(group, name)
    return None if path is None else import_module(path.partition(":")[0])


@cache
def _read_entry_points(group: Group) -> dict[str, str]:
    """Return the names that installed packages add."""
    return {point.name: point.value for point in metadata.entry_points(group=f"viewbox.{group}")}
