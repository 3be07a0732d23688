"""The forecast of a run's memory: what lies on the device while the model plays, and while it learns.

Weights, gradients, the optimizer's state and keys and values are counted exactly, from shapes. What operations keep or
make for a moment is a number of bytes for each token, layer and picture (`Shapes`), read off the code of Qwen's models
and applied to the widths of the layers that a model has. `measure.py` runs one batch instead; `benchmarks/memory.py`
compares both on the widths of real models.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

import psutil
import torch

from ...configs.schema import Config
from ...engines.hf.architectures import STATES, Pixels, get_architecture
from ...engines.hf.kv_cache import CPU_SHARE, GPU_SHARE, GROWTH
from ...engines.hf.model_parts import get_base_model
from ...engines.hf.quantization import list_kept
from ...engines.hf.vision_cache import MAX_BYTES, MAX_NUMBERS
from ...engines.settings import LocalSettings as Settings
from ...envs.mixture import Mixture
from ...errors import ConfigError
from ...tools.specialists.models.model import ModelSpecialist, estimate_bytes
from ..grpo.batch import split_by_tokens
from ..grpo.logprobs import MAX_LOGITS
from ..grpo.packing import MAX_MASKED_TOKENS, MAX_TOKENS
from ..plan import Plan
from ..sft.trainer import SFT_BATCHES
from ..shapes import is_causal
from .workload import (
    Workload,
    build_batch,
    count_bytes,
    count_step,
    find_products,
    find_workload,
    measure_conversation,
    measure_kept,
)

GIB, MIB = 2**30, 2**20
FOUR_BIT_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)  # a weight in NF4, its share of a block's scale, and that scale's own
USABLE = 0.9  # of a device's memory: the rest is for the driver, and for blocks that the allocator cannot use
OPTIMIZER_BYTES = {"sgd": 0.0, "adafactor": 0.01, "lion": 1.0}  # of a byte of a trained weight; else two, like Adam
OPTIMIZER_BYTES |= dict.fromkeys(("adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit"), 0.5)
LOGIT_BYTES = 12  # of a logit in the loss: log-probs, probabilities, and a gradient, in float32
SAMPLED_BYTES = 28  # of a logit while a token is drawn: three in float32, two in float64
CASTS = "weights in two bytes"  # which autocast makes of those in float32, and keeps until its end
FIRST_LAYERS = (torch.nn.Linear, torch.nn.Conv2d, torch.nn.Conv3d)  # of a vision tower: the first takes one patch
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
        left_out: what is not counted, since the shapes of the model do not tell it.
    """

    workload: Workload
    phases: tuple[Phase, ...]
    slots: int
    device_memory: int | None
    step: Mapping[str, int]
    left_out: str = ""

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
        parts = "(`viewbox config memory` shows the parts)" + (
            f"; not counted: {self.left_out}" if self.left_out else ""
        )
        if self.device_memory is None:
            return f"at most {shown} {parts}"
        verdict = "" if self.fits else f": does not fit {parts}"
        return f"at most {shown}; {self.device_memory / GIB:.1f} GiB on the device{verdict}"


def find_device_memory() -> int | None:
    """Return the memory of the GPU that a run would use; None without one."""
    return torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else None


def predict(plan: Plan, device_memory: int | None = None, gpus: int = 0) -> Forecast:
    """Return the forecast of a run.

    Args:
        device_memory: bytes of the device; None: keys and values are limited by this machine's memory.
        gpus: among which verl divides an update; 0: a run without verl.

    Raises:
        ViewboxError: the model's config is not on this machine, or a setting is wrong.
    """
    workload, arguments, is_gpu = find_workload(plan), copy(plan.arguments), device_memory is not None
    if is_gpu and not {"bf16", "fp16"} & plan.config.train.arguments.keys():
        arguments.bf16 = True  # the default on a GPU, which may be elsewhere
    specialists = (0, 0) if gpus else count_specialists(plan, gpu=is_gpu)  # verl's players have no GPU
    return predict_workload(plan.config, arguments, deepcopy(plan.shapes), workload, device_memory, specialists, gpus)


def predict_workload(
    config: Config,
    arguments: object,
    model: object,
    workload: Workload,
    device_memory: int | None = None,
    specialists: tuple[int, int] = (0, 0),
    gpus: int = 0,
) -> Forecast:
    """Return the forecast of a run whose longest episode is known.

    Args:
        model: without numbers; its precision may be changed.
        specialists: bytes of the models of tools while the policy plays, and while it learns.
    """
    given = config, arguments, model, workload
    shapes = ShardedShapes(*given, gpus) if gpus else Shapes(*given)
    held, (playing, learning) = shapes.count_held(), specialists
    name = f"update by verl, on each of {gpus} GPUs" if gpus else "update"
    phases, slots = [Phase(name, _sort(shapes.predict_update() + held + Counter(specialists=learning)))], 0
    plays = config.train.method != "sft" or config.log.eval_tasks > 0
    if isinstance(config.rollout, Settings) and plays and not gpus:
        held["specialists"] = playing
        slots, parts = shapes.predict_generation(_find_cache_bytes(config.rollout, device_memory, held.total()))
        phases.insert(0, Phase("generation", _sort(parts + held)))
    left_out = [] if shapes.blocks else ["what the vision tower computes"]
    left_out += ["what layers with a state keep for their backward pass"] if shapes.kept_state is None else []
    step = count_step(*given, verl=gpus > 0) if config.train.method == "grpo" else {}
    return Forecast(workload, tuple(phases), slots, device_memory, step, " and ".join(left_out))


def _sort(parts: Counter[str]) -> dict[str, int]:
    return {name: size for name, size in parts.most_common() if size > 0}


def _find_cache_bytes(rollout: Settings, device_memory: int | None, held: int) -> int:
    """Return the limit of keys and values, as `find_kv_cache_bytes` sets it."""
    if rollout.kv_cache_bytes is not None:
        return int(rollout.kv_cache_bytes)
    if device_memory is None:
        return int(CPU_SHARE * psutil.virtual_memory().available)
    return int(GPU_SHARE * max(0, device_memory - held))


class Shapes:
    """The bytes of a run's model, of a token in a layer of it, and of a patch in a layer of its tower.

    `held` and `computed` are the bytes of a number of a weight, and of one that a matrix product computes with (2 in
    autocast). `trained` and `tower` are the bytes of what is trained of the whole model, and of its vision tower.

    Args:
        model: without numbers.
    """

    def __init__(self, config: Config, arguments: Any, model: Any, workload: Workload) -> None:
        self.config, self.arguments, self.model, self.workload = config, arguments, model, workload
        text, base, architecture = model.config.get_text_config(), get_base_model(model), get_architecture(model.config)
        decoder, tower = base.get_decoder(), architecture.get_vision_tower(model)
        weights = dict(model.named_parameters())
        self.held = next(weight for name, weight in weights.items() if ".lora_" not in name).itemsize
        self.computed = 2 if arguments.bf16 or arguments.fp16 else self.held
        self.layers, self.hidden = text.num_hidden_layers, base.get_input_embeddings().weight.shape[1]
        self.output = base.get_output_embeddings().weight
        self.vocabulary = self.output.shape[0]
        sizes = {name: layer.weight.shape for name, layer in find_products(decoder)}
        self.query, self.key = (
            max((size[0] for name, size in sizes.items() if name.endswith(part)), default=self.hidden)
            for part in ("q_proj", "k_proj")
        )
        self.inner = max((into for name, (_, into) in sizes.items() if "attn" not in name), default=0)
        if experts := getattr(text, "num_experts_per_tok", None):  # each reads its own copy of the states
            self.inner = max(self.inner, experts * (text.moe_intermediate_size + self.hidden // 2))
        self.stack: Any = max((part for part in decoder.modules() if isinstance(part, torch.nn.ModuleList)), key=len)
        own = [weight for child in self.stack[0].children() for weight in child.parameters(recurse=False)]
        self.norms = sum(weight.shape == (self.hidden,) for weight in own)
        self.norms_queries = any(".layers.0." in name and ".q_norm." in name for name in weights)
        self.shares = architecture.shares_prompts
        kinds = [kind in STATES for kind in getattr(text, "layer_types", None) or ()]
        self.with_state = sum(kinds) / max(1, len(kinds))  # share of the layers
        self.kept_state = measure_kept(self.stack, kinds, self.hidden, self.computed, workload) if any(kinds) else 0.0
        self.masks = 0 if not self.shares or is_causal(architecture, model) else len(architecture.masks.kinds)
        self.row = MAX_MASKED_TOKENS if self.masks else MAX_TOKENS
        lists = [part for part in tower.modules() if isinstance(part, torch.nn.ModuleList) and find_products(part[0])]
        self.blocks: Any = max(lists, key=len, default=())
        first = next((layer for layer in tower.modules() if isinstance(layer, FIRST_LAYERS)), None)
        self.width, self.patch = (1, 0) if first is None else (first.weight.shape[0], first.weight[0].numel())
        block = [layer.weight.shape for _, layer in find_products(self.blocks[0])] if self.blocks else []
        self.vision_inner = sum(out for out, into in block if into < out != 3 * into)  # three: queries, keys, values
        self.feature_layers = 1 + len(getattr(model.config.vision_config, "deepstack_visual_indexes", None) or ())
        self.adapted = config.lora is not None
        self.quantized = config.lora is not None and config.lora.quantize is not None
        self.trained = count_bytes(weight for weight in weights.values() if weight.requires_grad)
        self.tower = count_bytes(weight for weight in tower.parameters() if weight.requires_grad)
        self.products = [(name, layer.weight) for name, layer in find_products(model)]

    # ------------------------------------------------------------------ what stays
    def count_held(self) -> Counter[str]:
        """Return what lies on the device in both phases."""
        config, workload = self.config, self.workload
        adapters = [weight for name, weight in self.model.named_parameters() if ".lora_" in name]
        held: Counter[str] = Counter(adapters=count_bytes(adapters))
        held["weights"] = count_bytes([*self.model.parameters(), *self.model.buffers()]) - held["adapters"]
        held["optimizer"] = round(self.trained * OPTIMIZER_BYTES.get(str(self.arguments.optim.value), 2.0))
        if config.train.method != "sft" and self.tower:  # those of a frozen tower stay on the host
            episodes = min(config.rollout.slots, self.arguments.per_device_train_batch_size)
            one = self.count_features([*workload.images, *workload.result_images])
            held["image features"] = min(MAX_BYTES, episodes * one)
        if not self.adapted and bool(getattr(self.arguments, "beta", 0)):
            held["reference model"] = held["weights"]
        if self.quantized:
            kept = tuple(f"{name}." for name in list_kept(self.model))
            linear = [weight for name, weight in self.products if not f"{name}.".startswith(kept)]
            held["weights"] -= sum(round(weight.nbytes - FOUR_BIT_BYTES * weight.numel()) for weight in linear)
            held["dequantized weight"] = max(weight.nbytes for weight in linear)  # one at a time
        elif self.adapted:  # the weight that is being widened, and the columns of the others
            held["columns of adapters"] = held["adapters"] // 4 * self.held
        return held

    def count_casts(self) -> int:
        """Return the copies in two bytes that autocast makes of weights in float32."""
        if self.computed >= self.held or self.quantized:
            return 0
        return sum({id(weight): self.computed * weight.numel() for _, weight in self.products}.values())

    def count_features(self, images: Sequence[Pixels]) -> int:
        """Return the features of images."""
        return int(sum(image.tokens for image in images) * self.hidden * self.computed * self.feature_layers)

    def count_patches(self, images: Sequence[Pixels]) -> int:
        """Return in how many places the vision tower computes."""
        return sum(image.numbers // self.patch for image in images) if self.patch else 0

    # ------------------------------------------------------------------ an update
    def predict_update(self) -> Counter[str]:
        """Return what an update adds at the largest of: its logits, a layer's backward pass, its end, between shares.

        A share are the tokens that are computed at once; what others keep stays while one goes backward.
        """
        checkpointed = self.arguments.gradient_checkpointing
        tokens, attended, logits, images, share = self._find_part()
        one = other = self.count_kept(tokens, attended)
        if self.with_state:  # other: of a layer with a state
            other = self.count_kept(tokens, 0) + round(tokens * (self.kept_state or 0))
        mean = round(one + self.with_state * (other - one))
        kept = tokens * self.held * self.hidden if checkpointed else mean
        states = self.layers * kept + tokens * 4 * self.hidden
        backward = tokens * (2 * self.computed + (4 if self.computed < 4 else 0)) * self.inner  # of the widest states
        again = round(share * ((max(one, other) if checkpointed else 0) + backward))
        head = 0 if self.adapted else self.output.nbytes
        output = 2 * self.computed * head // self.held  # the head as it is computed with, and its gradient
        several = self.arguments.gradient_accumulation_steps > 1 or self.config.train.micro_batch_tokens is not None
        start = self.trained if several else 0
        casts = 0 if checkpointed and self.adapted else self.count_casts()
        always: Counter[str] = Counter({"vision tower": self.count_features(images)})
        if self.tower and self.blocks:
            always["vision tower"] += self.count_vision(self.count_patches(images), checkpointed)
        if self.masks and self.config.train.method == "grpo":  # of a packed row; a kernel makes one more
            always["masks"] = (self.masks * (1 + self.computed) + self.computed) * min(tokens, self.row) ** 2
        if self.arguments.world_size > 1:
            always["gradients of DDP"] = self.trained

        def add(gradients: int, activations: float = 0, again: int = 0, logits: float = 0, copies: int = 0) -> Any:
            parts = {"gradients": gradients, "activations": round(activations), "backward pass": again}
            return Counter(parts | {"logits": round(logits), CASTS: copies}) + always

        moments = [
            add(start, states, logits=logits + output, copies=casts),
            add(max(start, head), states, again, copies=0 if checkpointed else casts),
            add(max(start, self.trained - self.tower), kept, again),
            add(self.trained),
            add(self.trained, (1 - share) * states, again, (1 - share) * logits + output) if share < 1 else Counter(),
        ]
        return max(moments, key=Counter.total)

    def _find_part(self) -> tuple[int, int, int, tuple[Pixels, ...], float]:
        """Return what goes forward and backward together: tokens, those attended, bytes of logits, images, share."""
        workload, train = self.workload, self.config.train
        episodes, longest = self.arguments.per_device_train_batch_size, workload.prompt + workload.completion
        if train.method != "grpo":  # its batches keep what they need until the backward pass
            size = episodes * (workload.completion + 1) * self.vocabulary
            attended = round(episodes * longest * (1 + self.query / self.key) / 2)  # a mask: keys are repeated
            images = (workload.images + workload.result_images) * episodes
            logits = size * 4 + -(-size // SFT_BATCHES) * LOGIT_BYTES
            return episodes * longest, attended, logits, images, 1 / min(SFT_BATCHES, episodes)
        group = self.arguments.num_generations  # its episodes share their prompt
        if train.micro_batch_tokens is not None:
            batch = build_batch(workload, episodes, group, 1)
            episodes = max(map(len, split_by_tokens(batch, train.micro_batch_tokens, share=self.shares)))
        groups = -(-episodes // group) if self.shares else episodes
        tokens = groups * (workload.prompt - 1) + episodes * (workload.completion + 1)
        logits = min(MAX_LOGITS, episodes * workload.sampled * self.vocabulary) * LOGIT_BYTES
        images = workload.images * groups + workload.result_images * episodes
        attended = round(episodes * longest * (1 + self.query / self.key) / 2) if self.masks else episodes * longest
        return tokens, attended, logits, images, min(1.0, self.row / tokens)

    def count_kept(self, tokens: int, attended: int) -> int:
        """Return what a layer keeps for its backward pass.

        Args:
            tokens: without padding.
            attended: tokens of queries and keys, where those of a shared prompt stand once for each episode.
        """
        scale, own = 0 if self.adapted else self.held, self.computed < 4  # a cast makes a copy for each product
        norms = self.norms * (4 + scale) * self.hidden
        if self.norms_queries:
            norms += (4 + (0 if self.adapted else self.computed)) * (self.query + self.key)
        inputs = (5 if own else 2) * self.hidden + self.query + 4 * self.inner
        attention = 2 * self.computed * (self.query + self.key)
        return int(tokens * (norms + self.computed * inputs) + attended * attention)

    def count_vision(self, patches: int, checkpointed: bool) -> int:
        """Return what the vision tower keeps for its backward pass."""
        depth = len(self.blocks)
        layer = patches * self.computed * (11 * self.width + 2 * self.vision_inner)
        merged = patches * self.computed * 3 * self.width * self.feature_layers
        return int(merged + layer + (depth - 1) * (patches * self.computed * self.width if checkpointed else layer))

    # ------------------------------------------------------------------ generation
    def predict_generation(self, cache_bytes: int) -> tuple[int, Counter[str]]:
        """Return the episodes at once, and what they add when most is needed: at prompts, results, steps, sampling."""
        workload, rollout = self.workload, self.config.rollout
        assert isinstance(rollout, Settings)
        computed, casts = self.computed, 0 if self.adapted and not self.quantized else self.count_casts()
        if self.adapted and not self.quantized and self.held == 2:
            computed = 2  # `use_for_generation` leaves autocast aside
        longest, (episodes, prompts) = workload.prompt + workload.completion, self._find_load()
        each, state = measure_conversation(get_base_model(self.model))
        slots = max(1, min(rollout.slots, episodes, cache_bytes // (each * (longest + 1) + state)))
        prompts = min(prompts, slots)
        together = max(1, min(prompts, rollout.prefill_tokens // workload.prompt))
        results = max(1, min(slots, rollout.prefill_tokens // workload.result))

        def add(rows: int, width: int, read: int, columns: int, images: tuple[Pixels, ...], logits: int = 0) -> Any:
            """Give `width` new tokens of each of `rows`, which see `read`; with `logits`, tokens are drawn instead."""
            states = rows * width * (computed * (3 * self.inner + self.query) + 4 * self.hidden)
            mask = rows * width * read  # one byte a pair, and the kernel's own copy in the precision of the scores
            seen = rows * read * 2 * computed * self.query  # keys and values, for every head
            gathered = rows * read * 2 * computed * self.key if width > 1 else 0  # those of the rows, from the cache
            attending = rows * width * (2 * computed * self.query + 4 * self.hidden) + computed * mask + seen + gathered
            patches = self.count_patches(images)
            encoded = min(rows * patches, max(MAX_NUMBERS // max(1, self.patch), patches))
            tower = encoded * computed * (5 * self.width + 2 * self.vision_inner)
            parts = {"keys and values": slots * (columns * each + state) * computed // self.held, CASTS: casts}
            parts |= {"forward": 0 if logits else max(mask + max(states, attending), tower)}
            parts |= {"image features": rows * self.count_features(images)}
            return Counter(parts | {"logits": 4 * prompts * self.vocabulary + logits})

        first = longest if episodes > slots else min(longest, workload.prompt + GROWTH)
        moments = [
            add(together, workload.prompt, workload.prompt, first + 1, workload.images),
            add(slots, 1, longest, longest + 1, ()),
            add(slots, 1, longest, longest + 1, (), logits=slots * self.vocabulary * SAMPLED_BYTES),
        ]
        if workload.completion > workload.sampled:
            moments.append(add(results, workload.result, longest, longest + 1, workload.result_images[:1]))
        return slots, max(moments, key=Counter.total)

    def _find_load(self) -> tuple[int, int]:
        """Return (episodes that the engine plays, distinct prompts among them), in training or in an evaluation."""
        config, evaluated = self.config, self.config.log.eval_tasks
        played, prompts = evaluated, evaluated
        if config.train.method == "grpo":
            played = self.arguments.per_device_train_batch_size * self.arguments.steps_per_generation
            prompts = -(-played // self.arguments.num_generations)
        return max(played, evaluated), max(prompts, evaluated)


class ShardedShapes(Shapes):
    """Those of an update by verl, which divides weights, gradients and optimizer states, in float32, among GPUs.

    As verl 0.9.1 does it (`workers/engine/fsdp/transformer_impl.py`, `strategy: fsdp2`): a layer is gathered in two
    bytes for its turn, and its gradient is reduced in float32. Whole episodes go through side by side, without sharing
    their prompts, and each of their tokens has logits, of two bytes. `trained` and `tower` are those of one GPU.
    """

    def __init__(self, config: Config, arguments: Any, model: Any, workload: Workload, gpus: int) -> None:
        super().__init__(config, arguments, model.to(torch.bfloat16), workload)
        self.gpus, self.trained, self.tower = gpus, 2 * self.trained // gpus, 2 * self.tower // gpus

    def count_held(self) -> Counter[str]:
        """Return this GPU's share, and what is gathered: this layer and the next, and what belongs to none."""
        heads = {id(weight): weight for weight in (self.model.get_input_embeddings().weight, self.output)}
        units = [count_bytes(unit.parameters()) for unit in (*self.stack, *self.blocks)]
        units += [weight.nbytes for weight in heads.values()] if len(heads) > 1 else []  # tied ones are of no unit
        layer, whole = count_bytes(self.stack[0].parameters()), count_bytes(self.model.parameters())
        rest = whole - sum(units)
        gradients = 0 if self.adapted else rest + layer + 2 * max(units)  # whole ones, and one reduced in float32
        gathered = rest + 2 * layer + gradients
        return Counter(weights=2 * whole // self.gpus, optimizer=2 * self.trained, gathered=gathered)

    def _find_part(self) -> tuple[int, int, int, tuple[Pixels, ...], float]:
        workload, longest = self.workload, self.workload.prompt + self.workload.completion
        tokens = max(self.config.train.micro_batch_tokens or 16_384, longest)  # as in an export
        images = (workload.images + workload.result_images) * (tokens // longest)
        return tokens, tokens, tokens * self.vocabulary * self.computed, images, 1.0


def count_specialists(plan: Plan, *, gpu: bool) -> tuple[int, int]:
    """Return the bytes of their weights while the model plays, and while it learns (without those that are offloaded).

    A model that several specialists share counts once; one on another device (`cpu`, `cuda:1`) does not.

    Raises:
        ConfigError: the files of a specialist are not on this machine, and its `memory` is not set.
    """
    found: dict[object, tuple[int, bool]] = {}
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
        found[model] = size, found.get(model, (0, False))[1] or not spec.offload
    return sum(size for size, _ in found.values()), sum(size for size, stays in found.values() if stays)


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
