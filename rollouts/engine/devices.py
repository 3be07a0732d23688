"""Small tensors for a device, without waiting for it."""

from typing import Any

import torch


def sent(values: Any, device: torch.device) -> torch.Tensor:
    """A tensor of Python numbers on a device. To a GPU it goes from pinned memory: the copy holds nobody up."""
    made = torch.tensor(values)
    return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made.to(device)
