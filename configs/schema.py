"""A run's config: read from YAML, checked, with errors that name file, line and key.

Sections: `model`, `env`, `rollout`, `log` (`sections.py`), `train` (also any argument of TRL's `GRPOConfig`), `lora`
(`train_sections.py`), and `reward`. The environment's own settings are written beside its name under `env`; `eval`
inside it overrides them for held-out tasks. `viewbox config` prints `docs/configuration.md` from these files.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, PrivateAttr, SerializeAsAny, ValidationError

from ..errors import ConfigError, ViewboxError, describe_unknown
from . import yaml_reader
from .sections import EnvSection, LogSection, ModelSection, RolloutSection, Section
from .train_sections import LoraSection, TrainSection
from .validation import DATA_LIMITS, describe_errors
from .yaml_reader import Document

DATASETS = "datasets"  # the folder of the configs of known datasets


def read_reward(given: object) -> object:
    """Return the mapping of a reward that may be named in short: by a file reward.yaml or an import path.

    >>> read_reward("mine.py:score")
    {'type': 'python', 'function': 'mine.py:score'}
    """
    if not isinstance(given, str):
        return given
    if given.endswith((".yaml", ".yml")) or yaml_reader.is_pipe(given):
        reward = read_reward_file(Path(given))
        if reward is None:
            raise ValueError("it has no section `reward`; allowed: a file with a reward")
        return reward
    if ":" not in given:
        raise ValueError("allowed: a file reward.yaml, package.module:name or path/to/file.py:name")
    return {"type": "python", "function": given}


def read_reward_file(path: Path) -> dict[str, Any] | None:
    """Return the reward in a file: all of it, or the section `reward` of a whole config, which may be None."""
    values = yaml_reader.read(path).values
    if isinstance(values, Mapping) and "type" not in values and values.get("reward") is not None:
        values = values["reward"]
        if isinstance(values, str) and ":" in values:
            values = read_reward(values)
    elif isinstance(values, Mapping) and "env" in values:
        return None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: does not hold a reward; allowed: a mapping with `type`, or a config with `reward`")
    return values


class Config(Section):
    """A whole run."""

    model: ModelSection
    env: EnvSection
    reward: Annotated[dict[str, Any] | None, BeforeValidator(read_reward)] = Field(
        default=None,
        description="a reward by its `type`, a YAML file that holds one, package.module:name or path/to/file.py:name; "
        "default: the environment's reward",
    )
    rollout: Annotated[SerializeAsAny[RolloutSection], BeforeValidator(RolloutSection.read)] = Field(
        default_factory=lambda: RolloutSection.read({})
    )
    train: TrainSection = TrainSection()
    lora: LoraSection | None = None
    log: LogSection = LogSection()
    _document: Document = PrivateAttr(default_factory=Document)


def find(name: str) -> Path:
    """Return the path of a config: a file, or the name of a shipped one (`quickstart`, or a dataset's)."""
    path = Path(name)
    if path.is_file() or yaml_reader.is_pipe(path):
        return path
    shipped = Path(str(resources.files("viewbox.configs")))
    for parent, folder in (("configs", shipped), ("configs/datasets", shipped / DATASETS)):
        inside = folder / f"{path.stem}.yaml"
        if path.parent in (Path(), Path(parent)) and inside.is_file():
            return inside
    if path.is_dir():
        files = sorted(file.name for file in path.glob("*.yaml"))
        raise ConfigError(f"{name}: a folder, not a file; YAML files in it: {', '.join(files) or 'none'}")
    beside = get_close_matches(str(path), [str(file) for file in path.parent.glob("*.y*ml")], n=1)
    if beside:
        raise ConfigError(f"{name}: no such file (did you mean {beside[0]!r}?)")
    names = [file.stem for folder in (shipped, shipped / DATASETS) for file in folder.glob("*.yaml")]
    raise ConfigError(f"{name}: no such file; {describe_unknown('shipped config', path.stem, names)}")


def load(name: str, overrides: Sequence[str] = (), *, needs_model: bool = True) -> Config:
    """Read a config with `key.path=value` overrides; raise `ConfigError` naming file, line, key and value. Without
    `needs_model` the section `model` may be missing."""
    document = read(name)
    apply_overrides(document, overrides)
    if not needs_model:
        document.values.setdefault("model", {"tiny": {}})
    return parse(document.values, document)


def read(name: str) -> Document:
    """Return the sections of a config file or of a shipped config, not checked yet. Raise `ConfigError`."""
    document = yaml_reader.read(find(name))
    if not isinstance(document.values, dict):
        content = "is empty" if document.values is None else f"holds a {type(document.values).__name__}"
        allowed = f"a mapping of the sections {', '.join(Config.model_fields)}"
        raise ConfigError(f"{document.name}: {content}; allowed: {allowed}")
    return document


def apply_overrides(document: Document, overrides: Sequence[str]) -> None:
    """Set `key.path=value` in a document; raise `ConfigError` if one lifts a limit of the data."""
    limits = read_limits(document.values)
    for override in overrides:
        document.override(override)
    check_limits(limits, document)


def read_limits(values: Mapping[str, object]) -> dict[str, object]:
    """Return what a config says may be done with its data, by key path: of `env`, and of each environment of a
    mixture."""
    return dict(_walk_limits(values.get("env"), "env"))


def _walk_limits(section: Any, path: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(section, Mapping):
        return
    data, parts = section.get("data"), section.get("environments")
    if isinstance(data, Mapping):
        yield from ((f"{path}.data.{key}", data[key]) for key in DATA_LIMITS if data.get(key))
    for name, part in parts.items() if isinstance(parts, Mapping) else ():
        yield from _walk_limits(part, f"{path}.environments.{name}")


def check_limits(before: Mapping[str, object], document: Document) -> None:
    """Raise `ConfigError` if an override of `document` lifts what the file said may be done with the data."""
    after = read_limits(document.values)
    for key, value in before.items():
        if after.get(key) != value:
            wanted = after.get(key)
            raise ConfigError(
                f"{document.find_place(key)}: {key} = {wanted!r:.80}: the config sets it to {value!r:.80}; allowed: to "
                "leave it so",
                key=key,
            )


def parse(raw: Mapping[str, object], document: Document | None = None) -> Config:
    """Check a config given as plain dicts; `document` knows where each key was written."""
    document = document or Document()
    yaml_reader.check_finite(raw, document.find_place)
    try:
        config = Config.model_validate(dict(raw))
    except ValidationError as error:
        problems = describe_errors(error, Config, raw)
        text = "\n".join(f"{document.find_place(problem.key)}: {problem}" for problem in problems)
        raise ConfigError(text, key=problems[0].key) from error
    config._document = document
    with locate_errors(config):
        _check_exactly_one("model", config.model, ("name", "tiny"))
        if config.train.method == "sft":
            _check_exactly_one("train.method = sft", config.train, ("episodes", "demonstrations"), key="train")
    return config


def _check_exactly_one(label: str, section: BaseModel, names: Sequence[str], key: str = "") -> None:
    named = [f"`{name}`" for name in names if getattr(section, name) is not None]
    if len(named) != 1:
        allowed = " and ".join(f"`{name}`" for name in names)
        problem = f"given: {' and '.join(named) or 'neither'}; allowed: exactly one of {allowed}"
        raise ConfigError(f"{label}: {problem}", key=key or label)


@contextmanager
def locate_errors(config: Config) -> Iterator[None]:
    """Add to errors raised inside it the place in the file where their `key` is set."""
    try:
        yield
    except ViewboxError as error:
        error.args = (f"{config._document.find_place(error.key or '')}: {error}",)
        raise
