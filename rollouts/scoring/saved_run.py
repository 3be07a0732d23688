"""A saved run that is scored: the reward of its episodes, their environment, and what its own files may name.

    episodes = load("runs/mine")
    for line, crc, episode, scores in SavedRun("runs/mine", episodes.folder, "strict.yaml").score(episodes):
        ...

A run may come from somebody else, so it never names code: from its own files (its config.yaml, its episodes, a YAML
file beside them) only environments and rewards of viewbox are made, and no judge is asked without `ask_judge`.
Specialists are left out: scoring calls no tool. What the user names in Python or on the command line is the user's own.

Scores equal those that the environment computes during play (`BaseMultiTurnEnv.score`). During play the environment
itself refuses a reward that sends restricted data to a judge on another machine; saved episodes are checked here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

from ...configs import yaml_reader
from ...configs.schema import load as load_config
from ...configs.schema import read_reward_file
from ...core.base import BaseMultiTurnEnv
from ...core.settings import ToolName, model_of
from ...envs import load_class, make
from ...envs.from_config import build_envs
from ...errors import ConfigError
from ...network.data_policy import RESTRICTED, guard_sending, is_this_machine
from ...records import Episode, Scores
from ...registry import ENVIRONMENTS
from ...rewards import AnyReward, CombinedReward, ExactMatchReward, build, to_combined
from ...rewards.declare import REWARD_TYPES, list_reward_types, load_reward
from ...rewards.remote import count_threads, find_remote_address, iter_rewards
from ...utils.concurrency import map_in_order
from ...utils.secrets import mask_assignments
from ..store.layout import IMPORTED
from ..store.reader import EpisodeReader
from ..store.run_folder import read_config
from .restriction import IS, MIXTURE, find_in_episode, find_in_section, get_name

OWN = "own"
USE_YOURS = "or give your own: an environment with --env, a reward with --reward"
ADD_ASK_JUDGE = "to ask it, add --ask-judge (in Python ask_judge=True)"
_RUN_FILES = ("episodes.jsonl", "episodes/episodes.jsonl", "versions.json")  # a folder with one of them is a run
# Settings that no score depends on: what is told, where tasks come from, and what a model could call
NOT_SCORED = ("templates", "data", "facts", "specialists", "tools", "max_calls", "windows", "thinking", "history")
# An object, a function, a YAML file, an import path, or None for the environment's own reward
RewardArgument = AnyReward | Callable[..., float | None] | str | Path | None


def make_environment(
    name: object,
    settings: Mapping[str, Any],
    origin: str,
    *,
    is_yours: bool = False,
    ask_judge: bool = False,
    **changes: object,
) -> BaseMultiTurnEnv:
    """Make the environment that a run's own files name, without the settings that no score depends on.
    It must be one of viewbox, and text among its settings one of named choices: other text may be a path or an address.

    Args:
        name: as the file gives it.
        settings: as the file gives them.
        origin: the file, for messages; empty if the caller says it.
        is_yours: whether the user gave the name, and not only the file; the parts of a mixture are the file's.
        ask_judge: whether a judge of a part of a mixture may be asked.
        changes: keyword arguments of `viewbox.make` that are not from the file.

    >>> make_environment("digits", {"max_turns": 3, "templates": {"system": "never rendered"}}, "config.yaml").max_turns
    3
    >>> make_environment("gift.code:Env", {}, "config.yaml")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    viewbox.errors.ConfigError: config.yaml: env.name = 'gift.code:Env'; allowed in a run's own files: chest_xray, \
..., digits, ...; or give your own: an environment with --env, a reward with --reward
    """
    where = f"{origin}: " if origin else ""
    settings = _choose_scored(settings)
    if "reward" in settings:
        raise ConfigError(f"{where}env.reward: the reward has a section of its own; allowed: `reward` beside `env`")
    if name == MIXTURE:
        settings["environments"] = _read_parts(settings, where, ask_judge)
    elif not is_yours:
        _check_section(name, settings, where)
    try:
        return make(str(name), **settings, **changes)
    except ConfigError as error:
        raise ConfigError(f"{where}{error}; {USE_YOURS}", key=error.key) from error


def _choose_scored(settings: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in settings.items() if key not in NOT_SCORED}


def _read_parts(mixture: Mapping[str, Any], where: str, ask_judge: bool) -> dict[str, Any]:
    """Return the sections of a mixture, each checked like an environment of its own, with its reward built."""
    sections, parts = mixture.get("environments"), {}
    shared = {key: value for key, value in mixture.items() if key != "environments"}
    for key, section in sections.items() if isinstance(sections, Mapping) else ():
        part = _choose_scored(section) if isinstance(section, Mapping) else {}
        place = f"{where}environments.{str(key)[:80]}"
        settings = {name: value for name, value in part.items() if name not in ("weight", "name", "reward")}
        _check_section(part.get("name", key), shared | settings, f"{place}: ")
        if (reward := part.pop("reward", None)) is not None:
            part["reward"] = build_reward(reward, place, ask_judge=ask_judge)
        parts[str(key)] = part
    return parts


def _check_section(name: object, settings: Mapping[str, Any], where: str) -> None:
    """Raise `ConfigError` for an environment that is none of viewbox, and for text in its settings that could name a
    file, an address or code."""
    if not isinstance(name, str) or name not in ENVIRONMENTS:
        known = ", ".join(sorted(ENVIRONMENTS))
        problem = f"{where}env.name = {name!r:.200}; allowed in a run's own files: {known}"
        raise ConfigError(f"{problem}; {USE_YOURS}", key="name")
    cls: type = load_class(name)
    fields = model_of(cls).model_fields
    for key, value in settings.items():
        if key in fields and _has_text(value) and not _has_choices(fields[key].annotation):
            raise ConfigError(
                f"{where}env.{key} = {value!r:.80}: text in this setting may be a path or an address; "
                f"allowed in a run's own files: numbers and named choices; {USE_YOURS}",
                key=f"env.{key}",
            )


def _has_choices(annotation: Any) -> bool:
    """Return whether a setting takes no text but that of a `Literal`, and names of tools."""
    if annotation is Ellipsis or annotation == ToolName:
        return True
    if not get_args(annotation):
        return annotation in (int, float, bool, type(None))
    return get_origin(annotation) is Literal or all(map(_has_choices, get_args(annotation)))


def _has_text(value: Any) -> bool:
    if isinstance(value, Mapping):
        return _has_text([*value, *value.values()])
    return any(map(_has_text, value)) if isinstance(value, list | tuple | set | frozenset) else isinstance(value, str)


def build_reward(spec: object, origin: str, *, ask_judge: bool = False) -> AnyReward:
    """Build the reward that a run's own files describe: of rewards of viewbox, and of judges if they may be asked.

    >>> build_reward({"type": "python", "function": "gift.code:score"}, "config.yaml")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: config.yaml: reward.function = 'gift.code:score'; allowed in a run's own files: the \
rewards of viewbox; or give your own: an environment with --env, a reward with --reward
    """

    def check(kind: str, part: Mapping[str, object], path: str) -> None:
        if kind == "judge":
            if not ask_judge:
                problem = f"{origin}: {path}: {_describe_judge(part)}; {ADD_ASK_JUDGE}, {USE_YOURS}"
                raise ConfigError(problem, key=path)
            return
        module = getattr(REWARD_TYPES.get(kind), "__module__", "")
        if kind in list_reward_types() and (kind == "python" or not module.startswith("viewbox.rewards.")):
            key = "function" if kind == "python" else "type"
            raise ConfigError(
                f"{origin}: {path}.{key} = {part.get(key)!r:.200}; allowed in a run's own files: the rewards of "
                f"viewbox; {USE_YOURS}",
                key=path,
            )

    try:
        reward = build(spec, check=check)
    except ConfigError as error:
        text = str(error) if str(error).startswith(f"{origin}: ") else f"{origin}: {error}"
        raise ConfigError(text, key=error.key) from error
    for path, judge, weight in _list_weights(reward, "reward", 1.0):
        if weight == 0 and getattr(judge, "blocking", False) is True:
            raise ConfigError(
                f"{origin}: {path} has the weight 0: it would be asked and change no score; allowed: a weight above 0",
                key=path,
            )
    return reward


def _describe_judge(part: Mapping[str, Any]) -> str:
    key = part.get("api_key_env")
    secret = f"with the key in your variable {key!r:.80}" if key is not None else "without a key"
    return f"would send the answers and references to a judge at {part.get('endpoint')!r:.200}, {secret}"


def _list_weights(reward: Any, path: str, weight: float) -> Iterator[tuple[str, Any, float]]:
    """(path, reward, share of the total) of every reward inside that is not combined."""
    if isinstance(reward, CombinedReward):
        for name, component in reward.components.items():
            yield from _list_weights(component.reward, f"{path}.components.{name}", weight * component.weight)
    else:
        for inner in iter_rewards(reward):
            yield path, inner, weight


def find_run_of(path: Path, *runs: Path) -> Path | None:
    """Return the run whose folder holds a file, so that whoever made the run may have written it; None if there is
    none.

    >>> find_run_of(Path("/nowhere/reward.yaml")), str(find_run_of(Path("/gift/reward.yaml"), Path("/gift")))
    (None, '/gift')
    """
    known = {run.resolve() for run in runs}
    for place in (Path.cwd() / path, path.resolve()):
        for folder in place.parents:
            if folder.resolve() in known or any((folder / name).exists() for name in _RUN_FILES):
                return folder
    return None


@dataclass(frozen=True)
class RewardSource:
    """A reward for saved episodes."""

    name: str
    about: Any  # describes the reward in the header of a score column
    score: Callable[[Episode], Scores]
    reward: CombinedReward | None = None  # None: each episode is scored by the environment that it names


def find_reward(reward: RewardArgument, *runs: Path, ask_judge: bool = False) -> RewardSource:
    """Find a reward that the user gives: an object or function, a YAML file, or an import path. Raise `ConfigError` if
    it cannot be made, or is not allowed in a run's own files.

    Args:
        reward: what is given. A YAML file that lies in a run is the run's own.
        runs: folders that are runs, whatever they hold.
        ask_judge: whether a judge of a run's own may be asked.

    >>> source = find_reward("viewbox.rewards:ExactMatchReward")
    >>> source.name, source.about
    ('exact_match', 'viewbox.rewards:ExactMatchReward')
    """
    if reward is None:
        raise ConfigError("reward: is missing; allowed: a file reward.yaml, package.module:name or file.py:name")
    if not isinstance(reward, str | Path):
        return _build_source(reward, mask_assignments(repr(reward))[:1000])
    path = Path(reward)
    if str(reward).endswith((".yaml", ".yml")) or yaml_reader.is_pipe(str(reward)):
        spec, home = read_reward_file(path), find_run_of(path, *runs)
        if spec is None and home is None:
            return _use_environment(build_envs(load_config(str(path), needs_model=False), {})[0])
        if spec is None:
            raise ConfigError(f"{path}: has no section `reward`; allowed: the run itself, whose environment has one")
        origin = f"{path} (in the run {home})"
        built = build(spec) if home is None else build_reward(spec, origin, ask_judge=ask_judge)
        return _build_source(built, spec, path.stem)
    if ":" in str(reward):
        return _build_source(load_reward(str(reward)), str(reward))
    allowed = "a file reward.yaml, package.module:name or path/to/file.py:name"
    raise ConfigError(f"reward {str(reward)!r}; allowed: {allowed}")


def _build_source(reward: AnyReward | Callable[..., float | None], about: Any, name: str = "") -> RewardSource:
    combined = to_combined(reward)
    return RewardSource(name or combined.name, about, combined.score_episode, combined)


def _use_environment(env: BaseMultiTurnEnv, section: object = None) -> RewardSource:
    return RewardSource(OWN, {"environment": section or env.name}, env.score, env.reward)


class ScoredEpisode(NamedTuple):
    """An episode, its line, the checksum of that line, and its scores."""

    line: int
    crc: int
    episode: Episode
    scores: Scores | None


class SavedRun:
    """A run whose episodes are scored.

    Args:
        run: what the user named.
        folder: the folder of episodes in it.
        reward: the user's own reward; see `find_reward`.
        env: the user's own environment, whose reward and metrics count instead of those of the run: a registered name,
            `package.module:Class`, `file.py:Class`, or a config, whose held-out environment it is. The settings that
            the run has for it are kept.
        ask_judge: whether a judge that its own files name may be asked.
    """

    def __init__(
        self,
        run: str | Path,
        folder: Path,
        reward: RewardArgument = None,
        *,
        env: str | Path | None = None,
        ask_judge: bool = False,
    ) -> None:
        self.run, self.folder, self.reward, self.ask_judge = Path(run), folder, reward, ask_judge
        self._env_name = None if env is None else str(env)
        self._find_own = cache(self._find_own_reason)

    @cached_property
    def _config(self) -> tuple[Path | None, Mapping[str, Any]]:
        return read_config(self.run, self.folder)

    @cached_property
    def _section(self) -> tuple[Any, dict[str, Any]]:
        """The name of the environment in its config, and its settings without `eval`; (None, {}) if there is none."""
        section = self._config[1].get("env")
        if not isinstance(section, Mapping):
            return None, {}
        return section.get("name"), {key: value for key, value in section.items() if key not in ("name", "eval")}

    @cached_property
    def env(self) -> BaseMultiTurnEnv | None:
        """The user's own environment, if there is one."""
        if self._env_name is None:
            return None
        if self._env_name.endswith((".yaml", ".yml")):
            return build_envs(load_config(self._env_name), {})[1]
        name, settings = self._section
        settings = settings if name == self._env_name else {}
        reward = None if self.reward is None else ExactMatchReward()  # it may have none by default
        return make_environment(self._env_name, settings, "--env", is_yours=True, reward=reward)

    def try_environment(self) -> BaseMultiTurnEnv | None:
        """Return the user's environment, or that of the config; None if there is none or it cannot be made."""
        if self.env is not None:
            return self.env
        with suppress(ConfigError):
            return make_environment(*self._section, "", ask_judge=self.ask_judge, reward=ExactMatchReward())
        return None

    def find_metrics(self) -> BaseMultiTurnEnv | str | None:
        """Return what declares its metrics: an environment, or its name; None: each episode names its own."""
        name, _ = self._section
        return self.try_environment() if self.env or name == MIXTURE else str(name) if name else None

    @cached_property
    def source(self) -> RewardSource:
        """The reward of its episodes: the user's, or that of the user's environment, of the config, of the environment
        there, or of those that the episodes name. Raise `ConfigError` if it cannot be made."""
        if self.reward is not None:
            return find_reward(self.reward, self.run, self.folder, ask_judge=self.ask_judge)
        if self.env is not None:
            return _use_environment(self.env)
        path, config = self._config
        if (spec := config.get("reward")) is not None:
            return _build_source(build_reward(spec, str(path), ask_judge=self.ask_judge), spec, OWN)
        section = config.get("env")
        if isinstance(section, Mapping) and "name" in section:
            return _use_environment(make_environment(*self._section, str(path), ask_judge=self.ask_judge), section)
        environments: dict[str, BaseMultiTurnEnv] = {}

        def score(episode: Episode) -> Scores:
            name = episode.environment
            if name == IMPORTED:  # no environment of ours: its scores are those that it came with
                return Scores(None) if episode.scores is None or episode.is_fault else episode.scores
            if name not in environments:
                environments[name] = make_environment(name, {}, f"the episode of task {episode.task.id!r:.100}")
            return environments[name].score(episode)

        return RewardSource(OWN, {"environment": "as the episodes name it"}, score)

    def check_sending(self, episode: Episode, to: str | None) -> None:
        """Raise `ConfigError` if an episode must not be sent to an address.
        What the episode says of its data counts, and what the config does, in `eval` and parts of a mixture, too. Where
        the episode says nothing, the user's own environment says it, else the classes that config and episode name."""
        if to is None or is_this_machine(to):
            return
        config_name, says, name = get_name(self._config[1]), RESTRICTED in episode.info, episode.environment
        is_yours = self.env is not None and not says and self._env_name in (config_name, name)
        reason = self._find_own(classes=not says and self._env_name != config_name)
        if is_yours and self.env is not None and self.env.restricted:
            reason = IS
        elif not (is_yours and name == self._env_name):
            reason = reason or find_in_episode(episode, config_name)
        if reason is not None:
            problem = f"{name}: {reason}, but its reward sends answers to {to}; allowed: a judge on localhost"
            raise ConfigError(problem, key="reward")

    def _find_own_reason(self, *, classes: bool) -> str | None:
        """Return why the data of the config's environment may not leave; what its classes say counts if `classes`."""
        path, config = self._config
        section = config.get("env")
        place = f"{path}: env"
        return None if section is None else find_in_section(section, place, get_name(config), classes=classes)

    def score(
        self, reader: EpisodeReader, conditions: Sequence[Callable[[Episode], bool]] = (), *, stored: bool = False
    ) -> Iterator[ScoredEpisode]:
        """Yield the episodes that meet all conditions, with the scores of `source`, or with those stored. What an
        episode names may be refused: then it is skipped. Raise `ConfigError` if an episode must not be sent to where
        the reward sends it, or all episodes were refused."""
        source = None if stored else self.source
        address = None if source is None else find_remote_address(source.reward)

        def select_episodes() -> Iterator[ScoredEpisode]:
            for episode in reader:
                if all(condition(episode) for condition in conditions):
                    self.check_sending(episode, address)
                    yield ScoredEpisode(reader.line, reader.crc, episode, episode.scores)

        def score_episode(scored: ScoredEpisode) -> tuple[ScoredEpisode, ConfigError | None]:
            with guard_sending(partial(self.check_sending, scored.episode)):  # of one that does not say where it sends
                try:
                    return (scored if source is None else scored._replace(scores=source.score(scored.episode))), None
                except ConfigError as error:
                    return scored, error

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
