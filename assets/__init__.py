"""Models and a snapshot of literature that are shipped with viewbox; a config names one as `package:NAME`."""

from pathlib import Path

from ..errors import ConfigError, ModelError, describe_unknown, suggest_nearest

PACKAGE = "package:"
SNAPSHOT = "snapshot.sqlite"


def resolve_model_path(name: str, key: str = "model.name") -> str:
    """Return the folder of a shipped model, `package:NAME`; other names are returned unchanged. Raise `ModelError` if
    no shipped model has this name.

    >>> resolve_model_path("Qwen/Qwen3-VL-4B-Instruct")
    'Qwen/Qwen3-VL-4B-Instruct'
    """
    if not name.startswith(PACKAGE):
        return name
    shipped = Path(__file__).parent
    folder = shipped / name.removeprefix(PACKAGE)
    if not (folder / "config.json").is_file():
        names = [path.parent.name for path in shipped.glob("*/config.json")]
        raise ModelError(f"{key}: {describe_unknown('shipped model', folder.name, names)}", key=key)
    return str(folder)


def find_model_folder(name: str, key: str = "model.name") -> Path | None:
    """Return the folder (or file) that a model's name leads to; None for a hub name. `key` is the setting that has it.
    Raise `ConfigError` if the name is a path, and nothing is there. Raise `ModelError` if no shipped model has this
    name, or the folder holds an adapter.

    >>> find_model_folder("Qwen/Qwen3-VL-4B-Instruct") is None
    True
    """
    path = Path(resolve_model_path(name, key))
    if (path / "adapter_config.json").is_file():
        allowed = "the model that it was merged into (of a run: its folder model)"
        raise ModelError(f"{key} = {name!r}: holds an adapter, no model; allowed: {allowed}", key=key)
    if path.exists():
        return path
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        near = suggest_nearest(path, [str(folder) for folder in path.parent.glob("*/")])
        allowed = "a model's folder, a hub name or package:NAME"
        raise ConfigError(f"{key} = {name!r}: no such folder{near}; allowed: {allowed}", key=key)
    return None


def resolve_snapshot_path(name: str) -> str:
    """Return the file of a shipped snapshot, `package:NAME`; other names are returned unchanged. Raise `ConfigError` if
    no shipped snapshot has this name.

    >>> resolve_snapshot_path("recorded/thorax.sqlite")
    'recorded/thorax.sqlite'
    """
    if not name.startswith(PACKAGE):
        return name
    shipped = Path(__file__).parent
    file = shipped / name.removeprefix(PACKAGE) / SNAPSHOT
    if not file.is_file():
        names = [path.parent.name for path in shipped.glob(f"*/{SNAPSHOT}")]
        raise ConfigError(describe_unknown("shipped snapshot", file.parent.name, names), key="snapshot")
    return str(file)
