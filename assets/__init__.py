"""Models and a snapshot of literature that are shipped with viewbox; a config names one as `package:NAME`."""

from pathlib import Path

from ..errors import ConfigError, ModelError, describe_unknown

PACKAGE = "package:"
SNAPSHOT = "snapshot.sqlite"


def resolve_model_path(name: str) -> str:
    """Return the folder of a shipped model, `package:NAME`; other names are returned unchanged.

    Raises:
        ModelError: no shipped model has this name.

    >>> resolve_model_path("Qwen/Qwen3-VL-4B-Instruct")
    'Qwen/Qwen3-VL-4B-Instruct'
    """
    if not name.startswith(PACKAGE):
        return name
    shipped = Path(__file__).parent
    folder = shipped / name.removeprefix(PACKAGE)
    if not (folder / "config.json").is_file():
        names = [path.parent.name for path in shipped.glob("*/config.json")]
        raise ModelError(f"model.name: {describe_unknown('shipped model', folder.name, names)}", key="model.name")
    return str(folder)


def resolve_snapshot_path(name: str) -> str:
    """Return the file of a shipped snapshot, `package:NAME`; other names are returned unchanged.

    Raises:
        ConfigError: no shipped snapshot has this name.

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
