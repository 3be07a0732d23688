"""An update by torch's FSDP2, in the units, precisions and order of verl 0.9.1: the bytes that one process keeps."""

import json
from pathlib import Path

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoConfig, AutoModelForImageTextToText

from viewbox.training.memory.workload import Workload, build_batch, build_blank

SIDE, UNITS = 384, ("Qwen3VLTextDecoderLayer", "Qwen3VLVisionBlock")
POLICY = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=True)


def build_workload(config, tokens, images):
    return Workload(tokens // 2, tokens // 2, tokens // 4, 64, (build_blank(config, SIDE, SIDE, SIDE**2),) * images)


class InPlaceLogProbs(torch.autograd.Function):
    """flash-attn's cross entropy, which writes the gradient of the logits over them."""

    @staticmethod
    def forward(ctx, logits, labels):
        sums = torch.cat([part.float().logsumexp(-1) for part in logits.split(64)])
        ctx.save_for_backward(logits, labels, sums)
        return logits.gather(1, labels[:, None])[:, 0].float() - sums

    @staticmethod
    def backward(ctx, gradient):
        logits, labels, sums = ctx.saved_tensors
        for rows in torch.arange(len(logits)).split(64):
            part = -(logits[rows].float() - sums[rows, None]).exp()
            part.scatter_add_(1, labels[rows, None], torch.ones(len(rows), 1))
            logits[rows] = (part * gradient[rows, None]).to(logits.dtype)
        return logits, None


def main(argv):
    """`argv`: the folder of a config, tokens of a row, its images, and where the bytes of the first process go."""
    folder, tokens, images, out = argv
    torch.distributed.init_process_group("gloo")
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForImageTextToText.from_config(config, attn_implementation="sdpa").float().train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for unit in [unit for unit in model.modules() if type(unit).__name__ in UNITS or isinstance(unit, nn.Embedding)]:
        fully_shard(unit, mp_policy=POLICY)
    fully_shard(model.lm_head, mp_policy=POLICY)
    fully_shard(model, mp_policy=POLICY)
    optimizer = torch.optim.AdamW(model.parameters())
    workload = build_workload(config, int(tokens), int(images))
    batch = build_batch(workload, 1, 1, config.image_token_id)
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    vision = {name: torch.cat([image.inputs[name] for image in workload.images]) for name in workload.images[0].inputs}
    vision["mm_token_type_ids"] = (ids == config.image_token_id).int()

    def update():
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(input_ids=ids, use_cache=False, **vision).logits
                log_probs = InPlaceLogProbs.apply(logits[0], ids[0])
            del logits
            log_probs.mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    update()
    states = [value for state in optimizer.state.values() for value in state.values() if value.ndim]
    held = sum(value.to_local().nbytes for value in (*model.parameters(), *states))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        update()
    live = peak = 0
    for event in profile.profiler.kineto_results.events():
        live += event.nbytes() if event.name() == "[memory]" else 0
        peak = max(peak, live)
    if torch.distributed.get_rank() == 0:
        Path(out).write_text(json.dumps({"held": held, "peak": held + peak}))
    torch.distributed.destroy_process_group()
