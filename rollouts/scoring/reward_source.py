"""Finds the reward for saved episodes, the given one or the environment's own, and scores them. Needs no model.

Either way, the scores equal those that the environment computes during play (`BaseMultiTurnEnv.score`). During play the
environment itself refuses a reward that sends restricted data to a judge on another machine; saved episodes need the
check that is built here.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, TypeVar

from ...configs import yaml_reader
from ...configs.schema import load as load_config
from ...configs.schema import read_reward_file
from ...core.base import BaseMultiTurnEnv
from ...envs.from_config import build_envs
from ...errors import ConfigError
from ...network.data_policy import RESTRICTED, check_may_leave, guard_sending, is_this_machine
from ...plugins import ENVIRONMENTS, find_plugin
from ...records import Episode, Scores
from ...rewards import CombinedReward, ExactMatchReward, build, to_combined
from ...rewards.declare import AnyReward, load_reward
from ...rewards.remote import count_threads, find_remote_address
from ...utils.secrets import mask_assignments
from ..store.layout import IMPORTED
from ..store.reader import EpisodeReader
from ..store.run_folder import read_config
from .restriction import find_in_episode, find_in_section, get_name
from .trust import MIXTURE, NO_TRUST, USE_YOUR_REWARD, Trust, build_reward, find_run_of, make_environment

OWN = "own"
AHEAD = 2  # pending results per thread
T = TypeVar("T")
R = TypeVar("R")
# An object, a function, a YAML file, an import path, or None for the environment's own reward
RewardArgument = AnyReward | Callable[..., float | None] | str | Path | None


@dataclass(frozen=True)
class RewardSource:
    """A reward for saved episodes."""

    name: str
    about: Any  # describes the reward in the header of a score column
    score: Callable[[Episode], Scores]
    reward: CombinedReward | None = None  # None: each episode is scored by the environment that it names


def find_reward(
    reward: RewardArgument,
    run: Path | None = None,
    folder: Path | None = None,
    trust: Trust = NO_TRUST,
    env: BaseMultiTurnEnv | None = None,
) -> RewardSource:
    """Find the reward that scores the episodes of a run.

    Args:
        reward: an object or function, a YAML file, an import path, or None for the environment's own. A YAML file that
            lies in a run is the run's own.
        run: what the user named; without it, `reward` must be given.
        folder: the folder of episodes in it.
        trust: what the run's own files may do.
        env: the user's own environment, whose reward counts instead of that of the run.

    Raises:
        ConfigError: the reward or the environment cannot be made, or is not allowed in a run's own files.

    >>> source = find_reward("viewbox.rewards:ExactMatchReward")
    >>> source.name, source.about
    ('exact_match', 'viewbox.rewards:ExactMatchReward')
    """
    if reward is None and env is not None:
        return RewardSource(OWN, {"environment": env.name}, env.score, env.reward)
    if reward is None:
        if run is None or folder is None:
            raise ConfigError("reward: is missing; allowed: a file reward.yaml, package.module:name or file.py:name")
        return _find_own_reward(run, folder, trust)
    if not isinstance(reward, str | Path):
        return _build_source(reward, mask_assignments(repr(reward))[:1000])
    if str(reward).endswith((".yaml", ".yml")) or yaml_reader.is_pipe(str(reward)):
        return _read_reward(Path(reward), [one for one in (run, folder) if one is not None], trust)
    if ":" in str(reward):
        return _build_source(load_reward(str(reward)), str(reward))
    raise ConfigError(
        f"reward {str(reward)!r}; allowed: a file reward.yaml, package.module:name or path/to/file.py:name"
    )


def open_environment(name: str | Path, run: Path, folder: Path) -> BaseMultiTurnEnv:
    """Make the environment that the user names for a run; the settings that the run has for it are kept.

    Args:
        name: a registered name, `package.module:Class`, `file.py:Class`, or a config, whose held-out environment it is.
        run: what the user named as the run.
        folder: the folder of episodes in it.

    Raises:
        ConfigError: it cannot be made.
    """
    if str(name).endswith((".yaml", ".yml")):
        return build_envs(load_config(str(name)), {})[1]
    own, settings = read_environment_section(run, folder)
    return make_environment(str(name), settings if own == name else {}, "--env", Trust(code=True))


def read_environment_section(run: Path, folder: Path) -> tuple[Any, dict[str, Any]]:
    """Return the name of the environment in the config.yaml of a run, and its settings without `eval`; (None, {}) if
    there is none. `folder` is that of its episodes."""
    section = read_config(run, folder)[1].get("env")
    settings = {key: value for key, value in section.items() if key != "eval"} if isinstance(section, Mapping) else {}
    return settings.pop("name", None), settings


def read_environment(run: Path, folder: Path, trust: Trust) -> BaseMultiTurnEnv | str | None:
    """Return what declares the metrics of a run: the name of its environment, or the mixture itself, if it can be
    made."""
    name, _ = read_environment_section(run, folder)
    if name == MIXTURE:
        return try_environment(run, folder, trust)
    return str(name) if name else None  # without one, each episode names its own


def try_environment(run: Path, folder: Path, trust: Trust) -> BaseMultiTurnEnv | None:
    """Return the environment of a run's config, or None if there is none or it cannot be made."""
    name, settings = read_environment_section(run, folder)
    try:
        return make_environment(name, settings, "", trust, reward=ExactMatchReward())
    except ConfigError:
        return None


def _build_source(reward: AnyReward | Callable[..., float | None], about: Any, name: str = "") -> RewardSource:
    combined = to_combined(reward)
    return RewardSource(name or combined.name, about, combined.score_episode, combined)


def _read_reward(path: Path, runs: Sequence[Path], trust: Trust) -> RewardSource:
    """Return the reward in a YAML file; one in a run's folder may have been written by whoever made the run."""
    spec, home = read_reward_file(path), find_run_of(path, *runs)
    if spec is None and home is None:
        env = build_envs(load_config(str(path), needs_model=False), {})[0]
        return RewardSource(OWN, {"environment": env.name}, env.score, env.reward)
    if spec is None:
        raise ConfigError(f"{path}: has no section `reward`; allowed: the run itself, whose environment has a reward")
    if home is None:
        return _build_source(build(spec), spec, path.stem)
    return _build_source(build_reward(spec, f"{path} (in the run {home})", trust), spec, path.stem)


def _find_own_reward(run: Path, folder: Path, trust: Trust) -> RewardSource:
    """Return the reward in the run's config, else that of its environment there, else those of the episodes'
    environments."""
    path, config = read_config(run, folder)
    if config.get("reward") is not None:
        return _build_source(build_reward(config["reward"], str(path), trust), config["reward"], OWN)
    section = config.get("env")
    if isinstance(section, Mapping) and "name" in section:
        env = _make_environment(*read_environment_section(run, folder), str(path), trust)
        return RewardSource(OWN, {"environment": section}, env.score, env.reward)
    environments: dict[str, BaseMultiTurnEnv] = {}

    def score(episode: Episode) -> Scores:
        name = episode.environment
        if name == IMPORTED:  # no environment of ours: its scores are those that it came with
            return Scores(None) if episode.scores is None or episode.is_fault else episode.scores
        if name not in environments:
            origin = f"the episode of task {episode.task.id!r:.100}"
            environments[name] = _make_environment(name, {}, origin, trust)
        return environments[name].score(episode)

    return RewardSource(OWN, {"environment": "as the episodes name it"}, score)


def _make_environment(name: Any, settings: Mapping[str, Any], origin: str, trust: Trust) -> BaseMultiTurnEnv:
    try:
        return make_environment(name, settings, origin, trust)
    except ConfigError as error:
        text = str(error) if str(error).endswith(USE_YOUR_REWARD) else f"{error}{USE_YOUR_REWARD}"
        raise ConfigError(text, key=error.key) from error


# ---------------------------------------------------------------------- where episodes may be sent
def build_sharing_check(reward: object, run: Path, folder: Path, trust: Trust = NO_TRUST) -> Callable[..., None]:
    """Build the check of episodes that `reward` may send to another machine: it raises `ConfigError` for one that must
    not be sent to an address, by default to that of the reward.

    What the episode says of its data counts, what the run's config does, in `eval` and parts of a mixture, too, and the
    environment: that of the config, else the one that the episode names; if the episode names another registered one,
    both must allow it. An environment that cannot be created, whose code is not trusted, or whose settings nothing
    says, may be restricted, so its episodes are refused too.

    >>> from viewbox.records import Task
    >>> build_sharing_check(None, Path("."), Path("."))(Episode(Task("a")))  # no reward sends anything
    """
    address = find_remote_address(reward)

    @cache
    def read_section() -> tuple[str | None, str | None]:
        path, config = read_config(run, folder)
        section = config.get("env")
        own = get_name(config)
        return own, None if section is None else find_in_section(section, f"{path}: env", own)

    @cache
    def check(name: str, to: str) -> None:
        own, settings = read_environment_section(run, folder)
        settings = settings if own == name == MIXTURE else {}
        try:  # with a reward: it may have none by default
            env = make_environment(name, settings, "the run's own files", trust, reward=ExactMatchReward())
        except ConfigError as error:
            raise ConfigError(
                f"{name}: this environment cannot be created, so it is unknown whether its data may go to {to} "
                f"({error}); allowed: a judge on localhost"
            ) from error
        check_may_leave(env, to, action="its reward sends answers to", allowed="a judge on localhost", key="reward")

    def check_episode(episode: Episode, to: str | None = address) -> None:
        if to is None or is_this_machine(to):
            return
        own, reason = read_section()
        name = episode.environment
        is_own, says = bool(name) and name not in ENVIRONMENTS, RESTRICTED in episode.info
        if reason := reason or (None if is_own and not says else find_in_episode(episode, own)):
            problem = f"{name}: {reason}, but its reward sends answers to {to}; allowed: a judge on localhost"
            raise ConfigError(problem, key="reward")
        if own == MIXTURE:  # its parts were checked with it
            return check(MIXTURE, to)
        names = {own or name, name}
        for one in names - ({name} if is_own and says else set()):  # the others are made, and asked
            if one and (len(names) == 1 or one == own or find_plugin("environments", one)):
                check(one, to)

    return check_episode


# ---------------------------------------------------------------------- scoring
class ScoredEpisode(NamedTuple):
    """An episode, its line, the checksum of that line, and its scores."""

    line: int
    crc: int
    episode: Episode
    scores: Scores | None


def score_episodes(
    reader: EpisodeReader,
    conditions: Sequence[Callable[[Episode], bool]],
    source: RewardSource | None,
    check_sharing: Callable[..., None],
) -> Iterator[ScoredEpisode]:
    """Yield the episodes that meet all conditions, with the scores of a reward; without one, with those stored.

    What an episode names may be refused: then it is skipped.

    Raises:
        ConfigError: as `check_sharing` does, or all episodes were refused.
    """

    def select_episodes() -> Iterator[ScoredEpisode]:
        for episode in reader:
            if all(condition(episode) for condition in conditions):
                check_sharing(episode)
                yield ScoredEpisode(reader.line, reader.crc, episode, episode.scores)

    def score_episode(one: ScoredEpisode) -> tuple[ScoredEpisode, ConfigError | None]:
        with guard_sending(partial(check_sharing, one.episode)):  # of a reward that does not say where it sends
            try:
                return (one if source is None else one._replace(scores=source.score(one.episode))), None
            except ConfigError as error:
                return one, error

    first, is_any = None, False
    threads = 1 if source is None else count_threads(source.reward)
    for scored, refusal in map_in_order(score_episode, select_episodes(), threads=threads):
        if refusal is None:
            is_any = True
            yield scored
        else:
            first = first or refusal
            reader.skip(scored.line, str(refusal))
    if first is not None and not is_any:
        raise first


def map_in_order(function: Callable[[T], R], items: Iterable[T], *, threads: int) -> Iterator[R]:
    """Like `map(function, items)`, but in `threads` threads; results come in the order of `items`.

    `items` is read in the caller's thread, and only as far ahead as needed. The first exception, in the order of
    `items`, is raised. The threads are daemons: an interrupted program does not wait for them.

    >>> list(map_in_order(str, range(5), threads=3))
    ['0', '1', '2', '3', '4']
    """
    if threads < 2:
        yield from map(function, items)
        return
    jobs: SimpleQueue[tuple[Future[R], T] | None] = SimpleQueue()
    for _ in range(threads):
        Thread(target=_run_jobs, args=(function, jobs), daemon=True, name="viewbox-scoring").start()
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            future: Future[R] = Future()
            jobs.put((future, item))
            waiting.append(future)
            if len(waiting) >= AHEAD * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        for _ in range(threads):
            jobs.put(None)


def _run_jobs(function: Callable[[T], R], jobs: "SimpleQueue[tuple[Future[R], T] | None]") -> None:
    while (job := jobs.get()) is not None:
        future, item = job
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(function(item))
        except BaseException as error:  # the caller raises it
            future.set_exception(error)
