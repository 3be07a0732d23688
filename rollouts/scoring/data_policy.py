"""Keeps saved episodes of restricted environments from being sent to a judge on another machine.

During play the environment itself refuses such a reward. Saved episodes need this check of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from ...core.base import BaseMultiTurnEnv
from ...errors import ConfigError
from ...network.data_policy import check_may_leave, is_this_machine
from ...plugins import find_plugin
from ...records import Episode
from ...rewards import ExactMatchReward
from ...rewards.remote import find_remote_address
from ..store.run_folder import read_config
from .trust import MIXTURE, NO_TRUST, Trust, make_environment


class SharingCheck(Protocol):
    """Raises `ConfigError` if an episode must not be sent to an address; by default to that of the reward."""

    def __call__(self, episode: Episode, to: str | None = None) -> None: ...


def build_sharing_check(reward: object, run: Path, folder: Path, trust: Trust = NO_TRUST) -> SharingCheck:
    """Build the check of episodes that `reward` may send to another machine.

    The environment is that of the run's config.yaml, else the one that the episode names; if the episode names another
    registered one, both must allow it. An environment that cannot be created, or whose code is not trusted, may be
    restricted, so its episodes are refused too. Episodes that name no environment are allowed.

    >>> from viewbox.records import Task
    >>> build_sharing_check(None, Path("."), Path("."))(Episode(Task("a")))  # no reward sends anything
    """
    address = find_remote_address(reward)

    @cache
    def read_run_environment() -> str | None:
        return read_environment_name(run, folder)

    @cache
    def check(name: str, to: str) -> None:
        section = read_environment_section(run, folder)
        settings = section if section.get("name") == name else {}
        words = {"action": "its reward sends answers to", "allowed": "a judge on localhost", "key": "reward"}
        if is_declared_restricted(settings):
            check_may_leave(_Restricted(name), to, **words)
        settings = {key: settings[key] for key in settings if key != "name"} if name == MIXTURE else {}
        try:
            # it may have no default reward
            env = make_environment(name, settings, "the run's own files", trust, reward=ExactMatchReward())
        except ConfigError as error:
            raise ConfigError(
                f"{name}: this environment cannot be created, so it is unknown whether its data may go to {to} "
                f"({error}); allowed: a judge on localhost"
            ) from error
        check_may_leave(env, to, **words)

    def check_episode(episode: Episode, to: str | None = address) -> None:
        if to is None or is_this_machine(to):
            return
        if read_run_environment() == MIXTURE:  # its parts were checked with it
            return check(MIXTURE, to)
        names = {read_run_environment() or episode.environment, episode.environment}
        for name in names:
            if name and (len(names) == 1 or name == read_run_environment() or find_plugin("environments", name)):
                check(name, to)

    return check_episode


@dataclass(frozen=True)
class _Restricted:
    name: str
    restricted: bool = True


def is_declared_restricted(settings: Mapping[str, object]) -> bool:
    """Return whether the data of an environment, or of one that it mixes, is declared restricted in a run's config."""
    data, parts = settings.get("data"), settings.get("environments")
    if isinstance(data, Mapping) and data.get("restricted"):
        return True
    sections = parts.values() if isinstance(parts, Mapping) else ()
    return any(is_declared_restricted(section) for section in sections if isinstance(section, Mapping))


def read_environment_section(run: Path, folder: Path) -> Mapping[str, object]:
    """Return the section `env` in the config.yaml of a run, without `eval`; empty if it has none."""
    section = read_config(run, folder)[1].get("env")
    return {key: value for key, value in section.items() if key != "eval"} if isinstance(section, Mapping) else {}


def read_environment_name(run: Path, folder: Path) -> str | None:
    """Return the environment named in the config.yaml of a run, if it has one; `folder` is that of its episodes."""
    name = read_environment_section(run, folder).get("name")
    return str(name) if name else None


def read_environment(run: Path, folder: Path, trust: Trust) -> BaseMultiTurnEnv | str | None:
    """Return what declares the metrics of a run: the name of its environment, or the mixture itself, if it can be
    made."""
    section = read_environment_section(run, folder)
    name = read_environment_name(run, folder)
    if name != MIXTURE:
        return name
    settings = {key: value for key, value in section.items() if key != "name"}
    try:
        return make_environment(MIXTURE, settings, "", trust, reward=ExactMatchReward())
    except ConfigError:
        return None  # each episode names its own
