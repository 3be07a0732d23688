"""The adapters of the section `lora`, the same for every method of training."""

from typing import TYPE_CHECKING

from ..configs.train_sections import LoraSection

if TYPE_CHECKING:
    from peft import LoraConfig


def build_lora_config(section: LoraSection | None) -> "LoraConfig | None":
    """The peft config of a section; None without one."""
    if section is None:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=section.r, lora_alpha=section.alpha, lora_dropout=section.dropout, target_modules=section.target_modules
    )
