"""The places that `viewbox publish` knows, by the name of `--to`: a class in a file of its own, and a line here."""

from pathlib import Path

from ...errors import ConfigError, describe_unknown
from ...utils.files import check_out
from .base import Hub, HubPlace, Kind, split_repository
from .directory import Directory
from .hf import HuggingFace
from .prime import Prime

__all__ = ["HUBS", "Hub", "HubPlace", "open_hub"]

HUBS: dict[str, type[Hub]] = {"dir": Directory, "prime": Prime, "hf": HuggingFace}  # type: ignore[type-abstract]


def open_hub(
    to: str, kind: Kind, id: str | None, out: str | Path | None, *, public: bool = False, force: bool = False
) -> Hub:
    """Return the place that `--to` names. Raise `ConfigError` if it is unknown, does not hold this kind, or one of id
    and folder is missing or not its own."""
    if to not in HUBS:
        raise ConfigError(f"--to: {describe_unknown('target', to, HUBS)}", key="to")
    hub = HUBS[to]
    if kind not in hub.kinds:
        allowed = [name for name, adapter in HUBS.items() if kind in adapter.kinds]
        raise ConfigError(f"--to {to}: holds no {kind}s; allowed: {', '.join(allowed)}", key="to")
    if not hub.asks:
        if out is None:
            raise ConfigError(f"--to {to} needs the folder to write; allowed: viewbox publish WHAT FOLDER", key="out")
        return hub(HubPlace(kind, folder=check_out(out, "folder", "OUT"), force=force))
    if out is not None:
        problem = f"{str(out)!r} is a folder, and a hub needs none; allowed: --id owner/name"
        raise ConfigError(f"--to {to}: {problem}", key="out")
    owner, name = split_repository(id, to)
    return hub(HubPlace(kind, owner, name, public))
