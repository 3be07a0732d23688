"""A CPU as a platform of verl 0.9.1, by verl's extension point: VERL_USE_EXTERNAL_MODULES=tests.support.verl.platform.

Used of verl, and nothing of it is changed:

| name | what is relied on |
| --- | --- |
| `verl.plugin.platform.PlatformBase` | its abstract methods, and who calls them |
| `verl.utils.distributed.initialize_global_process_group_ray` | it leaves a process group alone that is open |
"""

import os
from contextlib import nullcontext
from datetime import timedelta
from types import ModuleType

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry, set_platform


def _build_device_module():
    """`torch.cpu`, and what verl asks of `torch.cuda` besides."""
    module = ModuleType("cpu_device")
    module.__dict__.update({name: getattr(torch.cpu, name) for name in torch.cpu.__all__})
    for name in ("empty_cache", "ipc_collect", "reset_peak_memory_stats", "set_rng_state", "manual_seed_all"):
        setattr(module, name, lambda *_, **__: None)
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        setattr(module, name, lambda *_, **__: 0)
    module.mem_get_info = lambda *_: (0, 0)
    module.get_device_name = lambda *_: "CPU"
    module.is_available = lambda: False  # of memory functions such as those above
    return module


def _return(value=None):
    return lambda self, *_, **__: value


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    device_name = vendor_name = "cpu"
    device_module = _build_device_module()
    is_available = _return(True)
    current_device = _return("cpu")  # verl gives it to `Tensor.to`, for which 0 would be a GPU
    device_count = _return(1)
    get_device_capability = _return((None, None))
    set_device = synchronize = set_allocator_settings = empty_cache = cudart = _return()
    profiler_start = profiler_stop = _return()
    visible_devices_envvar = _return("CUDA_VISIBLE_DEVICES")
    ray_resource_name = _return("GPU")
    ray_noset_envvars = _return(["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"])
    is_ipc_supported = _return(False)  # weights go to the server by shared memory

    def nvtx_range(self, msg):
        return nullcontext()

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def communication_backend_name(self):
        """gloo; a worker of the trainer has its process group open when it has asked.

        verl would open it as f"cpu:gloo,{device}:{backend}" (`utils/distributed.py:89`), and torch refuses a device
        that is named twice.
        """
        if {"MASTER_ADDR", "WG_BACKEND"} <= os.environ.keys() and not torch.distributed.is_initialized():
            rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            torch.distributed.init_process_group("gloo", rank=rank, world_size=size, timeout=timedelta(minutes=10))
        return "gloo"


set_platform(PlatformCPU())
