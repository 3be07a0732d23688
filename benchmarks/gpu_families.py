"""Checks every family of models on a GPU: engine, loss and speed, with tiny models that are made wider.

On a machine with a GPU and nothing else, from the root of the repository:

    python3 -m venv .venv
    .venv/bin/python -m pip install --constraint constraints.txt --editable '.[train]'
    .venv/bin/python benchmarks/gpu_families.py --out figures.json

No weights are downloaded. No family begins after `--minutes` (8). On a CPU it plays a smaller plan.
Each family is played in float32 and in bfloat16. All errors are those of float64 with the same weights:

| figure | what is compared | bar |
| --- | --- | --- |
| engine | log-probs that the engine recorded, and those of plain forwards of one episode | 2 x plain, or 1e-5 |
| loss | log-probs of the packed loss, and its gradient as one vector | 2 x plain, or 1e-5 |
| ratio | seconds of the loop that generates turn by turn over those of the engine | none: tiny models, small pictures |
| host waits | of a prefill, of a decode step and of a draw, as torch detects them | decode 0, draw 1 |
| peak | GiB of engine, of the packed loss, of plain forwards and backwards | none |

It prints a line for each family, and one JSON object at last; the exit code is 1 if a bar is missed.
"""

import argparse
import copy
import json
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the families are part of the tests
from gpu_check import describe_machine
from gpu_sides import NO_LIMIT, Plan, compute_plain_logprobs, get_unit, play_per_turn, play_with_engine

from tests.support.families import FAMILIES, build_family, grids, parts
from viewbox.engines.hf import Settings
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.engines.hf.engine import HFGenerator
from viewbox.engines.hf.model_runner import use_eval_mode
from viewbox.errors import ModelError
from viewbox.records import EpisodeTokens
from viewbox.training.grpo.batch import collate, collect_pixels
from viewbox.training.grpo.logprobs import EpisodeLogProbs

FLOOR, TIMES = 1e-5, 2.0  # an error that counts as none; times the error of a plain forward that is allowed
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def widen(times: int) -> None:
    """Make the language models of all families wider: more heads, each of its size, as rotary sections need it."""
    for name in ("hidden_size", "intermediate_size", "num_attention_heads"):
        parts.TEXT[name] *= times
    grids.VISION["out_hidden_size"] = parts.TEXT["hidden_size"]


def build_policy(name: str, dtype: torch.dtype, device: torch.device, wider: int) -> tuple[Any, ChatTokens]:
    """Return a model and its tokens, of which it never samples the end."""
    model, processor = build_family(name)
    with torch.no_grad():
        for weight in model.get_decoder().parameters():
            if weight.ndim > 1:
                weight.mul_(wider**-0.5)  # as large as before, what a matrix gives
    tokens = ChatTokens(processor, model.config, model.generation_config)
    tokens.never_sampled = tuple(sorted({*tokens.never_sampled, *tokens.stop_ids}))
    return model.to(device, dtype), tokens


# ---------------------------------------------------------------------- host waits and memory
class HostWaits:
    """Counts the host's waits for the GPU in methods of a generator: {method: [calls, waits, where]}."""

    def __init__(self, generator: HFGenerator) -> None:
        self.found: dict[str, dict[str, Any]] = {}
        runner = generator.runner
        for owner, name in ((runner, "prefill"), (runner, "decode"), (generator, "_sample")):
            setattr(owner, name, self._count(name.strip("_"), getattr(owner, name)))

    def _count(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        found = self.found[name] = {"calls": 0, "waits": 0, "where": Counter()}

        def call(*given: Any) -> Any:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                result = method(*given)
            places = [f"{Path(one.filename).name}:{one.lineno}" for one in told if "synchroniz" in str(one.message)]
            found["calls"], found["waits"] = found["calls"] + 1, found["waits"] + len(places)
            found["where"].update(places)
            return result

        return call

    def summarize(self) -> dict[str, Any]:
        return {
            name: {"each": one["waits"] / max(1, one["calls"]), "where": dict(one["where"].most_common(6))}
            for name, one in self.found.items()
        }


def measure_waits(model: Any, tokens: ChatTokens, plan: Plan) -> dict[str, Any] | None:
    """Return the waits of each method after a warm-up; None without a GPU."""
    if model.device.type != "cuda":
        return None
    generator = build_engine(model, tokens, plan)
    play_with_engine(generator, plan)
    generator.vision_cache.clear()
    waits = HostWaits(generator)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        play_with_engine(generator, plan)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return waits.summarize()


@contextmanager
def measure_peak(found: dict[str, float], name: str, device: torch.device) -> Iterator[None]:
    """Add the peak of allocated GiB inside the block, on a GPU."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    yield
    if device.type == "cuda":
        found[name] = torch.cuda.max_memory_allocated(device) / 2**30


def time_call(device: torch.device, play: Callable[[], Any]) -> float:
    started = time.perf_counter()
    play()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


# ---------------------------------------------------------------------- the loss
def compute_packed(model: Any, tokens: ChatTokens, episodes: list[EpisodeTokens]) -> torch.Tensor:
    """(sampled tokens,) log-probs of the packed loss, with gradient."""
    architecture = tokens.architecture
    pixels = collect_pixels(episodes, tokens)
    batch = collate(episodes, tokens, model.device)
    logps, _ = EpisodeLogProbs(model, architecture, tokens.image_id, tokens.pad_id, 1.0, pixels)(batch)
    return logps[batch["tool_mask"].bool()]


def compute_plain(model: Any, tokens: ChatTokens, episodes: list[EpisodeTokens]) -> torch.Tensor:
    """(sampled tokens,) log-probs of plain forwards of each episode, with gradient."""
    compute = compute_plain_logprobs.__wrapped__  # type: ignore[attr-defined]  # without no_grad
    return torch.cat([compute(model, tokens, [one], 1.0) for one in episodes])


def compute_gradient(model: Any, logps: torch.Tensor) -> torch.Tensor:
    """Return the gradient of a weighted sum of log-probs, of all weights as one float64 vector."""
    weights = torch.cos(torch.arange(len(logps), device=logps.device) * 0.7)  # of both signs, as advantages
    model.zero_grad(set_to_none=True)
    (logps * weights).mean().backward()
    found = [torch.zeros_like(w) if w.grad is None else w.grad for w in model.parameters()]
    model.zero_grad(set_to_none=True)
    return torch.cat([one.double().flatten() for one in found])


def build_exact(model: Any) -> Any:
    """Return a copy in float64, with plain products where experts have a kernel for other types only."""
    found = copy.deepcopy(model).double()
    if hasattr(found.config.get_text_config(), "num_experts"):
        found.set_experts_implementation("eager")
    return found


def compare(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the size of the difference over that of the exact vector."""
    return ((found.double() - exact).norm() / exact.norm()).item()


# ---------------------------------------------------------------------- a family
def build_engine(model: Any, tokens: ChatTokens, plan: Plan) -> HFGenerator:
    rollout = Settings(slots=plan.episodes, max_reply_tokens=plan.reply, max_completion_tokens=NO_LIMIT)
    return HFGenerator(model, tokens, rollout)


def check_family(name: str, dtype: torch.dtype, device: torch.device, given: argparse.Namespace) -> dict[str, Any]:
    """Return all figures of a family in one precision."""
    model, tokens = build_policy(name, dtype, device, given.wider)
    plan = Plan(given.episodes, given.turns, given.reply_tokens, get_unit(model, tokens.processor))
    peak: dict[str, float] = {}
    generator = build_engine(model, tokens, plan)
    with measure_peak(peak, "engine", device):
        episodes = play_with_engine(generator, plan)
    recorded = torch.tensor([logp for one in episodes for logp, bit in zip(one.logprobs, one.mask, strict=True) if bit])
    seconds: dict[str, list[float]] = {"engine": [], "per turn": []}
    for _ in range(given.repeats):
        generator.vision_cache.clear()
        seconds["engine"].append(time_call(device, lambda: play_with_engine(generator, plan)))
        seconds["per turn"].append(time_call(device, lambda: play_per_turn(model, tokens, plan, plan.episodes)))
    best = {side: min(spent) for side, spent in seconds.items()}

    with use_eval_mode(model):
        exact_model = build_exact(model)
        exact = compute_plain(exact_model, tokens, episodes)
        exact_gradient = compute_gradient(exact_model, exact)
        del exact_model
        sides = {"packed": compute_packed, "plain": compute_plain}
        logps, gradients = {}, {}
        for side, compute in sides.items():
            with measure_peak(peak, f"{side} loss", device):
                found = compute(model, tokens, episodes)
                gradients[side] = compare(compute_gradient(model, found), exact_gradient)
            logps[side] = found.detach().double().cpu() - exact.detach().cpu()
    mean = {side: difference.abs().mean().item() for side, difference in logps.items()}
    mean["engine"] = (recorded.double() - exact.detach().cpu()).abs().mean().item()
    waits = measure_waits(model, tokens, plan)
    figures = {
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "tokens": {"prompt": len(episodes[0].prompt_ids), "episode": len(episodes[0].completion_ids)},
        "mean error of log-probs": mean,
        "error of the gradient": gradients,
        "seconds": best,
        "episodes/s": {side: plan.episodes / spent for side, spent in best.items()},
        "ratio": best["per turn"] / best["engine"],
        "host waits": waits,
        "peak GiB": peak,
    }
    allowed = max(FLOOR, TIMES * mean["plain"])
    missed = [side for side in ("engine", "packed") if not mean[side] <= allowed]
    missed += ["gradient"] * (not gradients["packed"] <= max(FLOOR, TIMES * gradients["plain"]))
    if waits is not None:
        missed += ["waits of decoding"] * (waits["decode"]["each"] > 0) + ["waits of a draw"] * (
            waits["sample"]["each"] > 1
        )
    return figures | {"missed": missed}


def describe(figures: dict[str, Any]) -> str:
    """Return a line of the most important figures."""
    if "missed" not in figures:
        return str(figures)
    errors = ", ".join(f"{side} {value:.1e}" for side, value in figures["mean error of log-probs"].items())
    grads = ", ".join(f"{side} {value:.1e}" for side, value in figures["error of the gradient"].items())
    waits = figures["host waits"] and {name: round(one["each"], 2) for name, one in figures["host waits"].items()}
    text = f"log-probs {errors} | gradient {grads} | {figures['ratio']:.1f} x per turn | waits {waits}"
    return text + (f" | MISSED: {', '.join(figures['missed'])}" if figures["missed"] else "")


def main() -> int:
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(FAMILIES), help="some of them, divided by commas")
    parser.add_argument("--minutes", type=float, default=8.0, help="no family begins later than this")
    parser.add_argument("--wider", type=int, default=8 if cuda else 4, help="times as wide as in the tests")
    parser.add_argument("--episodes", type=int, default=16 if cuda else 8)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--reply-tokens", type=int, default=32 if cuda else 8)
    parser.add_argument("--repeats", type=int, default=2 if cuda else 1)
    parser.add_argument("--out", help="a file for the figures, written again after each family")
    given = parser.parse_args()
    started, device = time.perf_counter(), torch.device("cuda" if cuda else "cpu")
    report: dict[str, Any] = {"machine": describe_machine(device), "run": dict(vars(given)), "families": {}}
    widen(given.wider)
    torch.backends.cudnn.allow_tf32 = False
    failed = False
    for dtype_name, dtype in DTYPES.items():
        for name in given.only.split(","):
            key, begun = f"{name} {dtype_name}", time.perf_counter()
            if begun - started > 60 * given.minutes:
                found: dict[str, Any] = {"skipped": "out of time"}
            else:
                try:
                    found = check_family(name, dtype, device, given)
                except ModelError as error:
                    found = {"refused": str(error)}
                except Exception as error:  # the others must still be measured
                    place = traceback.extract_tb(error.__traceback__)[-1]
                    found = {
                        "error": f"{type(error).__name__}: {error}"[:400],
                        "at": f"{place.filename}:{place.lineno}",
                    }
            report["families"][key] = found
            failed = failed or "error" in found or bool(found.get("missed"))
            print(f"{key} ({time.perf_counter() - begun:.1f} s): {describe(found)}", flush=True)
            if given.out:
                Path(given.out).write_text(json.dumps(report, indent=1))
    print(json.dumps(report))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
