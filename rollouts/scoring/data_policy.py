"""Which saved episodes may be shown to a judge elsewhere: none of a restricted environment.

Play is guarded where an environment gets its reward; here are episodes that were played long ago.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from viewbox.configs import yaml_reader
from viewbox.envs import make
from viewbox.errors import ConfigError
from viewbox.records import Episode
from viewbox.rewards import ExactMatchReward
from viewbox.rewards.remote import refuse_remote, remote


def leave_to_judge(reward: Any, run: Path, folder: Path) -> Callable[[Episode], None]:
    """A check that raises `ConfigError` for an episode that `reward` would send elsewhere although it must not.

    The environment is that of the run's config.yaml, else the one the episode names. One that cannot be found may be
    restricted, so its episodes stay, too; episodes that name none are nobody's.

    >>> leave_to_judge(None, Path("."), Path("."))(Episode.__new__(Episode))  # nothing leaves: nothing is asked
    """
    address = remote(reward)
    if address is None:
        return lambda episode: None
    named = named_in(run, folder)

    @cache
    def check(name: str) -> None:
        try:
            env = make(name, reward=ExactMatchReward())  # it may have none of its own
        except ConfigError as error:
            raise ConfigError(
                f"{name}: this environment cannot be made, so nobody can say whether its data may be sent to {address} "
                f"({error}); allowed: a judge on localhost"
            ) from error
        if env.restricted:
            refuse_remote(reward, name)

    def allowed(episode: Episode) -> None:
        name = named or episode.environment
        if name:
            check(name)

    return allowed


def named_in(run: Path, folder: Path) -> str | None:
    """The environment in the config.yaml of a run that has one; `folder` is that of its episodes."""
    path = next((path for path in (run / "config.yaml", folder.parent / "config.yaml") if path.is_file()), None)
    config = yaml_reader.read(path).values if path else None
    env = config.get("env") if isinstance(config, Mapping) else None
    return str(env["name"]) if isinstance(env, Mapping) and env.get("name") else None
