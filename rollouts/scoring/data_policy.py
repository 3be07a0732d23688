"""Keeps saved episodes of restricted environments from being sent to a judge on another machine.

During play the environment itself refuses such a reward. Saved episodes need this check of their own.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from viewbox.errors import ConfigError
from viewbox.records import Episode
from viewbox.rewards import ExactMatchReward
from viewbox.rewards.remote import check_reward_may_ask, find_remote_address
from viewbox.rollouts.scoring.trust import NOTHING, Trust, make_environment
from viewbox.rollouts.store.run_folder import read_config


def build_sharing_check(reward: object, run: Path, folder: Path, trust: Trust = NOTHING) -> Callable[[Episode], None]:
    """Build a check that raises `ConfigError` for an episode that `reward` must not send to another machine.

    The environment is that of the run's config.yaml, else the one that the episode names. An environment that cannot be
    created, or whose code is not trusted, may be restricted, so its episodes are refused too. Episodes that name no
    environment are allowed.

    >>> build_sharing_check(None, Path("."), Path("."))(Episode.__new__(Episode))  # no reward sends anything
    """
    address = find_remote_address(reward)
    if address is None:
        return lambda episode: None
    run_environment = read_environment_name(run, folder)

    @cache
    def check(name: str) -> None:
        try:
            # it may have no default reward
            env = make_environment(name, {}, "the run's own files", trust, reward=ExactMatchReward())
        except ConfigError as error:
            raise ConfigError(
                f"{name}: this environment cannot be created, so it is unknown whether its data may go to {address} "
                f"({error}); allowed: a judge on localhost"
            ) from error
        check_reward_may_ask(env, reward)

    def check_episode(episode: Episode) -> None:
        name = run_environment or episode.environment
        if name:
            check(name)

    return check_episode


def read_environment_name(run: Path, folder: Path) -> str | None:
    """The environment named in the config.yaml of a run, if it has one; `folder` is that of its episodes."""
    env = read_config(run, folder)[1].get("env")
    return str(env["name"]) if isinstance(env, Mapping) and env.get("name") else None
