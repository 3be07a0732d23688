"""Writes what specialists need into a published package: models that are folders on this machine, and snapshots.

A shipped model (`package:NAME`) and a folder travel as `models/NAME` beside the code: the weights as safetensors, the
configs, the tokenizer, the card and the license. Of a hub model only the name travels. A specialist that names another
file of this machine is refused, because it would be missing where the package is used.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from ..assets import resolve_snapshot_path
from ..core.base import BaseMultiTurnEnv
from ..errors import ConfigError
from ..tools.search.snapshot import SnapshotSource
from ..tools.search.tools import LiteratureSpecialist
from ..tools.specialists.models.model import ModelSpecialist, find_model
from ..tools.specialists.spec import Specialist
from .author_files import check_file

FOLDER, SNAPSHOTS = "models", "snapshots"
MAX_BYTES = 2**28  # of all models and snapshots of a package
WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
VOCABULARY = (
    "tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.json", "vocab.txt",
    "merges.txt", "added_tokens.json", "special_tokens_map.json",
)  # fmt: skip
CONFIGS = (
    "config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json",
    "video_preprocessor_config.json", "tokenizer_config.json", "chat_template.json", "chat_template.jinja",
)  # fmt: skip
CARDS = ("README.md", "LICENSE*", "NOTICE*")
PATHS = ("_name_or_path", "name_or_path", "tokenizer_file", "vocab_file", "merges_file")  # keys of a config: left out


@dataclass(frozen=True)
class CarriedModels:
    """The models and snapshots that travel.

    Args:
        specs: the setting `specialists` of the package.
        names: the specialists whose model travels.
        snapshots: the specialists whose snapshot travels.
        lines: each with its files and size, for people.
        taken: the files, relative to the package.
        left_out: files of the folders that do not travel.
    """

    specs: Mapping[str, Any]
    names: tuple[str, ...] = ()
    snapshots: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    taken: tuple[Path, ...] = ()
    left_out: tuple[Path, ...] = ()


@dataclass
class _Copies:
    """The folders and files that were copied so far, by where they were."""

    package: Path
    places: dict[Path, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    taken: list[Path] = field(default_factory=list)
    left_out: list[Path] = field(default_factory=list)
    size: int = 0


def list_specialists(env: BaseMultiTurnEnv) -> Iterator[tuple[str, Specialist]]:
    """The specialists of an environment, or of all environments of a mixture, by name."""
    parts = getattr(env, "parts", None)
    for part in parts.values() if isinstance(parts, Mapping) else (env,):
        yield from part.specialists.items()


def list_modules(env: BaseMultiTurnEnv) -> set[str]:
    """The top-level modules of the functions that are tools by `kind: function`."""
    named = [str(getattr(spec, "function", "")) for _, spec in list_specialists(env)]
    return {name.split(":")[0].split(".")[0] for name in named if ":" in name and ".py:" not in name} - {"viewbox"}


def runs_models(env: BaseMultiTurnEnv) -> bool:
    """Whether a tool of an environment runs a model, so that its package needs torch."""
    return any(isinstance(spec, ModelSpecialist) for _, spec in list_specialists(env))


def write_models(env: BaseMultiTurnEnv, package: Path) -> CarriedModels:
    """Write the models and snapshots of the specialists of `env` into a package.

    Args:
        env: the environment.
        package: the folder of its module.

    Returns:
        What was written; `specs` name the models relative to `package`.

    Raises:
        ConfigError: a model cannot be copied, is too large, or a specialist needs another file of this machine.
    """
    mixed = isinstance(getattr(env, "parts", None), Mapping)
    specs, names, snapshots, copies = {}, [], [], _Copies(package)
    for name, spec in list_specialists(env):
        values: dict[str, Any] = {"kind": spec.kind, **spec.model_dump(mode="json", exclude_unset=True)}
        if isinstance(spec, ModelSpecialist) and (folder := Path(find_model(spec.model))).is_dir():
            if mixed:
                problem = "its model is on this machine, and the environment is a part of a mixture"
                raise ConfigError(
                    f"specialists.{name}.model = {spec.model!r}: {problem}; allowed: publish each by itself"
                )
            values["model"] = _copy_model(name, spec.model, folder.resolve(), copies)
            names.append(name)
        elif isinstance(spec, LiteratureSpecialist) and spec.snapshot is not None:
            if mixed:
                problem = "it is on this machine, and the environment is a part of a mixture"
                raise ConfigError(
                    f"specialists.{name}.snapshot = {spec.snapshot!r}: {problem}; allowed: publish each by itself"
                )
            values["snapshot"] = _copy_snapshot(name, spec.snapshot, copies)
            snapshots.append(name)
        _check_no_file(name, values)
        specs[name] = values
    return CarriedModels(
        specs, tuple(names), tuple(snapshots), tuple(copies.lines), tuple(copies.taken), tuple(copies.left_out)
    )


def _copy_model(name: str, model: str, folder: Path, copies: _Copies) -> str:
    """Copy a model's folder if it is not yet there: its place relative to the package."""
    key = f"specialists.{name}.model"
    if folder in copies.places:
        return copies.places[folder]
    files = sorted(path for path in folder.iterdir() if path.is_file())
    taken = [path for path in files if _matches(path, (*WEIGHTS, *VOCABULARY, *CONFIGS, *CARDS))]
    if not any(_matches(path, WEIGHTS[:1]) for path in taken):
        allowed = "a model saved by save_pretrained"
        raise ConfigError(f"{key} = {model!r}: holds no .safetensors; allowed: {allowed}", key=key, given=model)
    size = sum(path.stat().st_size for path in taken)
    copies.size += size
    if copies.size > MAX_BYTES:
        raise ConfigError(
            f"{key} = {model!r}: its files take {size / 2**20:.0f} MiB, which makes {copies.size / 2**20:.0f} MiB of "
            f"models; allowed in a package: {MAX_BYTES / 2**20:.0f} MiB. Push the model to a hub "
            "(`hf upload OWNER/NAME FOLDER`), and name it: model: OWNER/NAME",
            key=key,
            given=model,
        )
    place = f"{FOLDER}/{name}"
    (copies.package / place).mkdir(parents=True)
    for path in taken:
        copy_model_file(path, copies.package / place / path.name)
    copies.places[folder] = place
    copies.lines.append(f"{place} ({model}) travels: {len(taken)} files, {size / 1000:,.0f} kB")
    copies.taken += [Path(place, path.name) for path in taken]
    copies.left_out += [Path(place, path.name) for path in sorted(folder.iterdir()) if path not in taken]
    return place


def _copy_snapshot(name: str, snapshot: str, copies: _Copies) -> str:
    """Copy a snapshot of the literature, one file: its place relative to the package."""
    key, path = f"specialists.{name}.snapshot", Path(resolve_snapshot_path(snapshot)).resolve()
    if path in copies.places:
        return copies.places[path]
    try:
        SnapshotSource(path).prepare()
    except ConfigError as error:
        raise ConfigError(f"{key} = {snapshot!r}: {error}", key=key, given=snapshot) from error
    size = path.stat().st_size
    copies.size += size
    if copies.size > MAX_BYTES:
        raise ConfigError(
            f"{key} = {snapshot!r}: takes {size / 2**20:.0f} MiB; allowed in a package with its models: "
            f"{MAX_BYTES / 2**20:.0f} MiB",
            key=key,
            given=snapshot,
        )
    place = f"{SNAPSHOTS}/{name}.sqlite"
    (copies.package / SNAPSHOTS).mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, copies.package / place)
    copies.places[path] = place
    copies.lines.append(f"{place} ({snapshot}) travels: 1 file, {size / 1000:,.0f} kB")
    copies.taken.append(Path(place))
    return place


def copy_model_file(path: Path, to: Path) -> None:
    """Copy a file. Configs lose the paths of this machine; what people wrote is searched for keys."""
    if not _matches(path, WEIGHTS + VOCABULARY):
        check_file(path)
    elif path.is_symlink():
        raise ConfigError(f"{path}: is a link; allowed: a copy of the file it leads to")
    if path.suffix == ".json" and _matches(path, CONFIGS):
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ConfigError(f"{path}: is not JSON ({error!s:.200})") from error
        to.write_text(json.dumps(drop_paths(config), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    else:
        shutil.copyfile(path, to)


def drop_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: drop_paths(one) for key, one in value.items() if key not in PATHS}
    return [drop_paths(one) for one in value] if isinstance(value, list) else value


def _check_no_file(name: str, values: Mapping[str, Any]) -> None:
    """Raises `ConfigError` for a specialist that needs a file of this machine, or names one."""
    for key, text in _list_texts(values, f"specialists.{name}"):
        if key.endswith(".description"):
            continue
        path = Path(text.partition(".py:")[0] + ".py" if ".py:" in text else text).expanduser()
        is_model = key == f"specialists.{name}.model" and text.startswith(f"{FOLDER}/")
        try:
            is_here = not is_model and (path.is_file() or (path.is_absolute() and path.exists()))
        except (OSError, ValueError):  # a text that is no path
            continue
        if is_here:
            allowed = (
                "a function of the package that is published (package.module:name), an installed program, an address"
            )
            raise ConfigError(
                f"{key} = {text!r}: is a file of this machine, which does not travel; allowed: {allowed}",
                key=key,
                given=text,
            )


def _list_texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _list_texts(one, f"{key}.{name}")
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _list_texts(one, f"{key}.{number}")


def _matches(path: Path, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(path.name, pattern) for pattern in patterns)
