"""Writes what settings name into a published package: models that are folders on this machine, snapshots, and files.

A shipped model (`package:NAME`) and a folder travel as `models/NAME` beside the code: the weights as safetensors, the
configs, the tokenizer, the card and the license. Of a hub model only the name travels. A specialist that names another
file of this machine is refused, because it would be missing where the package is used. A file that a setting of the
environment names (`FilePath`: words, facts, a catalogue) travels as `files/SETTING.…`.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from ..assets import resolve_snapshot_path
from ..core.base import BaseMultiTurnEnv
from ..core.settings import model_of
from ..errors import ConfigError
from ..tools.search.snapshot import SnapshotSource
from ..tools.search.tools import LiteratureSpecialist
from ..tools.specialists.models.model import ModelSpecialist, find_model
from ..tools.specialists.spec import Specialist
from ..utils.files import expand_path
from .contents import check_file

FOLDER, SNAPSHOTS, FILES = "models", "snapshots", "files"
MAX_BYTES = 2**28  # of all models, snapshots and files of a package
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


@dataclass
class CarriedModels:
    """The models, snapshots and files that travel."""

    package: Path  # the folder of the module that they are written into
    specs: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)  # each with its files and size, for people
    taken: list[Path] = field(default_factory=list)  # the files, relative to the package
    left_out: list[Path] = field(default_factory=list)  # files of the folders that do not travel
    places: dict[Path, str] = field(default_factory=dict)  # in the package, by where they were
    _size: int = 0

    def add(self, path: Path, files: Mapping[Path, Path], where: str, given: str) -> None:
        """Copy the files of a model or snapshot.
        `files` have their places in the package; the setting `where`, which says `given`, names it in messages."""
        size = sum(file.stat().st_size for file in files)
        self._size += size
        if self._size > MAX_BYTES:
            raise ConfigError(
                f"{where} = {given!r}: its files take {size / 2**20:.0f} MiB, which makes {self._size / 2**20:.0f} MiB "
                f"of models, snapshots and files; allowed in a package: {MAX_BYTES / 2**20:.0f} MiB. Push the model to "
                "a hub (`hf upload OWNER/NAME FOLDER`), and name it: model: OWNER/NAME",
                key=where,
            )
        for file, place in files.items():
            (self.package / place).parent.mkdir(parents=True, exist_ok=True)
            copy_model_file(file, self.package / place)
        count = "1 file" if len(files) == 1 else f"{len(files)} files"
        self.lines.append(f"{self.places[path]} ({given}) travels: {count}, {size / 1000:,.0f} kB")
        self.taken += files.values()


def list_specialists(env: BaseMultiTurnEnv) -> Iterator[tuple[str, Specialist]]:
    """Yield the specialists of an environment, or of all environments of a mixture, by name."""
    parts = getattr(env, "parts", None)
    for part in parts.values() if isinstance(parts, Mapping) else (env,):
        yield from part.specialists.items()


def list_modules(env: BaseMultiTurnEnv) -> set[str]:
    """Return the top-level modules of the functions that are tools by `kind: function`."""
    named = [str(getattr(spec, "function", "")) for _, spec in list_specialists(env)]
    return {name.split(":")[0].split(".")[0] for name in named if ":" in name and ".py:" not in name} - {"viewbox"}


def write_models(env: BaseMultiTurnEnv, package: Path) -> CarriedModels:
    """Write the models and snapshots of the specialists of `env` into a package. Raise `ConfigError` if a model cannot
    be copied, is too large, or a specialist needs another file of this machine.

    Returns:
        What was written; `specs` name the models relative to `package`.
    """
    carried = CarriedModels(package)
    for name, spec in list_specialists(env):
        values: dict[str, Any] = {"kind": spec.kind, **spec.model_dump(mode="json", exclude_unset=True)}
        if isinstance(spec, ModelSpecialist) and Path(find_model(spec.model)).is_dir():
            key, path, place = "model", Path(find_model(spec.model)).resolve(), f"{FOLDER}/{name}"
        elif isinstance(spec, LiteratureSpecialist) and spec.snapshot is not None:
            key, path = "snapshot", Path(resolve_snapshot_path(spec.snapshot)).resolve()
            place = f"{SNAPSHOTS}/{name}.sqlite"
        else:
            key, path, place = "", Path(), ""
        if key:
            where, setting = f"specialists.{name}.{key}", str(values[key])
            if isinstance(getattr(env, "parts", None), Mapping):
                problem = "it is on this machine, and the environment is a part of a mixture"
                raise ConfigError(f"{where} = {setting!r}: {problem}; allowed: publish each by itself")
            if path not in carried.places:
                carried.places[path] = place
                files = _list_model_files(path, where, setting) if key == "model" else [path]
                if key == "snapshot":
                    try:
                        SnapshotSource(path).prepare()
                    except ConfigError as error:
                        raise ConfigError(f"{where} = {setting!r}: {error}", key=where) from error
                taken = {file: Path(place, file.name) if key == "model" else Path(place) for file in files}
                carried.add(path, taken, where, setting)
                others = path.iterdir() if key == "model" else ()
                carried.left_out += [Path(place, file.name) for file in sorted(others) if file not in taken]
            values[key] = carried.places[path]
        _check_no_file(values, f"specialists.{name}")
        carried.specs[name] = values
    return carried


def find_paths(owner: object, given: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the keys and values of those `given` settings of an environment, or of a section, that are paths."""
    cls: Any = type(owner)
    fields = (cls if issubclass(cls, BaseModel) else model_of(cls)).model_fields
    for name, value in given.items():
        inner = getattr(owner, "parts" if name == "environments" else name, None)
        is_path = name in fields and _is_path((fields[name].annotation, *fields[name].metadata))
        yield from (((name, *keys), path) for keys, path in _find_inside(inner, value, is_path))


def _find_inside(inner: object, value: object, is_path: bool) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(inner, str) and is_path:
        yield (), inner
    elif isinstance(inner, BaseModel | BaseMultiTurnEnv) and isinstance(value, Mapping):
        yield from find_paths(inner, value)
    elif isinstance(inner, Mapping) and isinstance(value, Mapping):
        for key, item in value.items():
            yield from (((key, *keys), path) for keys, path in _find_inside(inner.get(key), item, is_path))


def _is_path(hint: Any) -> bool:
    parts = hint if isinstance(hint, tuple) else get_args(hint)
    return getattr(hint, "func", None) is expand_path or any(map(_is_path, parts))


def write_files(env: BaseMultiTurnEnv, settings: Mapping[str, Any], carried: CarriedModels) -> dict[str, Any]:
    """Write the files that settings of `env` name into a package; return the settings that name them there.

    Raises:
        ConfigError: a setting names a folder, or a file that cannot be copied.
    """
    for keys, given in find_paths(env, settings):
        path, where = Path(given).resolve(), ".".join(keys)
        if "specialists" in keys or not path.exists():
            continue
        if not path.is_file():
            raise ConfigError(f"{where} = {given!r}: is no file, and does not travel; allowed: a file", key=where)
        place = Path(FILES, f"{where}{path.suffix}")
        carried.places[path] = place.as_posix()
        carried.add(path, {path: place}, where, given)
        settings = _replace(settings, keys, place.as_posix())
    return dict(settings)


def _replace(settings: Mapping[str, Any], keys: tuple[str, ...], value: str) -> dict[str, Any]:
    name, *rest = keys
    return {**settings, name: _replace(settings[name], tuple(rest), value) if rest else value}


def _list_model_files(folder: Path, where: str, given: str) -> list[Path]:
    patterns = (*WEIGHTS, *VOCABULARY, *CONFIGS, *CARDS)
    taken = [path for path in sorted(folder.iterdir()) if path.is_file() and _matches(path, patterns)]
    if not any(_matches(path, WEIGHTS[:1]) for path in taken):
        allowed = "a model saved by save_pretrained"
        raise ConfigError(f"{where} = {given!r}: holds no .safetensors; allowed: {allowed}", key=where)
    return taken


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


def drop_paths(value: object) -> object:
    """Leave the paths of this machine out of a config."""
    if isinstance(value, dict):
        return {key: drop_paths(item) for key, item in value.items() if key not in PATHS}
    return [drop_paths(item) for item in value] if isinstance(value, list) else value


def _check_no_file(value: Any, key: str) -> None:
    """Raise `ConfigError` for a specialist that needs a file of this machine; `check_portable` finds other paths."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            _check_no_file(item, f"{key}.{name}")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            _check_no_file(item, f"{key}.{number}")
    elif isinstance(value, str) and not key.endswith(".description"):
        file, script, _ = value.partition(".py:")
        if os.path.isfile(file + script[:3]):
            raise ConfigError(
                f"{key} = {value!r}: is a file of this machine, which does not travel; allowed: a function of the "
                "package that is published (package.module:name), an installed program, an address",
                key=key,
            )


def _matches(path: Path, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(path.name, pattern) for pattern in patterns)
