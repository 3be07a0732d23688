"""Measures a deep model by shallow ones: what lives at a moment grows by the same amount with every layer."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from viewbox.training.memory.model_shapes import Depths, cut_depth, list_depths

STEP = 2  # layers more, so that the half of the layers grows by one
Peaks = dict[str, Counter[str]]


def measure_by_depth(measure: Callable[[Any], Peaks], model_config: Any, *, vision: bool) -> Counter[str]:
    """The bytes of each part at the peak of a model.

    Args:
        measure: gives the peak of each phase of a model with this config.
        model_config: the model's.
        vision: whether what lives depends on the depth of the vision tower.
    """
    full, least = list_depths(model_config)
    if full.text <= least.text + STEP and full.vision <= least.vision + STEP:
        return _find_largest(measure(cut_depth(model_config, full)))
    text = min(least.text, full.text)
    base = measure(cut_depth(model_config, least))
    peaks = {phase: Counter(parts) for phase, parts in base.items()}
    slopes = [(Depths(text + STEP, least.vision), full.text - least.text)]
    if vision:
        slopes.append((Depths(text, least.vision + STEP), full.vision - least.vision))
    for depths, layers in slopes:
        deeper = measure(cut_depth(model_config, depths)) if layers else base
        for phase, parts in peaks.items():
            for name in parts.keys() | deeper[phase].keys():
                parts[name] += (deeper[phase][name] - base[phase][name]) * layers // STEP
    return _find_largest(peaks)


def _find_largest(peaks: Peaks) -> Counter[str]:
    """The parts of the phase that has most bytes."""
    return max(peaks.values(), key=lambda parts: sum(parts.values()))
