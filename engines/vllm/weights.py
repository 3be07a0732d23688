"""Sends the policy's weights to the vLLM server of a run, and makes sure that the server samples with them.

Every update has a version of its own, which the server names in each reply (`wire.parse_generated` refuses others).
Before a generation the server is asked which version it has: a server that was restarted has another, and is sent the
weights again; one that does not answer is waited for.

A server that the run started itself is started again if it has died. On a GPU it shares the trainer's memory, so it
sleeps after each generation: wake, new weights, empty caches, episodes, sleep.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from safetensors.torch import save_file
from transformers.core_model_loading import revert_weight_conversion

from ...configs.sections import ModelSection
from ...errors import ConfigError
from ...network.data_policy import check_sending
from ...network.http import build_client_settings, parse_body, read_error
from ...utils.terminal import make_line
from ..generator import GeneratorError
from ..hf.adapters import get_factors, round_stochastically
from ..hf.chat_tokens import ChatTokens
from ..hf.model_parts import get_base_model
from ..openai.client import EndpointError
from ..processes import do_once
from ..settings import ServerSettings as Settings
from .process import FLAGS, ServerProcess, build_server
from .vllm import Served, VLLMGenerator, clean_url

WAIT = 900.0  # seconds that a server may be away
PAUSE = 2.0  # seconds between attempts
TIMEOUT = 600.0  # seconds of one request; loading a large model takes minutes
MAX_BODY = 2**20  # bytes of a reply; those about weights are short, the settings of a server are tens of kilobytes
CHUNK = 2**31  # bytes of one file
HEAD = "lm_head.weight"  # the name of the output head in a checkpoint
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
CACHES = ("/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache")
HOW_TO_START = (
    f"start it with VLLM_SERVER_DEV_MODE=1 in its environment and the flags `{FLAGS}` and `--weight-transfer-config` "
    "(docs/scaling.md)"
)

log = logging.getLogger("viewbox.train")


def build_sender(
    model: ModelSection, settings: Settings, tokens: ChatTokens, folder: Path, dtype: str = "auto"
) -> "WeightSender":
    """Return the sender of a run. All processes call it together."""
    process: ServerProcess | None = None
    address: list[Any] = [settings.url, False]
    if settings.url is None:
        if PartialState().is_main_process:
            gpu = torch.cuda.is_available()
            process = build_server(model, settings, tokens.processor.image_processor, dtype=dtype, gpu=gpu, run=folder)
            address = [process.url, gpu]
        broadcast_object_list(address)
    url, sleeps = address

    async def check() -> str:
        server = VLLMGenerator(Served(url), tokens, settings)
        try:
            return await server.check()
        finally:
            await server.close()

    return WeightSender(url, folder / "weights", check, process=process, sleeps=sleeps)


class _TemporaryError(Exception):
    """The server may be well again later."""


class WeightSender:
    """The weights of one run on one server. Every process makes one; only the main process sends. The server must see
    `folder` under the same path. `check` asks it whether it can be used at all, and returns the model's name there; it
    may be away for `wait` seconds. On a GPU it `sleeps` between generations."""

    def __init__(
        self,
        url: str,
        folder: Path,
        check: Callable[[], Coroutine[Any, Any, str]],
        *,
        wait: float = WAIT,
        pause: float = PAUSE,
        process: ServerProcess | None = None,
        sleeps: bool = False,
    ) -> None:
        self.url, self.check, self.wait, self.pause = clean_url(url), check, wait, pause
        self.folder = folder.resolve()
        self.process, self.sleeps = process, sleeps
        self.num_sent = 0
        self._run = uuid4().hex[:8]
        self._served: Served | None = None
        self._key: Hashable = None
        self._client = httpx.Client(timeout=TIMEOUT, **build_client_settings(self.url))

    def send(self, model: object, key: Hashable = None) -> Served:
        """Send the weights (adapters merged) and return what the server then serves; all processes call it together.

        With the `key` of the last call, they are sent only to a server that lost them; a number also is the seed of
        their rounding. Raise `GeneratorError` if the server was away for too long, `ConfigError` if it takes no
        weights."""
        return do_once(lambda: self._send_patiently(model, key))

    def release(self) -> None:
        """Release the server until the next weights are sent; all processes call it together."""
        if self.sleeps:
            PartialState().wait_for_everyone()
        if not PartialState().is_main_process:
            return
        if self.sleeps:
            try:
                self._post("/sleep?level=1", {})  # its weights go to main memory
            except (httpx.TransportError, _TemporaryError) as error:
                log.warning("%s: the server does not sleep: %s", self.url, str(error) or type(error).__name__)
        if self.process is not None and self.process.is_running():
            self.process.confirm()

    def close(self) -> None:
        if self.process is not None:
            self.process.end()

    def _send_patiently(self, model: Any, key: Hashable) -> Served:
        check_sending(self.url)
        deadline, reason = time.monotonic() + self.wait, ""
        while True:
            if self.process is not None and not self.process.is_ready():
                self.process.wait()
                deadline = time.monotonic() + self.wait
            try:
                return self._send(model, key)
            except (httpx.TransportError, _TemporaryError) as error:
                said = str(error) or type(error).__name__
                if not reason:
                    log.warning("%s: weights cannot be sent (%s); trying for %.0f s", self.url, said, self.wait)
                reason = said
            if time.monotonic() > deadline:
                raise GeneratorError(
                    f"{self.url}: no weights could be sent for {self.wait:.0f} s: {reason}; once the server is back, "
                    "the run can be resumed"
                )
            time.sleep(self.pause)

    def _send(self, model: Any, key: Hashable) -> Served:
        if self.sleeps:
            if torch.cuda.is_available():
                torch.cuda.empty_cache()  # the server needs what the trainer does not use
            self._post("/wake_up", {})
        served = self._read_version()
        is_known = self._served is not None and served == self._served.version
        if is_known and key is not None and key == self._key:
            return self._served  # type: ignore[return-value]
        name = self._served.model if is_known and self._served else self._check()
        dtype = self._read_dtype()
        if not is_known:
            self._post("/init_weight_transfer_engine", {"init_info": {}})
        self._served = None  # until all of it has arrived, nobody knows what the server has
        self.num_sent += 1
        version = f"{self._run}-{self.num_sent}"
        self._post("/pause?mode=wait", {})
        try:
            self._post("/start_weight_update", {})
            self._send_files(iterate_weights(model, dtype, key if isinstance(key, int) else 0))
            self._post("/finish_weight_update", {"weight_version": version})
            for path in CACHES:  # pictures and prefixes were computed with the weights before
                self._post(path, {})
        finally:
            self._post("/resume", {})
        served = self._read_version()
        if served != version:
            raise _TemporaryError(
                f"the server has the weights {make_line(served, 80)} after those of {version} were sent"
            )
        self._served, self._key = Served(self.url, name, version), key
        return self._served

    def _send_files(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Send tensors as files, each removed once the server has loaded it by its extension (`vllm_extension.py`)."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for chunk in split_tensors(tensors, CHUNK):
            file = self.folder / f"{uuid4().hex}.safetensors"
            try:
                save_file(chunk, file)
                self._post("/update_weights", {"update_info": {"path": str(file)}})
            finally:
                file.unlink(missing_ok=True)

    def _check(self) -> str:
        try:
            return asyncio.run(self.check())
        except EndpointError as error:
            if self.num_sent:  # it could be used before
                raise _TemporaryError(str(error)) from error
            raise

    def _read_dtype(self) -> torch.dtype | None:
        """Return the precision in which the server keeps its weights, if it says so; `ConfigError` if it takes none."""
        info = self._request("GET", "/server_info?config_format=json")
        backend = _get(info, "vllm_config", "weight_transfer_config", "backend")
        if backend != "file":
            raise ConfigError(
                f"rollout.url = {self.url}: the server takes no weights from files (its backend is "
                f"{make_line(backend, 80)}); allowed: file; {HOW_TO_START}",
                key="rollout.url",
            )
        return DTYPES.get(str(_get(info, "vllm_config", "model_config", "dtype")).removeprefix("torch."))

    def _read_version(self) -> Any:
        info = self._request("GET", "/weight_info")
        return info.get("weight_version") if isinstance(info, dict) else None

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return self._request("POST", path, body)

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        started = time.monotonic()
        with self._client.stream(method, self.url + path, json=body) as response:
            received = b""
            for chunk in response.iter_raw():  # never unpacked: a small body may unpack to gigabytes
                received += chunk
                if len(received) > MAX_BODY or time.monotonic() - started > TIMEOUT:
                    raise _TemporaryError(f"the reply for {path} is larger than {MAX_BODY} bytes, or does not end")
        if response.is_redirect or response.status_code in (401, 403, 404, 405):
            problem = f"HTTP {response.status_code} for {path}: {HOW_TO_START}"
            raise ConfigError(f"rollout.url = {self.url}: {problem}", key="rollout.url")
        if not response.is_success:
            said = make_line(read_error(received[:4096])[0], 300)
            raise _TemporaryError(f"HTTP {response.status_code} for {path}: {said}")
        try:
            return parse_body(received) if received else None
        except (ValueError, RecursionError):
            return None


def _get(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def split_tensors(tensors: Iterable[tuple[str, torch.Tensor]], size: int) -> Iterator[dict[str, torch.Tensor]]:
    """Yield dicts of tensors in main memory, each of about `size` bytes, and no two of them sharing memory."""
    chunk: dict[str, torch.Tensor] = {}
    used = 0
    there: set[int] = set()
    for name, tensor in tensors:
        if chunk and used + tensor.nbytes > size:
            yield chunk
            chunk, used, there = {}, 0, set()
        place = tensor.data_ptr()
        chunk[name] = tensor.clone().contiguous() if place in there else tensor.cpu().contiguous()
        there.add(place)
        used += tensor.nbytes
    if chunk:
        yield chunk


def iterate_weights(model: Any, dtype: torch.dtype | None = None, seed: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the (name, tensor) pairs of a model inside `use_merged_adapters`, with the names and layouts of a
    checkpoint, each with its adapters added. Raise `ConfigError` if an adapter is not merged.

    Sums for two bytes are rounded up or down by chance: a small change would be rounded away. The output head is always
    among them: if it is tied, a checkpoint has only the embedding, and a server would keep its old head without an
    error. `dtype` is the server's."""
    _check_merged(model)
    model = get_base_model(model)
    layers = {f"{name}.base_layer.weight": layer for name, layer in model.named_modules() if hasattr(layer, "lora_A")}
    tensors: dict[str, torch.Tensor] = {}
    adapted: dict[int, Any] = {}  # layers with adapters, by the place of their weight
    for name, tensor in model.state_dict().items():
        if ".lora_" in name or ".original_module." in name:
            continue
        if name in layers and layers[name].merged:
            adapted[tensor.data_ptr()] = layers[name]
        tensors[name.replace(".base_layer.", ".").replace(".modules_to_save.default.", ".")] = tensor.detach()
    head = model.get_output_embeddings()
    if head is not None and HEAD not in tensors:
        tensors[HEAD] = head.weight.detach()
    generator: torch.Generator | None = None
    for name, tensor in revert_weight_conversion(model, tensors).items():
        layer = adapted.pop(tensor.data_ptr(), None)
        if layer is not None:
            generator = generator or torch.Generator(tensor.device).manual_seed(seed)
            tensor = _add_adapters(layer, tensor, dtype or tensor.dtype, generator)
        yield name, tensor
    if adapted:
        raise RuntimeError("a weight with adapters was not sent by itself")


def _add_adapters(layer: Any, weight: torch.Tensor, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    down, up = get_factors(layer)
    total = weight.float() + up.float() @ down.float()
    return round_stochastically(total, dtype, generator) if dtype.itemsize <= 2 else total.to(weight.dtype)


def _check_merged(model: Any) -> None:
    from peft.tuners.tuners_utils import BaseTunerLayer

    apart = [
        name
        for name, layer in model.named_modules()
        if isinstance(layer, BaseTunerLayer) and not layer.merged and not layer.disable_adapters
    ]
    if apart:
        raise ConfigError(
            f"rollout.engine = vllm: {len(apart)} adapted layers cannot be merged for the server, such as {apart[0]} "
            "(its weight is quantized, or serves another layer, too); allowed: other lora.target_modules, no "
            "lora.quantize, or engine: hf",
            key="lora.target_modules",
        )
