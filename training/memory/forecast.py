"""The forecast of a run's memory: what lies on the device while the model plays, and while it learns."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import psutil
import torch

from ...configs.schema import Config
from ...core.base import BaseMultiTurnEnv
from ...engines.hf.adapters import has_two_byte_weights, use_merged_adapters
from ...engines.hf.kv_cache import compute_bytes_per_token
from ...engines.hf.memory import CPU_SHARE, GPU_SHARE
from ...engines.hf.quantization import KEPT as QUANTIZATION_KEPT
from ...engines.hf.vision_cache import MAX_BYTES
from ...envs.from_config import build_envs
from ...errors import ConfigError
from ...tools.specialists.models.model import ModelSpecialist
from ...tools.specialists.models.weights import estimate_bytes
from ..trainer_args import build_trainer_arguments
from .generation import Load, measure_generation
from .live_bytes import count_shapes, create_shapes_mode, replace_by_shapes
from .model_shapes import (
    Depths,
    build_model,
    count_bytes,
    cut_depth,
    find_model_shapes,
    list_depths,
)
from .pictures import build_features, build_pixels, is_tower_frozen
from .update import count_parts, measure_update, use_autocast
from .workload import Workload, build_batch, find_workload

GIB = 2**30
FOUR_BIT_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)  # a weight in NF4, its share of a block's scale, and that scale's own
USABLE = 0.9  # of a device's memory: the rest is for the driver, and for blocks that the allocator cannot use
OPTIMIZER_BYTES = {  # for each byte of a trained weight; what is not listed keeps two numbers like Adam
    "sgd": 0.0,
    "adafactor": 0.01,
    "lion": 1.0,
    "adamw_bnb_8bit": 0.5,
    "adamw_8bit": 0.5,
    "paged_adamw_8bit": 0.5,
}


@dataclass(frozen=True)
class Phase:
    """A phase of a step, and the bytes of its parts at the moment of its peak."""

    name: str
    parts: Mapping[str, int]

    @property
    def peak(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True)
class Forecast:
    """The memory of a run.

    Args:
        workload: its longest episode.
        phases: generation and update; without generation if the run plays no episode.
        slots: episodes that the engine holds at once.
        device_memory: bytes of the device; None: not known.
    """

    workload: Workload
    phases: tuple[Phase, ...]
    slots: int
    device_memory: int | None

    @property
    def peak(self) -> Phase:
        """The phase that needs most."""
        return max(self.phases, key=lambda phase: phase.peak)

    @property
    def fits(self) -> bool | None:
        """Whether every phase fits the device; None if its memory is not known."""
        return None if self.device_memory is None else self.peak.peak <= USABLE * self.device_memory

    def describe(self) -> str:
        """The forecast in one line."""
        shown = ", ".join(f"{phase.name} {phase.peak / GIB:.1f} GiB" for phase in self.phases)
        if self.device_memory is None:
            return f"at most {shown} (`viewbox config memory` shows the parts)"
        room = f"{self.device_memory / GIB:.1f} GiB on the device"
        return (
            f"at most {shown}; {room}{'' if self.fits else ': does not fit (`viewbox config memory` shows the parts)'}"
        )


def find_device_memory() -> int | None:
    """The memory of the GPU that a run would use; None without one."""
    return torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else None


def predict(config: Config, device_memory: int | None = None) -> Forecast:
    """The forecast of a run.

    Args:
        config: a checked config.
        device_memory: bytes of the device; None: keys and values are limited by this machine's memory.

    Raises:
        ViewboxError: the model's config is not on this machine, or a setting is wrong.
    """
    model_config, processor = find_model_shapes(config.model, config.model.max_pixels or 512 * 512)
    workload = find_workload(config, model_config, processor)
    arguments = build_trainer_arguments(config, "runs")
    if device_memory is not None and not {"bf16", "fp16"} & config.train.arguments.keys():
        arguments.bf16 = True  # the default on a GPU, which may be elsewhere
    gpu = device_memory is not None
    return predict_workload(
        config, arguments, model_config, workload, device_memory, count_specialists(config, gpu=gpu)
    )


def predict_workload(
    config: Config,
    arguments: Any,
    model_config: Any,
    workload: Workload,
    device_memory: int | None = None,
    specialists: tuple[int, int] = (0, 0),
) -> Forecast:
    """The forecast of a run whose longest episode is known.

    Args:
        config, arguments, model_config, workload: the run.
        device_memory: bytes of the device; None: not known.
        specialists: bytes of the models of tools while the policy plays, and while it learns.
    """
    update, held = _predict_update(config, arguments, model_config, workload)
    playing, learning = specialists
    update = replace(update, parts=_sort(Counter(update.parts) + Counter(specialists=learning)))
    held["specialists"] = playing
    phases, slots = [update], 0
    if config.rollout.engine == "hf" and (config.train.method != "sft" or config.log.eval_tasks):
        generation, slots = _predict_generation(config, arguments, model_config, workload, held, device_memory)
        phases.insert(0, generation)
    return Forecast(workload, tuple(phases), slots, device_memory)


def _predict_update(
    config: Config, arguments: Any, model_config: Any, workload: Workload
) -> tuple[Phase, Counter[str]]:
    """The update, and what of it stays while the model plays."""
    whole = build_model(config, model_config)
    trained = [weight for weight in whole.parameters() if weight.requires_grad]
    held: Counter[str] = Counter(weights=count_bytes([*whole.parameters(), *whole.buffers()]))
    if config.lora is not None:
        held["adapters"] = count_bytes(w for name, w in whole.named_parameters() if ".lora_" in name)
        held["weights"] -= held["adapters"]
    held["optimizer"] = round(count_bytes(trained) * OPTIMIZER_BYTES.get(str(arguments.optim.value), 2.0))
    held["image features"] = _count_kept_features(config, arguments, whole, workload)
    if config.lora is None and bool(getattr(arguments, "beta", 0)):
        held["reference model"] = held["weights"]
    if _is_quantized(config):
        _shrink_weights(held, whole)
    parts = Counter(held)
    if config.lora is not None and not _is_quantized(config):
        before = count_bytes([*whole.parameters(), *whole.buffers()])
        with use_merged_adapters(whole):
            held["columns of adapters"] = count_bytes([*whole.parameters(), *whole.buffers()]) - before
    if arguments.world_size > 1:
        parts["gradients of DDP"] = count_bytes(trained)
    accumulates = _accumulates(config, arguments, workload)
    if accumulates:
        parts["gradients"] = count_bytes(trained)

    def measure(cut: Any) -> dict[str, Counter[str]]:
        model = build_model(config, cut)
        replace_by_shapes(model, create_shapes_mode())
        for weight in model.parameters() if accumulates else ():
            weight.grad = torch.empty_like(weight) if weight.requires_grad else None
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        with count_shapes([*model.parameters(), *model.buffers(), *gradients]) as counter:
            return measure_update(model, config, arguments, workload, counter=counter)

    peak = measure_by_depth(measure, model_config, vision=not is_tower_frozen(whole))
    return Phase("update", _sort(parts + peak)), held


def _accumulates(config: Config, arguments: Any, workload: Workload) -> bool:
    """Whether gradients of earlier parts are there already when the largest part runs."""
    if arguments.gradient_accumulation_steps > 1:
        return True
    if config.train.method != "grpo":
        return False
    batch = build_batch(workload, arguments.per_device_train_batch_size, arguments.num_generations, 1)
    return count_parts(config, arguments, batch)[1] > 1


def _is_quantized(config: Config) -> bool:
    return config.lora is not None and config.lora.quantize is not None


def _shrink_weights(held: Counter[str], model: Any) -> None:
    """Counts the weights that `quantization.py` keeps in 4 bits, and the one that a forward dequantizes at a time."""
    linear = [
        module.weight
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and ".lora_" not in name
        and not any(part in name for part in QUANTIZATION_KEPT)
    ]
    held["weights"] -= sum(round(weight.nbytes - FOUR_BIT_BYTES * weight.numel()) for weight in linear)
    held["dequantized weight"] = max(weight.nbytes for weight in linear)


def _count_kept_features(config: Config, arguments: Any, model: Any, workload: Workload) -> int:
    """The bytes of image features that stay on the device: of a tower that is trained, up to a limit."""
    grids = [*workload.grids, *workload.result_grids]
    if config.train.method == "sft" or is_tower_frozen(model) or not grids:
        return 0
    dtype = torch.bfloat16 if arguments.bf16 else next(model.parameters()).dtype
    episode = sum(count_bytes(build_features(build_pixels(grid, model), model, dtype)) for grid in grids)
    return min(MAX_BYTES, episode * min(config.rollout.slots, arguments.per_device_train_batch_size))


def _predict_generation(
    config: Config,
    arguments: Any,
    model_config: Any,
    workload: Workload,
    held: Counter[str],
    device_memory: int | None,
) -> tuple[Phase, int]:
    beside = _is_quantized(config)  # adapters stay layers of their own
    whole = build_model(config, model_config)
    load, episodes = _find_load(config, arguments, workload)
    capacity = _find_cache_bytes(config, device_memory, sum(held.values())) // compute_bytes_per_token(whole)
    longest = workload.prompt + workload.completion
    slots = max(1, min(load.slots, capacity // (longest + 1)))
    load = replace(load, slots=slots, prompts=min(load.prompts, slots), refilled=episodes > slots)
    parts = Counter(held)
    parts["logits after prompts"] = 4 * load.prompts * model_config.get_text_config().vocab_size
    autocast = config.lora is None or beside or not has_two_byte_weights(whole)

    def measure(cut: Any) -> dict[str, Counter[str]]:
        model = build_model(config, cut)
        replace_by_shapes(model, create_shapes_mode())
        precision = use_autocast(arguments) if autocast else nullcontext()
        with (
            nullcontext() if beside else use_merged_adapters(model),
            precision,
            count_shapes([*model.parameters(), *model.buffers()]) as counter,
        ):
            return measure_generation(model, workload, load, counter=counter)

    peak = measure_by_depth(measure, model_config, vision=autocast)
    return Phase("generation", _sort(parts + peak)), slots


def _find_load(config: Config, arguments: Any, workload: Workload) -> tuple[Load, int]:
    """What the engine does at once, in training or in an evaluation, and the number of episodes it plays."""
    rollout, evaluated = config.rollout, config.log.eval_tasks
    if config.train.method == "grpo":
        played = arguments.per_device_train_batch_size * arguments.steps_per_generation
        prompts = -(-played // arguments.num_generations)
    elif config.train.method == "rejection_sampling" and config.train.rejection_sampling is not None:
        section = config.train.rejection_sampling
        played, prompts = section.tasks * section.samples, section.tasks
    else:
        played, prompts = evaluated, evaluated
    episodes = max(played, evaluated)
    slots = min(rollout.slots, episodes)
    return Load(
        slots, max(prompts, min(evaluated, slots)), episodes > slots, rollout.prefill_tokens, rollout.sampling
    ), episodes


def _find_cache_bytes(config: Config, device_memory: int | None, held: int) -> int:
    """The limit of keys and values, as `find_kv_cache_bytes` sets it."""
    if config.rollout.kv_cache_bytes is not None:
        return int(config.rollout.kv_cache_bytes)
    if device_memory is None:
        return int(CPU_SHARE * psutil.virtual_memory().available)
    return int(GPU_SHARE * max(0, device_memory - held))


def _sort(parts: Counter[str]) -> dict[str, int]:
    """The parts that take anything, the largest first."""
    return {name: size for name, size in parts.most_common() if size > 0}


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


def count_specialists(config: Config, *, gpu: bool) -> tuple[int, int]:
    """The bytes of their weights while the model plays, and while it learns (without those that are offloaded).

    A model that several specialists share counts once; one on another device (`cpu`, `cuda:1`) does not.

    Args:
        config: a checked config.
        gpu: whether the run trains on a GPU.

    Raises:
        ConfigError: the files of a specialist are not on this machine, and its `memory` is not set.
    """
    found: dict[object, tuple[int, bool]] = {}
    for env in build_envs(config, {})[: 2 if config.log.eval_tasks else 1]:
        for name, spec in _list_specialists(env):
            if not isinstance(spec, ModelSpecialist) or spec.device not in ("auto", "cuda" if gpu else "cpu", "cuda:0"):
                continue
            try:
                size = estimate_bytes(spec, gpu=gpu)
            except ConfigError as error:
                key = f"env.specialists.{name}.{error.key}"
                raise ConfigError(f"env.specialists.{name}.{error}", key=key, given=error.given) from error
            key_of_model = type(spec).runner, spec.model, spec.revision, spec.device, spec.dtype
            _, stays = found.get(key_of_model, (0, False))
            found[key_of_model] = size, stays or not spec.offload
    return sum(size for size, _ in found.values()), sum(size for size, stays in found.values() if stays)


def _list_specialists(env: BaseMultiTurnEnv) -> Iterator[tuple[str, object]]:
    parts = getattr(env, "parts", None)
    for part in parts.values() if isinstance(parts, Mapping) else (env,):
        yield from part.specialists.items()
