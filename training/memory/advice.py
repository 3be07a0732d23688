"""Which settings to change if a run does not fit its device."""

from collections.abc import Callable, Iterator

from ...configs.schema import Config
from .forecast import USABLE, Forecast

MIB = 2**20
PART_TOKENS = (16_384, 8192, 4096, 2048)


def find_changes(
    config: Config, forecast: Forecast, retry: Callable[[list[str]], tuple[Config, Forecast]]
) -> tuple[list[str], Forecast]:
    """Overrides that make a run fit, added one after another until it does, and the forecast with them.

    Args:
        config: a run that does not fit.
        forecast: its memory.
        retry: gives the run and the forecast with these overrides.

    Returns:
        The overrides; the forecast says whether they suffice.
    """
    changes: list[str] = []
    tried: set[str] = set()
    while not forecast.fits:
        change = next((c for c in _list_changes(config, forecast) if c.partition("=")[0] not in tried), None)
        if change is None:
            break
        tried.add(change.partition("=")[0])
        config, forecast = retry([*changes, *change.split()])
        changes += change.split()
    return changes, forecast


def _list_changes(config: Config, forecast: Forecast) -> Iterator[str]:
    """Changes that lower the peak of the largest phase, the cheapest first."""
    assert forecast.device_memory is not None
    rollout, train = config.rollout, config.train
    episode = forecast.workload.prompt + forecast.workload.completion
    if forecast.peak.name == "update":
        if not train.arguments.get("gradient_checkpointing"):
            yield "train.gradient_checkpointing=true"
        if train.method == "grpo":
            now = train.micro_batch_tokens
            smaller = [n for n in PART_TOKENS if (now is None or n < now) and n >= episode]
            yield from (f"train.micro_batch_tokens={n}" for n in smaller[-1:])
        elif train.arguments.get("per_device_train_batch_size", 8) > 4:
            half = train.arguments.get("per_device_train_batch_size", 8) // 2
            yield f"train.per_device_train_batch_size={half}"
        if config.lora is None:
            yield "lora.r=16 lora.target_modules=.*language_model.*_proj model.dtype=bfloat16"
    else:
        if rollout.prefill_tokens > 4096:
            yield "rollout.prefill_tokens=4096"
        cache = forecast.peak.parts.get("keys and values", 0)
        left = USABLE * forecast.device_memory - (forecast.peak.peak - cache)
        if left > cache / max(1, forecast.slots):
            yield f"rollout.kv_cache_bytes={int(left / MIB)}MiB"
    if rollout.max_completion_tokens > 1024:
        yield f"rollout.max_completion_tokens={max(rollout.max_reply_tokens, rollout.max_completion_tokens // 2)}"
