"""Publishes the weights of a run, whole or as adapters, with a card that says what they are.

The card names the base model with its license, the data, the environment, the figures and the config; of paths of this
machine only the last part. What is neither weights, config nor vocabulary stays here: no trainer state, no episodes.
"""

import json
import tempfile
from pathlib import Path
from typing import Any, Unpack

from ..configs.schema import Config, load
from ..configs.sections import ModelSection
from ..core.portable import check_portable, hide_paths
from ..errors import ConfigError
from ..registry import ENVIRONMENTS
from ..rollouts.scoring.restriction import find_in_saved, find_restriction
from ..rollouts.store.run_folder import read_json
from ..training.reporting.model_card import Base, build_card, find_license, read_front_matter
from ..utils.secrets import mask_settings
from ..version import __version__
from .hubs.base import Release
from .models import CONFIGS, VOCABULARY, WEIGHTS, copy_model_file
from .release import Confirm, Delivery, PublishedPackage, ReleaseOptions, list_files, read_license

ADAPTER = "adapter_config.json"
MAX_SUMMARY = 2**24  # bytes


def is_model(what: str) -> bool:
    """Return whether a text names a folder that is no package, and so a model.

    >>> is_model("digits"), is_model("package.module:Class")
    (False, False)
    """
    folder = Path(what)
    return what not in ENVIRONMENTS and folder.is_dir() and not (folder / "pyproject.toml").is_file()


def publish_model(
    what: str | Path,
    out: str | Path | None = None,
    *,
    base_model: str | None = None,
    confirm: Confirm | None = None,
    **target: Unpack[ReleaseOptions],
) -> PublishedPackage:
    """Publish the weights of a run with a card. Raise `ConfigError` if there are no weights or no config, the data may
    not leave this machine, or base model or license are not known.

    Args:
        what: a run, of which `model` is published, or one of its folders of weights: `model`, `adapter`, a checkpoint.
        out: the folder to write, for "dir".
        base_model: the hub name of the base model, if it was a folder of this machine.
        confirm: as of `publish`.
        target: where it goes (`release.ReleaseOptions`): "hf" or "dir", for which `id` is the title of the card; a
            version is a git tag on the hub; the license is by default that of the base model.
    """
    delivery = Delivery("model", out, target, confirm)
    weights, run = find_weights(Path(what))
    reason = find_restriction(run, run / "episodes")
    if reason is not None:
        raise ConfigError(f"{what}: {reason}; what was learned from it must not leave this machine")
    config = load(str(run / "config.yaml"))
    if reason := find_in_saved(config.train.episodes):
        raise ConfigError(f"{what}: was trained on {config.train.episodes}: {reason}; its weights must stay here")
    is_adapter = (weights / ADAPTER).is_file()
    base = find_base(config, base_model, is_adapter=is_adapter)
    stated = target.get("license")
    if stated and " " in stated:  # the hub has ids that are no SPDX name, such as gemma
        stated = read_license(stated)
    license = {"license": stated.lower()} if stated else dict(base.license)
    if not license:
        name = base.name or "random weights"
        allowed = "--license SPDX"
        raise ConfigError(f"{what}: the license of its base ({name}) is not known; allowed: {allowed}", key="license")
    version = delivery.choose_version()
    name = (target.get("id") or run.resolve().name).rpartition("/")[2]
    summary = read_json(run / "summary.json", MAX_SUMMARY) if (run / "summary.json").is_file() else {}
    shown = hide_paths(mask_settings(config.model_dump(mode="json", exclude_none=True)))
    card = build_card(name, config, summary, base, license=license, is_adapter=is_adapter, shown=shown)
    with tempfile.TemporaryDirectory(prefix="viewbox-publish-") as temporary:
        staged = Path(temporary)
        left_out = copy_weights(weights, staged, base)
        (staged / "README.md").write_text(card, encoding="utf-8")
        about = {"id": name, "version": version, "environment": config.env.name, "viewbox": __version__}
        release = Release("model", name, version, staged, list_files(staged), about)
        findings = [f"leaves out {', '.join(left_out)}"] if left_out else []
        return delivery.send(release, findings)


def find_weights(what: Path) -> tuple[Path, Path]:
    """Return the folder of weights and that of its run, for a path that names either; `ConfigError` if one is
    missing."""
    weights = what / "model" if (what / "model").is_dir() else what
    if not any(weights.glob("*.safetensors")) or not any(
        (weights / name).is_file() for name in (ADAPTER, "config.json")
    ):
        allowed = "a run with a folder `model`, or a folder that save_pretrained wrote"
        raise ConfigError(f"{what}: holds no weights; allowed: {allowed}")
    places = (weights, *list(weights.resolve().parents)[:2])
    run = next((place for place in places if (place / "config.yaml").is_file()), None)
    if run is None:
        problem = "neither it nor the two folders above have the config.yaml of a run, which the card needs"
        raise ConfigError(f"{what}: {problem}")
    return weights, run


def find_base(config: Config, given: str | None, *, is_adapter: bool) -> Base:
    """Return the base model as others find it, with its license. Raise `ConfigError` if it is a folder of this machine,
    and nothing says where it came from; or an adapter has none."""
    name = given or config.model.name
    if name is None:
        if is_adapter:
            raise ConfigError("the adapter needs its base model, which had random weights; allowed: the folder `model`")
        return Base(None, {})
    base = Base(name, find_license(ModelSection(name=name, revision=None if given else config.model.revision)))
    if base.is_on_hub or name.startswith("package:"):
        return base
    known = read_front_matter(Path(name) / "README.md").get("base_model")
    if not is_adapter and isinstance(known, str) and not Path(known).exists():
        return Base(known, base.license)
    raise ConfigError(
        f"the base model {Path(name).name!r} is a folder of this machine, and others need its name on the hub; "
        "allowed: --base-model OWNER/NAME",
        key="base_model",
    )


def copy_weights(weights: Path, to: Path, base: Base) -> list[str]:
    """Copy a model without what only this machine needs; return the names that stay here."""
    left_out = []
    for path in sorted(weights.iterdir()):
        if path.name == ADAPTER:
            values = {**_read_config(path), "base_model_name_or_path": base.name}
            (to / ADAPTER).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        elif any(path.match(pattern) for pattern in (*WEIGHTS, *VOCABULARY, *CONFIGS, "LICENSE*", "NOTICE*")):
            copy_model_file(path, to / path.name)
            if path.suffix == ".json" and path.name in CONFIGS:
                _read_config(to / path.name)
        elif path.name != "README.md":  # the card is written anew
            left_out.append(path.name)
    return left_out


def _read_config(path: Path) -> dict[str, Any]:
    """Return the values of a config; raise `ConfigError` if they name a path of this machine, beside that of the
    base."""
    values = read_json(path, MAX_SUMMARY)
    check_portable({key: value for key, value in values.items() if key != "base_model_name_or_path"}, path.name)
    return values
