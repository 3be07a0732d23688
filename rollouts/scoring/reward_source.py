"""With which reward saved episodes are judged: one that is given, or their environment's own. No model is needed.

Whatever is chosen, the number is the one the environment gives while it plays (`BaseMultiTurnEnv.score`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viewbox.configs import yaml_reader
from viewbox.errors import ConfigError
from viewbox.records import Episode, Scores
from viewbox.rewards import build, guarded
from viewbox.rewards.imported import imported

OWN = "own"


@dataclass(frozen=True)
class Judge:
    """`score` gives an episode's scores; `name` is short, and `about` says for the record what the reward is.

    `reward` is what `score` asks; None where every episode's environment has its own.
    """

    name: str
    about: Any
    score: Callable[[Episode], Scores]
    reward: Any = None


def judge_of(reward: Any, run: Path, folder: Path) -> Judge:
    """The judge for a reward: an object or function, a YAML file, an import path, or None for the environment's own.

    `run` is what the user named and `folder` the folder of episodes in it. Raises `ConfigError`.

    >>> judge = judge_of("viewbox.rewards:ExactMatchReward", Path("."), Path("."))
    >>> judge.name, judge.about
    ('exact_match', 'viewbox.rewards:ExactMatchReward')
    """
    if reward is None:
        return _own(run, folder)
    if not isinstance(reward, str | Path):
        return _judge(reward, repr(reward)[:1000])
    if str(reward).endswith((".yaml", ".yml")):
        spec = _spec(Path(reward))
        return _judge(build(spec), spec, Path(reward).stem)
    if ":" in str(reward):
        return _judge(imported(str(reward)), str(reward))
    raise ConfigError(
        f"reward {str(reward)!r}: allowed: a file reward.yaml, package.module:name or path/to/file.py:name"
    )


def _judge(reward: Any, about: Any, name: str = "") -> Judge:
    combined = guarded(reward)

    def score(episode: Episode) -> Scores:
        total, parts = combined.score(episode.answer, episode.task.reference, episode)
        return Scores(0.0 if total is None else total, parts)

    return Judge(name or combined.name, about, score, combined)


def _spec(path: Path) -> Any:
    """The reward in a file that holds nothing else, or in the section `reward` of a whole config."""
    values = yaml_reader.read(path).values
    if isinstance(values, Mapping) and "type" not in values and values.get("reward") is not None:
        return values["reward"]
    if isinstance(values, Mapping) and "env" in values:
        raise ConfigError(f"{path}: has no section `reward`; without --reward the environment's own is used")
    if not isinstance(values, Mapping):
        raise ConfigError(f"{path}: holds no reward; allowed: a mapping with `type`, or a config with `reward`")
    return values


def _own(run: Path, folder: Path) -> Judge:
    """The run's reward, else that of its environment with the run's settings, else of the one the episodes name."""
    path = next((path for path in (run / "config.yaml", folder.parent / "config.yaml") if path.is_file()), None)
    config = yaml_reader.read(path).values if path else None
    if isinstance(config, Mapping) and config.get("reward") is not None:
        try:
            return _judge(build(config["reward"]), config["reward"], OWN)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error
    env = config.get("env") if isinstance(config, Mapping) else None
    if isinstance(env, Mapping) and "name" in env:
        settings = {key: value for key, value in env.items() if key not in ("name", "eval")}
        made_env = _environment(env["name"], settings, str(path))
        return Judge(OWN, {"environment": dict(env)}, made_env.score, made_env.reward)
    made: dict[str, Any] = {}

    def score(episode: Episode) -> Scores:
        name = episode.environment
        if name not in made:
            made[name] = _environment(name, {}, f"the episode of task {episode.task.id!r}")
        return made[name].score(episode)

    return Judge(OWN, {"environment": "as the episodes name it"}, score)


def _environment(name: str, settings: Mapping[str, Any], source: str) -> Any:
    from viewbox import make

    try:
        return make(name, **settings)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}; or give the reward with --reward") from error
