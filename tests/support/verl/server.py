"""A server as verl's vLLM server is: it folds the image tokens, expands them by its own processor, and samples.

It runs the model on a CPU. Some of its replies are scripted (their log-probs are the model's), so that episodes look
several times or end in a given way.
"""

import asyncio
import itertools

import torch
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from verl.utils.tokenizer import hf_processor
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.utils import get_vision_placeholder_token_ids, qwen2_5_vl_dedup_image_tokens

# What becomes of an episode: the reply texts before those that the model samples, or a way to fail
ZOOM = '<tool_call>\n{"name": "zoom", "arguments": {"factor": 2, "center": [500, 500]}}\n</tool_call>'
ANSWER = '{"label": "seven", "bbox": [0, 0, 500, 500], "confidence": 0.5}'
LOOK = '<tool_call>\n{"name": "zoom", "arguments": {"factor": 3, "center": [300, 600]}}\n</tool_call>'
BROKEN = '<tool_call>\n{"name": \n</tool_call>'
PLANS = {
    "free": [], "look": [ZOOM], "look twice": [ZOOM, LOOK], "answer": [ZOOM, ANSWER], "looks only": [ZOOM] * 8,
    "malformed": [BROKEN] * 8, "endless": ["endless"], "abort": ["abort"], "abort later": [ZOOM, "abort"],
    "slow": ["slow"], "placeholder": ["placeholder"],
}  # fmt: skip


def compose_trainer(exported, *overrides, folder=None, name="trainer"):
    """verl's whole config, as its `main` makes it of the exported files; `folder` has the model, if it is another."""
    folder = folder or exported
    GlobalHydra.instance().clear()
    with initialize_config_dir(config_dir=str(exported), version_base=None):
        return compose(
            name,
            overrides=[
                f"data.train_files='{exported}/train.parquet'",
                f"data.val_files='{exported}/held_out.parquet'",
                f"actor_rollout_ref.model.path='{folder}/model'",
                f"actor_rollout_ref.rollout.agent.agent_loop_config_path='{exported}/agent_loop.yaml'",
                "actor_rollout_ref.rollout.agent.num_workers=1",
                "actor_rollout_ref.model.use_shm=False",
                "trainer.device=cpu",
                *overrides,
            ],
        )


def run_row(worker, dataset, number=0, *, sampling=None, **row):
    """One row through the worker; returns its internal output."""
    columns = {key: value for key, value in dataset[number].items() if key != "dummy_tensor"}
    agent = columns.pop("agent_name")
    return asyncio.run(
        worker._run_agent_loop(
            {"temperature": 1.0, "top_p": 1.0, "logprobs": True, **(sampling or {})},
            {"step": 0, "sample_index": 0, "rollout_n": 0, "validate": False},
            agent_name=agent,
            trace=False,
            **{"uid": "u", "priority": 0, "global_steps": 1, **columns, **row},
        )
    )


class StubServer:
    """Has the interface of verl's `LLMServerClient`; each new request id takes the next plan."""

    def __init__(self, folder, plans=("free",)):
        from transformers import AutoModelForImageTextToText

        torch.set_num_threads(1)
        self.processor = hf_processor(str(folder))
        self.tokenizer = self.processor.tokenizer
        self.model = AutoModelForImageTextToText.from_pretrained(str(folder), dtype=torch.float32).eval()
        self.banned = get_vision_placeholder_token_ids(self.processor)
        self.plans, self.by_request, self.requests = itertools.cycle(plans), {}, []
        self.random = torch.Generator().manual_seed(0)

    async def generate(
        self, request_id, *, prompt_ids, sampling_params, image_data=None, mm_processor_kwargs=None, **others
    ):
        params = dict(sampling_params)
        request = {"id": request_id, "ids": list(prompt_ids), "images": len(image_data or []), "sampling": params}
        self.requests.append(request)
        if request_id not in self.by_request:
            self.by_request[request_id] = iter(PLANS[next(self.plans)])
        text = next(self.by_request[request_id], None)
        if text == "abort":
            return TokenOutput(token_ids=[], log_probs=None, stop_reason="aborted", extra_fields={"global_steps": 7})
        if text == "slow":
            await asyncio.sleep(60)
        ids, logprobs = self.sample(prompt_ids, image_data, mm_processor_kwargs, params, text)
        request |= {"sampled": ids, "logprobs": logprobs, "scripted": text is not None}
        return TokenOutput(
            token_ids=ids,
            log_probs=logprobs if params["logprobs"] else None,
            stop_reason="completed",
            extra_fields={"global_steps": 7, "min_global_steps": 7, "max_global_steps": 7},
        )

    @torch.no_grad()
    def sample(self, prompt_ids, images, mm_processor_kwargs, params, text):
        ids, vision = self.expand(prompt_ids, images, mm_processor_kwargs)
        most, forced = params["max_tokens"], None
        if text == "placeholder":
            return [self.processor.image_token_id], [-1.0]
        if text == "endless":
            forced = self.tokenizer.encode("word " * most, add_special_tokens=False)[:most]
        elif text is not None:
            forced = [*self.tokenizer.encode(text, add_special_tokens=False), self.tokenizer.eos_token_id]
        if forced is not None:
            found = self.forward([*ids, *forced], vision)[len(ids) - 1 : -1]
            return forced, found.gather(1, torch.tensor(forced)[:, None])[:, 0].tolist()
        random = torch.Generator().manual_seed(params["seed"]) if "seed" in params else self.random
        out, logprobs = [], []
        while len(out) < most and not (out and out[-1] in params["stop_token_ids"]):
            logprob = self.forward([*ids, *out], vision)[-1]
            if params["temperature"]:
                logprob = (logprob / params["temperature"]).log_softmax(-1)
            allowed = logprob.exp()
            allowed[[*self.banned, *params["logit_bias"]]] = 0
            drawn = torch.multinomial(allowed, 1, generator=random) if params["temperature"] else allowed.argmax()
            chosen = int(drawn)
            out.append(chosen)
            logprobs.append(float(logprob[chosen]))
        return out, logprobs

    def expand(self, prompt_ids, images, mm_processor_kwargs):
        """vLLM's part: one placeholder for each image becomes as many as the image has tokens."""
        folded = qwen2_5_vl_dedup_image_tokens(list(prompt_ids), self.processor)
        assert folded.count(self.processor.image_token_id) == len(images or []), "placeholders are not the images"
        if not images:
            return folded, {}
        found = self.processor.image_processor(images=images, return_tensors="pt", **(mm_processor_kwargs or {}))
        counts = iter((found["image_grid_thw"].prod(1) // self.processor.image_processor.merge_size**2).tolist())
        image = self.processor.image_token_id
        ids = [i for one in folded for i in ([one] * next(counts) if one == image else [one])]
        assert ids == list(prompt_ids), "the server expands to other ids than it was sent"
        return ids, {"pixel_values": found["pixel_values"].float(), "image_grid_thw": found["image_grid_thw"]}

    def forward(self, ids, vision):
        """(tokens, vocabulary) log-probs."""
        row = torch.tensor([ids])
        types = {"mm_token_type_ids": (row == self.processor.image_token_id).int()} if vision else {}
        logits = self.model(input_ids=row, attention_mask=torch.ones_like(row), **vision, **types).logits[0]
        return logits.float().log_softmax(-1)


@torch.no_grad()
def compute_response_logprobs(server, input_ids, position_ids, inputs, length):
    """The log-probs of the last `length` tokens of a row, by the trainer's forward of verl's tensors, without padding.

    `position_ids` are (4, tokens): of the text, then the three axes; `inputs` are verl's `multi_modal_inputs`.
    """
    row = input_ids[None]
    vision = {name: inputs[name] for name in ("pixel_values", "image_grid_thw") if name in inputs}
    types = {"mm_token_type_ids": (row == server.processor.image_token_id).int()} if vision else {}
    logits = server.model(
        input_ids=row, attention_mask=torch.ones_like(row), position_ids=position_ids[:, None], **vision, **types
    ).logits
    logprobs = logits[:, :-1].float().log_softmax(-1).gather(-1, row[:, 1:, None])
    return logprobs[0, -length:, 0]


def list_replies(requests):
    """By the ids of a whole episode: (sampled ids, their log-probs, whether each is of a scripted reply)."""
    by_episode, replies = {}, {}
    for request in requests:
        by_episode.setdefault(request["id"], []).append(request)
    for own in by_episode.values():
        if "sampled" in own[-1]:
            replies[(*own[-1]["ids"], *own[-1]["sampled"])] = (
                [token for request in own for token in request["sampled"]],
                [logprob for request in own for logprob in request["logprobs"]],
                [request["scripted"] for request in own for _ in request["sampled"]],
            )
    return replies
