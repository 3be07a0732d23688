"""A server that speaks vLLM's wire and samples with a plain model; `change` damages what it sends."""

import base64
import io
from typing import ClassVar

import torch
from PIL import Image
from safetensors.torch import load_file

from tests.support.servers import make_response, serve


class PlainVLLM:
    """Answers `/v1/models` and `/inference/v1/generate` as vLLM 0.32 does, its silent mistakes included.

    `form` is how a log-prob names its token: "token_id" (0.32 and later) or "token" (0.31). `change` is called with
    each reply and its request, and returns what is sent instead.
    """

    def __init__(self, model, processor, *, form="token_id", processed=True, version="default", change=None):
        self.model, self.processor, self.form, self.processed = model, processor, form, processed
        self.version, self.change = version, change or (lambda reply, body: reply)
        self.pad, self.num_generated = model.config.image_token_id, 0

    def list_models(self, body):
        return {"object": "list", "data": [{"id": "policy"}, {"id": "an adapter"}]}

    def expand(self, body):
        """The ids after vLLM's processor, and the pixels: each placeholder takes the next image, others stay bare."""
        parts = body.get("content_parts") or []
        images = [Image.open(io.BytesIO(base64.b64decode(part["url"].split(",", 1)[1]))) for part in parts]
        if not images:
            return list(body["token_ids"]), {}
        found = self.processor.image_processor(images=[one.convert("RGB") for one in images], return_tensors="pt")
        merge = self.processor.image_processor.merge_size**2
        counts = iter((found["image_grid_thw"].prod(1) // merge).tolist())
        ids = [i for one in body["token_ids"] for i in ([one] * next(counts, 1) if one == self.pad else [one])]
        return ids, dict(found)

    @torch.no_grad()
    def generate(self, body):
        ids, vision = self.expand(body)
        asked, out, logprobs = body["sampling_params"], [], []
        draw = torch.Generator().manual_seed(asked["seed"])
        while len(out) < asked["max_tokens"] and not (out and out[-1] in asked["stop_token_ids"]):
            whole = torch.tensor([[*ids, *out]])
            types = {"mm_token_type_ids": (whole == self.pad).int()} if vision else {}
            logits = self.model(input_ids=whole, attention_mask=torch.ones_like(whole), **vision, **types).logits[0, -1]
            raw = logits.float().log_softmax(-1)
            logits = logits.float() / (asked["temperature"] or 1.0)
            for token, bias in asked.get("logit_bias", {}).items():
                logits[int(token)] += bias
            if asked["top_k"]:
                logits[logits < logits.topk(asked["top_k"]).values[-1]] = -torch.inf
            logprob = logits.log_softmax(-1)
            out.append(int(torch.multinomial(logprob.exp(), 1, generator=draw)))
            logprobs.append((logprob if self.processed else raw)[out[-1]].item())
            if out[-1] == self.pad:  # vLLM samples on; a plain model would look for the pixels
                break
        self.num_generated += 1
        ended = out[-1] in asked["stop_token_ids"]
        choice = {
            "index": 0,
            "finish_reason": "stop" if ended else "length",
            "token_ids": out,
            "weight_versions": [{"version": self.version, "start": 0, "end": len(out)}],
            "logprobs": {"content": list(map(self._name, out, logprobs))},
        }
        prompt = ids if body.get("return_token_ids") else None
        return self.change({"request_id": "x", "prompt_token_ids": prompt, "choices": [choice]}, body)

    def _name(self, token, value):
        named = {"token": f"token_id:{token}"} if self.form == "token" else {"token_id": token, "rank": 1}
        return {**named, "logprob": value, "top_logprobs": []}

    def serve(self, port=0):
        """Runs it on a port of this machine."""
        by_path = {"/v1/models": self.list_models, **self.get_more_paths()}
        return serve(lambda body, number: self.generate(body), port, by_path=by_path)

    def get_more_paths(self):
        return {}


class TrainedVLLM(PlainVLLM):
    """Also takes weights from files, as vLLM does with its development endpoints and viewbox's extension.

    `calls` holds the requests about weights and sleep. `keeps_weights` loses what it is sent, and says that it has it.
    While it sleeps, it takes no weights and gives no reply.
    """

    def __init__(self, *args, backend="file", keeps_weights=False, **settings):
        super().__init__(*args, **settings)
        self.backend, self.keeps_weights, self.calls, self.loaded = backend, keeps_weights, [], {}
        self.is_connected = self.is_paused = self.is_asleep = False

    dtype = None  # of its weights, as it says

    def generate(self, body):
        return make_response(500, {"error": "asleep"}) if self.is_asleep else super().generate(body)

    def get_more_paths(self):
        return {
            "/health": lambda body: {},
            "/weight_info": lambda body: {"weight_version": self.version},
            "/server_info?config_format=json": lambda body: {"vllm_config": self.describe()},
            **{path: self._record(path, method) for path, method in self._METHODS.items()},
        }

    def describe(self):
        transfer = self.backend and {"backend": self.backend}
        return {"weight_transfer_config": transfer, "model_config": {"dtype": self.dtype}}

    def _record(self, path, method):
        def answer(body):
            self.calls.append(path)
            return (setattr(self, *method) if isinstance(method, tuple) else method(self, body)) or {}

        return answer

    def start(self, body):
        if not (self.is_connected and self.is_paused) or self.is_asleep:
            return make_response(500, {"error": "not connected, not paused, or asleep"})
        self.loaded = {}

    def update(self, body):
        self.loaded |= load_file(body["update_info"]["path"])

    def finish(self, body):
        if not self.keeps_weights:
            self.model.load_state_dict(self.loaded)
        self.version = body["weight_version"]

    _METHODS: ClassVar = {  # a method, or what is set
        "/init_weight_transfer_engine": ("is_connected", True),
        "/pause?mode=wait": ("is_paused", True),
        "/start_weight_update": start,
        "/update_weights": update,
        "/finish_weight_update": finish,
        "/resume": ("is_paused", False),
        "/sleep?level=1": ("is_asleep", True),
        "/wake_up": ("is_asleep", False),
        **{f"/reset_{name}_cache": lambda self, body: None for name in ("prefix", "mm", "encoder")},
    }
