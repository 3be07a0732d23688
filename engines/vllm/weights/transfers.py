"""Ways for tensors to reach a vLLM server. Which one is taken is what the server's `--weight-transfer-config` says."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import torch
from safetensors.torch import save_file

from ....errors import ConfigError

CHUNK = 2**31  # bytes of one file

Post = Callable[[str, dict[str, Any]], Any]
Tensors = Iterable[tuple[str, torch.Tensor]]


class Transfer(Protocol):
    """A way of sending weights."""

    def connect(self, post: Post) -> None:
        """Called for every new server, before the first weights."""
        ...

    def send(self, post: Post, tensors: Tensors) -> None:
        """Sends all tensors. It is called between the start and the end of an update."""
        ...


class FileTransfer:
    """Files of safetensors in a folder that the server can read; each is removed once the server has loaded it.

    The server needs viewbox's extension: see `engines/vllm/vllm_extension.py`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def connect(self, post: Post) -> None:
        post("/init_weight_transfer_engine", {"init_info": {}})

    def send(self, post: Post, tensors: Tensors) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for part in split_tensors(tensors, CHUNK):
            file = self.folder / f"{uuid4().hex}.safetensors"
            try:
                save_file(part, file)
                post("/update_weights", {"update_info": {"path": str(file)}})
            finally:
                file.unlink(missing_ok=True)


class NCCLTransfer:
    """vLLM's own NCCL engine, driven by TRL's client. It needs a GPU here and vLLM installed beside the trainer.

    Of TRL 1.16 it uses `VLLMClient`: `init_communicator`, `update_named_params`, `close_communicator` and the flag
    `_updating_weights`, because the update is begun and ended by `WeightSender`. **Never run so far.**
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._client: Any = None

    def connect(self, post: Post) -> None:
        if not torch.cuda.is_available():
            raise ConfigError(
                "rollout.url: the server takes weights over NCCL, which needs a GPU here; allowed on other machines: a "
                """server with `--weight-transfer-config '{"backend": "file"}'` (docs/scaling.md)""",
                key="rollout.url",
            )
        try:
            from trl.generation.vllm_client import VLLMClient

            if self._client is not None:
                self._client.close_communicator()
            self._client = VLLMClient(base_url=self.url, connection_timeout=60.0)
        except ImportError as error:
            raise ConfigError(
                f"rollout.url: weights over NCCL need vLLM beside the trainer ({error}): pip install vllm",
                key="rollout.url",
            ) from error
        self._client.init_communicator(device=torch.cuda.current_device())
        self._client._updating_weights = True

    def send(self, post: Post, tensors: Tensors) -> None:
        named = [(name, tensor.to("cuda")) for name, tensor in tensors]
        metadata = [(name, str(t.dtype).removeprefix("torch."), list(t.shape)) for name, t in named]
        self._client.update_named_params(metadata, iter(named))


def split_tensors(tensors: Tensors, size: int) -> Iterator[dict[str, torch.Tensor]]:
    """Dicts of tensors in main memory, each of about `size` bytes, and no two of them sharing memory.

    >>> [list(part) for part in split_tensors([("a", torch.ones(4)), ("b", torch.ones(4))], 16)]
    [['a'], ['b']]
    """
    part: dict[str, torch.Tensor] = {}
    used = 0
    there: set[int] = set()
    for name, tensor in tensors:
        if part and used + tensor.nbytes > size:
            yield part
            part, used, there = {}, 0, set()
        place = tensor.data_ptr()
        part[name] = tensor.clone().contiguous() if place in there else tensor.cpu().contiguous()
        there.add(place)
        used += tensor.nbytes
    if part:
        yield part
