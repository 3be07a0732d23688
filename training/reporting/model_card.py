"""A model card beside saved weights: what the model is, its license, its figures, and how to rebuild it.

The license is that of the base model: fine-tuning does not change it. If it is not known, or there is no base model,
the card leaves it out and says so.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...configs import yaml_reader
from ...configs.schema import Config
from ...configs.sections import ModelSection
from ...envs.data.sources import is_hub_name
from ...errors import ConfigError
from ...utils.files import fill_template
from ...utils.secrets import mask_settings
from ...version import get_versions

_LICENSE_KEYS = ("license", "license_name", "license_link")
_FIGURES = ("reward", "tools/rate", "replies/well_formed")


@dataclass(frozen=True)
class Base:
    """The model that a policy was trained from."""

    name: str | None
    license: Mapping[str, str]

    @property
    def is_on_hub(self) -> bool:
        return self.name is not None and not self.name.startswith("package:") and not Path(self.name).exists()


def write_card(folder: Path, config: Config, summary: Mapping[str, object]) -> None:
    base = Base(config.model.name, find_license(config.model))
    (folder / "README.md").write_text(build_card(folder.name, config, summary, base), encoding="utf-8")


def build_card(
    title: str,
    config: Config,
    summary: Mapping[str, Any],
    base: Base,
    *,
    license: Mapping[str, str] | None = None,
    is_adapter: bool = False,
    shown: Mapping[str, Any] | None = None,
) -> str:
    """Return the text of a model card, with the header that hubs read.

    Args:
        summary: of the run; `held_out` has the figures.
        license: the license entries of the weights; default: those of the base model.
        shown: the values of the config as the card shows them; default: without secrets.
    """
    license = base.license if license is None else license
    front_matter: dict[str, Any] = {
        **license,
        "library_name": "peft" if is_adapter else "transformers",
        "pipeline_tag": "image-text-to-text",
        "tags": ["viewbox", "reinforcement-learning", "vision-language-model"],
    }
    if base.is_on_hub:
        front_matter |= {"base_model": base.name, "base_model_relation": "adapter" if is_adapter else "finetune"}
    data, datasets = _describe_data(config)
    front_matter |= {"datasets": datasets} if datasets else {}
    if shown is None:
        shown = mask_settings(config.model_dump(mode="json", exclude_none=True))
    return fill_template(
        Path(__file__).with_name("model_card.j2"),
        front_matter=yaml_reader.write(front_matter),
        title=title,
        what="LoRA adapters" if is_adapter else "A policy",
        env=config.env.name,
        method=config.train.method,
        base=base.name,
        base_license=base.license.get("license_name") or base.license.get("license") or "not known",
        data=data,
        figures=_format_figures(summary.get("held_out", {})) or "not measured",
        config=yaml_reader.write(shown),
        versions=", ".join(f"{package} {number}" for package, number in get_versions().items()),
        lacks_license=not license,
        is_quantized=config.lora is not None and config.lora.quantize is not None and not is_adapter,
    )


def _describe_data(config: Config) -> tuple[str, list[str]]:
    """Return the data of a run in words, and the names of its hub datasets."""
    parts = config.env.settings.get("environments")
    blocks = [config.env.settings, *(parts.values() if isinstance(parts, Mapping) else ())]
    data = [block["data"] for block in blocks if isinstance(block, Mapping) and isinstance(block.get("data"), Mapping)]
    sources = [source for section in data if isinstance(source := section.get("source"), str)]
    on_hub = [source for source in sources if is_hub_name(source)]
    words = [f"`{name}`" if name in on_hub else f"`{Path(name).name}`, a file of its trainer" for name in sources]
    return ", ".join(words) or "the environment's own tasks", on_hub


def find_license(model: ModelSection) -> dict[str, str]:
    """Return the license entries of the base model's card; empty if they are not known.
    They are read from the model's folder, or from the card on the hub (cached where the hub cannot be reached).

    >>> find_license(ModelSection(name="package:tiny_viewer")), find_license(ModelSection(tiny={}))
    ({'license': 'apache-2.0'}, {})
    """
    if model.name is None:
        return {}
    card = _find_card(model.name, model.revision)
    entries = read_front_matter(card) if card is not None else {}
    if not isinstance(entries.get("license"), str) and card is not None:
        with suppress(OSError, ValueError):
            entries = json.loads(card.with_name("config.json").read_text(encoding="utf-8"))
    return {key: entries[key] for key in _LICENSE_KEYS if isinstance(entries.get(key), str) and "license" in entries}


def _find_card(name: str, revision: str | None) -> Path | None:
    """README.md of a model's folder, whether it exists or not; of a hub model the one that is cached, or None."""
    from ...assets import resolve_model_path

    folder = Path(resolve_model_path(name))
    if folder.is_dir():
        return folder / "README.md"
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(name, "README.md", revision=revision))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError):
        return None


def read_front_matter(card: Path) -> dict[str, Any]:
    """Return the YAML between the first two lines of dashes; empty if there is none or it is not a mapping."""
    try:
        before, _, rest = card.read_text(encoding="utf-8").partition("---\n")
        header, closing, _ = rest.partition("\n---")
        values = yaml_reader.parse(header, str(card))[0] if closing and not before.strip() else None
    except (OSError, UnicodeDecodeError, ConfigError):
        return {}
    return values if isinstance(values, dict) else {}


def _format_figures(held_out: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a line for each evaluation: reward, its components, and the environment's own metrics."""
    lines = []
    for when, figures in held_out.items():
        chosen = {
            key: value
            for key, value in figures.items()
            if isinstance(value, int | float) and (key in _FIGURES or key.startswith(("rewards/", "metrics/")))
        }
        parts = {key: f" of {count}" for key, count in figures.get("counts", {}).items()}  # the episodes it counts
        lines.append(
            f"- {when}: " + ", ".join(f"{key} {value:.3f}{parts.get(key, '')}" for key, value in chosen.items())
        )
    return "\n".join(lines)
