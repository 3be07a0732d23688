"""The forecast of a run's memory: what lies on the device while the model plays, and while it learns.

Weights, the optimizer's state, keys and values are counted from shapes. What operations keep or make for a moment is
counted while the code of a run runs without numbers (`Rehearsal`). `benchmarks/memory.py` compares both with real ones.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ...configs.schema import Config
from ...engines.hf.architectures import Pixels
from ...engines.hf.kv_cache import GPU_SHARE, GROWTH, find_kv_cache_bytes
from ...engines.hf.model_parts import get_base_model
from ...engines.hf.quantization import list_kept
from ...engines.hf.vision_cache import MAX_BYTES
from ...engines.settings import LocalSettings as Settings
from ...envs.mixture import Mixture
from ...errors import ConfigError
from ...tools.specialists.models.model import ModelSpecialist, estimate_bytes
from ..plan import Plan
from .measure import Rehearsal, count_trained
from .workload import Workload, count_bytes, count_step, find_products, find_workload

GIB, MIB = 2**30, 2**20
FOUR_BIT_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)  # a weight in NF4, its share of a block's scale, and that scale's own
USABLE = 0.9  # of a device's memory: the rest is for the driver, and for blocks that the allocator cannot use
OPTIMIZER_BYTES = {"sgd": 0.0, "adafactor": 0.01, "lion": 1.0}  # of a byte of a trained weight; else two, like Adam
OPTIMIZER_BYTES |= dict.fromkeys(("adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit"), 0.5)
SAMPLED_BYTES = 28  # of a logit while a token is drawn: three in float32, two in float64
PART_TOKENS = (16_384, 8192, 4096, 2048)


@dataclass(frozen=True)
class Phase:
    """A phase of a step, and the bytes of its parts at the moment of its peak, the largest first."""

    name: str
    parts: Mapping[str, int]

    @property
    def peak(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True)
class Forecast:
    """The memory of a run.

    Args:
        phases: generation and update; without generation if the run plays no episode.
        slots: episodes that the engine holds at once.
        device_memory: bytes of the device; None: not known.
        step: what an update of GRPO takes, by name; see `count_step`.
    """

    workload: Workload
    phases: tuple[Phase, ...]
    slots: int
    device_memory: int | None
    step: Mapping[str, int]

    @property
    def peak(self) -> Phase:
        """The phase that needs most."""
        return max(self.phases, key=lambda phase: phase.peak)

    @property
    def fits(self) -> bool | None:
        """Whether every phase fits the device; None if its memory is not known."""
        return None if self.device_memory is None else self.peak.peak <= USABLE * self.device_memory

    def describe(self) -> str:
        """Return the forecast in one line."""
        shown = ", ".join(f"{phase.name} {phase.peak / GIB:.1f} GiB" for phase in self.phases)
        parts = "(`viewbox config memory` shows the parts)"
        if self.device_memory is None:
            return f"at most {shown} {parts}"
        verdict = "" if self.fits else f": does not fit {parts}"
        return f"at most {shown}; {self.device_memory / GIB:.1f} GiB on the device{verdict}"


def find_device_memory() -> int | None:
    """Return the memory of the GPU that a run would use; None without one."""
    return torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else None


def predict(plan: Plan, device_memory: int | None = None, gpus: int = 0) -> Forecast:
    """Return the forecast of a run. Raise `ViewboxError` if the model's config is not on this machine, or a setting is
    wrong.

    Args:
        device_memory: bytes of the device; None: keys and values are limited by this machine's memory.
        gpus: among which verl divides an update; 0: a run without verl.
    """
    workload, arguments, is_gpu = find_workload(plan), copy(plan.arguments), device_memory is not None
    if is_gpu and not {"bf16", "fp16"} & plan.config.train.arguments.keys():
        arguments.bf16 = True  # the default on a GPU, which may be elsewhere
    specialists = (0, 0) if gpus else count_specialists(plan, gpu=is_gpu)  # verl's players have no GPU
    model, processor = deepcopy(plan.shapes), plan.known_model.processor
    return predict_workload(plan.config, arguments, model, workload, device_memory, specialists, gpus, processor)


def predict_workload(
    config: Config,
    arguments: Any,
    model: Any,
    workload: Workload,
    device_memory: int | None = None,
    specialists: tuple[int, int] = (0, 0),
    gpus: int = 0,
    processor: Any = None,
) -> Forecast:
    """Return the forecast of a run whose longest episode is known. `model`: without numbers; it is changed.
    `specialists`: bytes of the models of tools while the policy plays, and while it learns."""
    step = count_step(config, arguments, model, workload, verl=gpus > 0) if config.train.method == "grpo" else {}
    if gpus:
        phase = predict_share(config, arguments, model.to(torch.bfloat16), workload, gpus, processor)
        return Forecast(workload, (phase,), 0, device_memory, step)
    rehearsal = Rehearsal(model, config, arguments, workload, processor)
    held, (playing, learning) = count_held(rehearsal), specialists
    peak, trained = rehearsal.predict_update(), count_trained(model)
    update = Counter({"forward and backward": peak - trained, "gradients": trained, "specialists": learning}) + held
    update["gradients of DDP"] = trained if arguments.world_size > 1 else 0
    phases, slots = [Phase("update", _sort(update))], 0
    if isinstance(config.rollout, Settings) and (config.train.method != "sft" or config.log.eval_tasks > 0):
        held["specialists"] = playing
        slots, parts = predict_generation(rehearsal, _find_cache_bytes(config.rollout, device_memory, held.total()))
        phases.insert(0, Phase("generation", _sort(parts + held)))
    return Forecast(workload, tuple(phases), slots, device_memory, step)


def _sort(parts: Counter[str]) -> dict[str, int]:
    return {name: size for name, size in parts.most_common() if size > 0}


def _find_cache_bytes(rollout: Settings, device_memory: int | None, held: int) -> int:
    """Return the limit of keys and values, as `find_kv_cache_bytes` sets it."""
    if rollout.kv_cache_bytes is not None:
        return int(rollout.kv_cache_bytes)
    if device_memory is None:
        return find_kv_cache_bytes(torch.device("cpu"))
    return int(GPU_SHARE * max(0, device_memory - held))


def count_held(rehearsal: Rehearsal) -> Counter[str]:
    """Return what lies on the device in both phases."""
    config, arguments, model, workload = rehearsal.config, rehearsal.arguments, rehearsal.model, rehearsal.workload
    weights = dict(model.named_parameters())
    held = Counter(adapters=count_bytes(weight for name, weight in weights.items() if ".lora_" in name))
    held["weights"] = count_bytes([*weights.values(), *model.buffers()]) - held["adapters"]
    held["optimizer"] = round(count_trained(model) * OPTIMIZER_BYTES.get(str(arguments.optim.value), 2.0))
    if config.train.method != "sft" and any(weight.requires_grad for weight in rehearsal.tower.parameters()):
        episodes = min(config.rollout.slots, arguments.per_device_train_batch_size)
        features = rehearsal.encode([*workload.images, *workload.result_images])[0]
        held["image features"] = min(MAX_BYTES, episodes * features)  # those of a frozen tower stay on the host
    if config.lora is None and bool(getattr(arguments, "beta", 0)):
        held["reference model"] = held["weights"]
    if config.lora is not None and config.lora.quantize is not None:
        prefixes = tuple(f"{name}." for name in list_kept(model))
        linear = [layer.weight for name, layer in find_products(model) if not f"{name}.".startswith(prefixes)]
        held["weights"] -= sum(round(weight.nbytes - FOUR_BIT_BYTES * weight.numel()) for weight in linear)
        held["dequantized weight"] = max(weight.nbytes for weight in linear)  # one at a time
    elif config.lora is not None:  # the weight that is being widened, and the columns of the others
        held["columns of adapters"] = held["adapters"] // 4 * rehearsal.weight_bytes
    return held


def predict_generation(rehearsal: Rehearsal, cache_bytes: int) -> tuple[int, Counter[str]]:
    """Return the episodes at once, and what they add when most is needed: at prompts, results, steps, sampling."""
    workload, rollout = rehearsal.workload, rehearsal.config.rollout
    longest, (episodes, prompts) = workload.prompt + workload.completion, _find_load(rehearsal)
    each = rehearsal.stretch(lambda: rehearsal.measure_slot()[0])
    state = rehearsal.stretch(lambda: rehearsal.measure_slot()[1])
    slots = max(1, min(rollout.slots, episodes, cache_bytes // (each * (longest + 1) + state)))
    prompts = min(prompts, slots)
    together = max(1, min(prompts, rollout.prefill_tokens // workload.prompt))
    results = max(1, min(slots, rollout.prefill_tokens // workload.result))
    vocabulary = rehearsal.model.config.get_text_config().vocab_size

    def add(rows: int, width: int, read: int, images: tuple[Pixels, ...]) -> Counter[str]:
        """Give `width` new tokens of each of `rows`, which see `read`."""
        columns = min(read + GROWTH, longest + 1)
        forward = rehearsal.stretch(partial(rehearsal.play, slots, rows, width, read))
        features, tower = rehearsal.encode(images, rows)
        parts = {"keys and values": slots * (columns * each + state) * rehearsal.computed // rehearsal.weight_bytes}
        parts |= {"forward": max(forward, tower), "image features": features * rows}
        return Counter(parts | {"weights in two bytes": rehearsal.count_casts(), "logits": 4 * prompts * vocabulary})

    step = add(slots, 1, longest, ())
    if (drawn := slots * vocabulary * SAMPLED_BYTES) > step["forward"]:  # which is over when tokens are drawn
        step |= {"logits": step["logits"] + drawn, "forward": 0}
    first = longest if episodes > slots else workload.prompt
    moments = [add(together, workload.prompt, first, workload.images), step]
    if workload.completion > workload.sampled:
        moments.append(add(results, workload.result, longest, workload.result_images[:1]))
    return slots, max(moments, key=Counter.total)


def _find_load(rehearsal: Rehearsal) -> tuple[int, int]:
    """Return (episodes that the engine plays, distinct prompts among them), in training or in an evaluation."""
    arguments, evaluated = rehearsal.arguments, rehearsal.config.log.eval_tasks
    played, prompts = evaluated, evaluated
    if rehearsal.config.train.method == "grpo":
        played = arguments.per_device_train_batch_size * arguments.steps_per_generation
        prompts = -(-played // arguments.num_generations)
    return max(played, evaluated), max(prompts, evaluated)


def predict_share(config: Config, arguments: Any, model: Any, workload: Workload, gpus: int, processor: Any) -> Phase:
    """Return an update by verl, which divides weights, gradients and optimizer states, in float32, among GPUs.

    As verl 0.9.1 does it (`workers/engine/fsdp/transformer_impl.py`, `strategy: fsdp2`): a layer is gathered in two
    bytes for its turn, and its gradient is reduced in float32. Beside a GPU's share lie this layer and the next, the
    output head, and what belongs to none.

    Args:
        model: in two bytes.
    """
    rehearsal = Rehearsal(model, config, arguments, workload, processor)
    base, trained, whole = get_base_model(model), 2 * count_trained(model) // gpus, count_bytes(model.parameters())
    head = base.get_output_embeddings().weight
    heads = {id(weight): weight for weight in (base.get_input_embeddings().weight, head)}
    lists = [
        part for part in rehearsal.tower.modules() if isinstance(part, torch.nn.ModuleList) and find_products(part)
    ]
    units = [count_bytes(unit.parameters()) for unit in (*rehearsal.stack, *max(lists, key=len, default=()))]
    units += [weight.nbytes for weight in heads.values()] if len(heads) > 1 else []  # tied ones are of no unit
    layer, rest = units[0], whole - sum(units)
    gradients = 0 if config.lora is not None else rest + layer + 2 * max(units)  # whole ones, one reduced in float32
    longest = workload.prompt + workload.completion
    tokens = max(config.train.micro_batch_tokens or 16_384, longest)  # as in an export
    parts = Counter(weights=2 * whole // gpus, optimizer=2 * trained, gradients=trained)
    parts["gathered"] = rest + 2 * layer + head.nbytes + gradients
    parts["activations"] = rehearsal.stretch(partial(rehearsal.count_whole_rows, tokens))
    return Phase(f"update by verl, on each of {gpus} GPUs", _sort(parts))


def count_specialists(plan: Plan, *, gpu: bool) -> tuple[int, int]:
    """Return the bytes of their weights while the model plays, and while it learns (without those that are offloaded).
    A model that several specialists share counts once; one on another device (`cpu`, `cuda:1`) does not. Raise
    `ConfigError` if the files of a specialist are not on this machine, and its `memory` is not set."""
    models: dict[object, tuple[int, bool]] = {}
    envs = plan.draft[: 2 if plan.config.log.eval_tasks else 1]
    parts = [part for env in envs for part in (env.parts.values() if isinstance(env, Mixture) else [env])]
    for name, spec in (pair for part in parts for pair in part.specialists.items()):
        if not isinstance(spec, ModelSpecialist) or spec.device not in ("auto", "cuda" if gpu else "cpu", "cuda:0"):
            continue
        try:
            size = estimate_bytes(spec, gpu=gpu)
        except ConfigError as error:
            key = f"env.specialists.{name}.{error.key}"
            raise ConfigError(f"env.specialists.{name}.{error}", key=key) from error
        model = type(spec).runner, spec.model, spec.revision, spec.device, spec.dtype
        models[model] = size, models.get(model, (0, False))[1] or not spec.offload
    return sum(size for size, _ in models.values()), sum(size for size, stays in models.values() if stays)


def find_changes(
    config: Config, forecast: Forecast, retry: Callable[[list[str]], Forecast]
) -> tuple[list[str], Forecast]:
    """Return overrides that make a run fit, the cheapest first, and the forecast with them, which says if they do."""
    changes: list[str] = []
    for change in _list_changes(config, forecast):
        changed = retry([*changes, *change.split()])
        if changed.peak.peak < forecast.peak.peak:
            changes, forecast = [*changes, *change.split()], changed
        if forecast.fits:
            break
    return changes, forecast


def _list_changes(config: Config, forecast: Forecast) -> Iterator[str]:
    """Yield changes that lower the peak of one phase or the other."""
    rollout, train, workload = config.rollout, config.train, forecast.workload
    if not train.arguments.get("gradient_checkpointing"):
        yield "train.gradient_checkpointing=true"
    now, longest = train.micro_batch_tokens, workload.prompt + workload.completion
    batch = train.arguments.get("per_device_train_batch_size", 8)
    if train.method == "grpo":
        smaller = [n for n in PART_TOKENS if (now is None or n < now) and n >= longest]
        yield from (f"train.micro_batch_tokens={n}" for n in smaller[-1:])
    elif batch > 4:
        yield f"train.per_device_train_batch_size={batch // 2}"
    if rollout.prefill_tokens > 4096:
        yield "rollout.prefill_tokens=4096"
    for phase in forecast.phases:
        cache = phase.parts.get("keys and values", 0)
        left = USABLE * (forecast.device_memory or 0) - (phase.peak - cache)
        if left > cache / max(1, forecast.slots) > 0:
            yield f"rollout.kv_cache_bytes={int(left / MIB)}MiB"
    if config.lora is None:
        yield "lora.r=16 lora.target_modules=.*language_model.*_proj model.dtype=bfloat16"
    if rollout.max_completion_tokens > 1024:
        yield f"rollout.max_completion_tokens={max(rollout.max_reply_tokens, rollout.max_completion_tokens // 2)}"
