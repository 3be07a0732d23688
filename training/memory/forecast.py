"""The forecast of a run's memory: what lies on the device while the model plays, and while it learns.

Weights, gradients, the optimizer's state and keys and values are counted exactly, from shapes. What operations keep or
make for a moment is a number of bytes for each token, layer and picture (`Layer`), read off the code of Qwen's models.
`measure.py` runs one batch instead; `benchmarks/memory.py` compares both on the widths of real models.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psutil
import torch

from ...configs.schema import Config
from ...core.base import BaseMultiTurnEnv
from ...engines.hf import Settings
from ...engines.hf.architectures import get_architecture
from ...engines.hf.kv_cache import CPU_SHARE, GPU_SHARE, GROWTH, compute_bytes_per_token
from ...engines.hf.quantization import KEPT as QUANTIZATION_KEPT
from ...engines.hf.vision_cache import MAX_BYTES, MAX_PATCHES
from ...envs.from_config import build_envs
from ...errors import ConfigError
from ...tools.specialists.models.model import ModelSpecialist, estimate_bytes
from ..grpo.logprobs import MAX_LOGITS
from ..grpo.micro_batches import split_by_tokens
from ..grpo.packing import MAX_TOKENS
from ..sft.trainer import SFT_BATCHES
from ..trainer_args import build_trainer_arguments
from .workload import (
    Grid,
    Workload,
    build_batch,
    build_model,
    count_bytes,
    count_image_tokens,
    find_model_shapes,
    find_workload,
)

GIB, MIB = 2**30, 2**20
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
LOGIT_BYTES = 12  # of a logit in the loss: log-probs, probabilities, and a gradient, in float32
SAMPLED_BYTES = 28  # of a logit while a token is drawn: three in float32, two in float64
CASTS = "weights in two bytes"  # which autocast makes of those in float32
PART_TOKENS = (16_384, 8192, 4096, 2048)


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


class Layer:
    """Bytes that one token takes in a layer of the language model, and one patch in a layer of the vision tower.

    Args:
        model: the whole model, without numbers.
        computed: bytes of a number that a matrix product computes with: 2 in autocast.
        trained: whether weights are trained, and not adapters beside them.
    """

    def __init__(self, model: Any, computed: int, *, trained: bool) -> None:
        text, vision = model.config.get_text_config(), model.config.vision_config
        heads, self.layers, self.vocabulary = text.num_attention_heads, text.num_hidden_layers, text.vocab_size
        size = getattr(text, "head_dim", None) or text.hidden_size // heads
        self.hidden, self.inner, self.computed = text.hidden_size, text.intermediate_size, computed
        self.query, self.key = heads * size, text.num_key_value_heads * size
        self.held = _get_weight_size(model)  # bytes of a number of a weight, and of the states between two layers
        self.trained, names = trained, {name.partition("layers.0.")[2] for name, _ in model.named_parameters()}
        self.norms_queries = any(".q_norm." in name for name in names)
        self.depth, self.width = vision.depth, vision.hidden_size
        gated = any("mlp.gate_proj" in name for name, _ in model.named_parameters() if ".visual." in name)
        self.vision_inner = vision.intermediate_size * (2 if gated else 1)
        self.feature_layers = 1 + len(getattr(vision, "deepstack_visual_indexes", None) or ())

    def count_kept(self, tokens: int, attended: int) -> int:
        """What a layer keeps for its backward pass.

        Args:
            tokens: without padding.
            attended: tokens of queries and keys, where those of a shared prompt stand once for each episode.
        """
        scale, own = self.held if self.trained else 0, self.computed < 4  # a cast makes a copy for each product
        norms = 2 * (4 + scale) * self.hidden
        if self.norms_queries:
            norms += (4 + (self.computed if self.trained else 0)) * (self.query + self.key)
        inputs = (5 if own else 2) * self.hidden + self.query + 4 * self.inner
        attention = 2 * self.computed * (self.query + self.key)
        return tokens * (norms + self.computed * inputs) + attended * attention

    def count_backward(self, tokens: int) -> int:
        """What the backward pass of a layer makes for a moment: gradients of the widest states."""
        return tokens * (2 * self.computed + (4 if self.computed < 4 else 0)) * self.inner

    def count_forward(self, rows: int, width: int, read: int) -> int:
        """What a layer makes for a moment without gradient: `width` new tokens of each of `rows`, which see `read`."""
        states = rows * width * (self.computed * (3 * self.inner + self.query) + 4 * self.hidden)
        mask = rows * width * read * 2  # measured, not derived: 1.2 bytes a pair in Qwen3-VL, 4 in Qwen2.5-VL
        return states + mask + rows * read * 2 * self.computed * self.query  # keys and values, for every head

    def count_vision(self, patches: int, *, checkpointed: bool) -> int:
        """What the vision tower keeps for its backward pass."""
        layer = patches * self.computed * (11 * self.width + 2 * self.vision_inner)
        merged = patches * self.computed * 3 * self.width * self.feature_layers
        if checkpointed:
            return merged + layer + (self.depth - 1) * patches * self.computed * self.width
        return merged + self.depth * layer

    def count_features(self, grids: list[Grid] | tuple[Grid, ...]) -> int:
        """The features of images."""
        return sum(map(count_image_tokens, grids)) * self.hidden * self.computed * self.feature_layers


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
    model = build_model(config, model_config)
    computed = 2 if arguments.bf16 or arguments.fp16 else _get_weight_size(model)
    layer = Layer(model, computed, trained=config.lora is None)
    held = _count_held(config, arguments, model, layer, workload)
    playing, learning = specialists
    find_part = _find_grpo_part if config.train.method == "grpo" else _find_sft_part
    part = find_part(config, arguments, layer, workload)
    moments = _list_moments(config, model, layer, part, checkpointed=arguments.gradient_checkpointing)
    update = max(moments, key=Counter.total)
    update += held + Counter(specialists=learning)
    if arguments.world_size > 1:
        update["gradients of DDP"] = _count_trained(model)
    phases, slots = [Phase("update", _sort(update))], 0
    if isinstance(config.rollout, Settings) and (config.train.method != "sft" or config.log.eval_tasks):
        held["specialists"] = playing
        slots, parts = _predict_generation(config, arguments, model, layer, workload, held, device_memory)
        phases.insert(0, Phase("generation", _sort(parts + held)))
    return Forecast(workload, tuple(phases), slots, device_memory)


# ---------------------------------------------------------------------- what stays
def _count_held(config: Config, arguments: Any, model: Any, layer: Layer, workload: Workload) -> Counter[str]:
    """What lies on the device in both phases."""
    adapters = [weight for name, weight in model.named_parameters() if ".lora_" in name]
    held: Counter[str] = Counter(adapters=count_bytes(adapters))
    held["weights"] = count_bytes([*model.parameters(), *model.buffers()]) - held["adapters"]
    held["optimizer"] = round(_count_trained(model) * OPTIMIZER_BYTES.get(str(arguments.optim.value), 2.0))
    if config.train.method != "sft" and _count_trained_tower(model):  # those of a frozen tower stay on the host
        episode = layer.count_features([*workload.grids, *workload.result_grids])
        held["image features"] = min(
            MAX_BYTES, episode * min(config.rollout.slots, arguments.per_device_train_batch_size)
        )
    if config.lora is None and bool(getattr(arguments, "beta", 0)):
        held["reference model"] = held["weights"]
    if _is_quantized(config):
        _shrink_weights(held, model)
    elif config.lora is not None:  # the weight that is being widened, and the columns of the others
        held["columns of adapters"] = held["adapters"] // 4 * layer.held
    return held


def _is_quantized(config: Config) -> bool:
    return config.lora is not None and config.lora.quantize is not None


def _shrink_weights(held: Counter[str], model: Any) -> None:
    """Counts the weights that `quantization.py` keeps in 4 bits, and the one that a forward dequantizes at a time."""
    linear = [weight for name, weight in _list_products(model) if not any(part in name for part in QUANTIZATION_KEPT)]
    held["weights"] -= sum(round(weight.nbytes - FOUR_BIT_BYTES * weight.numel()) for weight in linear)
    held["dequantized weight"] = max(weight.nbytes for weight in linear)


def _list_products(model: Any) -> list[tuple[str, torch.Tensor]]:
    """The names and weights of the linear layers, without adapters."""
    modules = ((name, module) for name, module in model.named_modules() if ".lora_" not in name)
    return [(name, module.weight) for name, module in modules if isinstance(module, torch.nn.Linear)]


def _count_casts(config: Config, model: Any, layer: Layer) -> int:
    """The copies in two bytes that autocast makes of weights in float32, and keeps until its end."""
    if layer.computed >= layer.held or _is_quantized(config):
        return 0
    return sum({id(weight): layer.computed * weight.numel() for _, weight in _list_products(model)}.values())


def _count_trained(model: Any) -> int:
    return count_bytes(weight for weight in model.parameters() if weight.requires_grad)


def _count_trained_tower(model: Any) -> int:
    """What is trained of the vision tower; 0: it is frozen."""
    tower = get_architecture(model.config).get_vision_tower(model)
    return count_bytes(weight for weight in tower.parameters() if weight.requires_grad)


def _get_weight_size(model: Any) -> int:
    return next(weight for name, weight in model.named_parameters() if ".lora_" not in name).itemsize


# ---------------------------------------------------------------------- an update
@dataclass(frozen=True)
class Part:
    """What goes forward and backward together.

    Args:
        tokens, attended: see `Layer.count_kept`.
        logits: bytes of the logits, at most.
        grids: of the distinct images.
        accumulates: whether gradients of earlier parts are there already.
        at_once: the share of the tokens that is computed at once.
    """

    tokens: int
    attended: int
    logits: int
    grids: tuple[Grid, ...]
    accumulates: bool
    at_once: float


def _find_grpo_part(config: Config, arguments: Any, layer: Layer, workload: Workload) -> Part:
    """The largest part of a device batch; episodes of a group share their prompt."""
    episodes, group, parts = arguments.per_device_train_batch_size, arguments.num_generations, 1
    if config.train.micro_batch_tokens is not None:
        cut = split_by_tokens(build_batch(workload, episodes, group, 1), config.train.micro_batch_tokens)
        episodes, parts = max(map(len, cut)), len(cut)
    groups = -(-episodes // group)
    tokens = groups * (workload.prompt - 1) + episodes * (workload.completion + 1)
    return Part(
        tokens,
        episodes * (workload.prompt + workload.completion),
        min(MAX_LOGITS, episodes * workload.sampled * layer.vocabulary) * LOGIT_BYTES,
        workload.grids * groups + workload.result_grids * episodes,
        parts > 1 or arguments.gradient_accumulation_steps > 1,
        min(1.0, MAX_TOKENS / tokens),
    )


def _find_sft_part(config: Config, arguments: Any, layer: Layer, workload: Workload) -> Part:
    """A device batch, whose batches keep what they need until the backward pass."""
    episodes = arguments.per_device_train_batch_size
    tokens = episodes * (workload.prompt + workload.completion)
    logits = episodes * (workload.completion + 1) * layer.vocabulary
    return Part(
        tokens,
        round(tokens * (1 + layer.query / layer.key) / 2),  # keys are repeated, because there is a mask
        logits * 4 + -(-logits // SFT_BATCHES) * LOGIT_BYTES,
        (workload.grids + workload.result_grids) * episodes,
        arguments.gradient_accumulation_steps > 1,
        1 / min(SFT_BATCHES, episodes),
    )


def _list_moments(
    config: Config, model: Any, layer: Layer, part: Part, *, checkpointed: bool
) -> Iterator[Counter[str]]:
    """What an update adds: at its logits, in the last layer, the first one, the embedding, the tower, and between."""
    trained, casts = _count_trained(model), _count_casts(config, model, layer)
    if checkpointed and config.lora is not None:  # those of frozen weights are kept for the backward pass alone
        casts = 0
    vision = layer.count_features(part.grids)
    tower = _count_trained_tower(model)
    if tower:
        vision += layer.count_vision(4 * sum(map(count_image_tokens, part.grids)), checkpointed=checkpointed)
    one = layer.count_kept(part.tokens, part.attended)
    kept = part.tokens * layer.held * layer.hidden if checkpointed else one
    states = layer.layers * kept + part.tokens * 4 * layer.hidden
    again = round(part.at_once * ((one if checkpointed else 0) + layer.count_backward(part.tokens)))
    head = model.get_output_embeddings().weight.nbytes if config.lora is None else 0
    output = 2 * layer.computed * head // layer.held  # the head as it is computed with, and its gradient
    embedding = head * (2 if model.config.get_text_config().tie_word_embeddings else 1)
    start = trained if part.accumulates else 0
    of_text = max(start, trained - tower)

    def add(gradients: int, activations: float = 0, backward: int = 0, logits: float = 0, copies: int = 0) -> Any:
        parts = {"gradients": gradients, "activations": round(activations), "backward pass": backward}
        return Counter(parts | {"logits": round(logits), CASTS: copies, "vision tower": vision})

    yield add(start, states, logits=part.logits + output, copies=casts)
    yield add(max(start, head), states, again, copies=0 if checkpointed else casts)
    yield add(of_text, kept, again)
    yield add(of_text, backward=embedding)
    yield add(trained)
    if left := 1 - part.at_once:  # one share has gone backward through all layers, and the others are kept
        yield add(trained, left * states, again, left * part.logits + output)


# ---------------------------------------------------------------------- generation
def _predict_generation(
    config: Config,
    arguments: Any,
    model: Any,
    layer: Layer,
    workload: Workload,
    held: Counter[str],
    device_memory: int | None,
) -> tuple[int, Counter[str]]:
    """Episodes at once, and what they add at the largest of: first prompts, results of tools, a step, sampling."""
    (episodes, prompts), rollout = _find_load(config, arguments), config.rollout
    adapters = config.lora is not None and not _is_quantized(config)
    if adapters and layer.held == 2:  # `use_for_generation` leaves autocast aside
        casts, layer = 0, Layer(model, 2, trained=False)
    else:
        casts = 0 if adapters else _count_casts(config, model, layer)
    capacity = _find_cache_bytes(config, device_memory, held.total()) // compute_bytes_per_token(model)
    longest = workload.prompt + workload.completion
    slots = max(1, min(rollout.slots, episodes, capacity // (longest + 1)))
    prompts = min(prompts, slots)
    together = max(1, min(prompts, rollout.prefill_tokens // workload.prompt))
    results = max(1, min(slots, rollout.prefill_tokens // workload.result))

    def add(rows: int, width: int, read: int, columns: int, grids: tuple[Grid, ...]) -> Counter[str]:
        patches = 4 * sum(map(count_image_tokens, grids))
        encoded = min(rows * patches, max(MAX_PATCHES, patches))
        tower = encoded * layer.computed * (5 * layer.width + 2 * layer.vision_inner)
        features = rows * layer.count_features(grids)
        return Counter(
            {
                "keys and values": slots * columns * layer.layers * 2 * layer.key * layer.computed,
                "forward": max(layer.count_forward(rows, width, read), tower),
                "image features": features,
                "logits": 4 * prompts * layer.vocabulary,
                CASTS: casts,
            }
        )

    columns = longest + 1 if episodes > slots else min(longest, workload.prompt + GROWTH) + 1
    moments = [
        add(together, workload.prompt, workload.prompt, columns, workload.grids),
        add(slots, 1, longest, longest + 1, ()),
    ]
    if workload.completion > workload.sampled:
        moments.append(add(results, workload.result, longest, longest + 1, workload.result_grids[:1]))
    drawn = moments[1] - Counter({"forward": moments[1]["forward"]})
    moments.append(drawn + Counter(logits=slots * layer.vocabulary * SAMPLED_BYTES))
    return slots, max(moments, key=Counter.total)


def _find_load(config: Config, arguments: Any) -> tuple[int, int]:
    """(episodes that the engine plays, distinct prompts among them), in training or in an evaluation."""
    evaluated = config.log.eval_tasks
    played, prompts = evaluated, evaluated
    if config.train.method == "grpo":
        played = arguments.per_device_train_batch_size * arguments.steps_per_generation
        prompts = -(-played // arguments.num_generations)
    elif config.train.method == "rejection_sampling" and config.train.rejection_sampling is not None:
        section = config.train.rejection_sampling
        played, prompts = section.tasks * section.samples, section.tasks
    return max(played, evaluated), max(prompts, evaluated)


def _find_cache_bytes(config: Config, device_memory: int | None, held: int) -> int:
    """The limit of keys and values, as `find_kv_cache_bytes` sets it."""
    assert isinstance(config.rollout, Settings)
    if config.rollout.kv_cache_bytes is not None:
        return int(config.rollout.kv_cache_bytes)
    if device_memory is None:
        return int(CPU_SHARE * psutil.virtual_memory().available)
    return int(GPU_SHARE * max(0, device_memory - held))


def _sort(parts: Counter[str]) -> dict[str, int]:
    """The parts that take anything, the largest first."""
    return {name: size for name, size in parts.most_common() if size > 0}


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
