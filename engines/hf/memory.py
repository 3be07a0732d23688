"""How much memory keys and values may take if no setting says so."""

import psutil
import torch

GPU_SHARE = 0.8  # of the free memory; the rest is for activations of a prefill, features and logits
CPU_SHARE = 0.5  # of the available memory, which other programs need, too


def find_kv_cache_bytes(device: torch.device) -> int:
    """Bytes that keys and values may take on a device, from the memory that is free now.

    >>> find_kv_cache_bytes(torch.device("cpu")) > 0
    True
    """
    if device.type != "cuda":
        return int(CPU_SHARE * psutil.virtual_memory().available)
    free, _ = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # PyTorch gives it out again
    return int(GPU_SHARE * (free + cached))
