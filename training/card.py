"""A model card beside saved weights: what it is, what it was trained on, its figures, and how to rebuild it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

CARD = """---
license: apache-2.0
library_name: transformers
pipeline_tag: image-text-to-text
tags: [viewbox, reinforcement-learning, vision-language-model]
---

# {title}

A policy for the viewbox environment `{env}`, trained with `method: {method}`{base}.

## Held-out figures

{figures}

## Rebuild

Save the config below as `run.yaml`, then `python train.py run.yaml`.

```yaml
{config}```

Versions: {versions}.

## Use and limits

The model was trained on this one environment and does nothing else. The digits come from the UCI Optical Recognition
of Handwritten Digits set (Alpaydin & Kaynak, CC BY 4.0) where the environment is `digits`.
"""


def write_card(folder: Path, config: Any, summary: Mapping[str, Any]) -> None:
    """README.md of a folder of weights."""
    import yaml

    from viewbox.rollouts.store.run_folder import versions

    keys = ("reward", "tools/rate", "replies/well_formed")
    lines = []
    for when, found in summary["held_out"].items():
        shown = {key: value for key, value in found.items() if key in keys or key.startswith(("rewards/", "metrics/"))}
        lines.append(f"- {when}: " + ", ".join(f"{key} {value:.3f}" for key, value in shown.items()))
    base = f" from `{config.model.name}`" if config.model.name else " from random weights"
    text = CARD.format(
        title=folder.name,
        env=config.env.name,
        method=config.train.method,
        base=base,
        figures="\n".join(lines) or "not measured",
        config=yaml.safe_dump(config.model_dump(mode="json", exclude_none=True), sort_keys=False),
        versions=", ".join(f"{name} {number}" for name, number in versions().items()),
    )
    (folder / "README.md").write_text(text)
