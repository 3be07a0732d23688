"""What all kinds with a HuggingFace model share: the keys of their YAML, safe loading, and a batch on the device.

Weights are read from safetensors only, and code in a model's folder is never run. A checkpoint that lacks weights of
its kind is refused: transformers would fill them with random numbers and answer with those.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import cv2
import numpy as np
from pydantic import ByteSize, Field

from ....assets import find_model_folder
from ....configs.sections import FilePath
from ....errors import ConfigError, ModelError, describe_unknown
from ....images.ref import ImageRef
from ....utils.model_folder import describe_danger, describe_tokens, take_template
from ....utils.terminal import describe_error
from ..serving import ModelRequest, ModelServer, OutOfMemory, ServingSettings, get_server
from ..spec import Specialist

if TYPE_CHECKING:
    import torch
    from PIL import Image


MODEL_PACKAGES = "pip install 'viewbox[train]'"
NOT_FINITE = "gave numbers that are not finite"
COUNTERS = ("position_ids", "num_batches_tracked", "relative_position_index")  # of old files: no weights


class ModelSpecialist(Specialist):
    """A specialist that runs a model. Two with the same model, device and dtype share it."""

    model: Annotated[FilePath, Field(min_length=1, description="a model's folder, a hub name, or `package:NAME`")]
    revision: Annotated[str | None, Field(description="branch, tag or commit of a hub model")] = None
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda(:[0-9]+)?)$",
        description="auto (a GPU if there is one), cpu, cuda, cuda:1",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="of the weights; auto: as they are stored on a GPU, float32 on a CPU"
    )
    memory: Annotated[
        ByteSize | None, Field(gt=0, description="largest size of the weights in memory; a larger model is refused")
    ] = None
    max_batch: Annotated[int, Field(ge=1, description="most calls of concurrent episodes that are run together")] = 16
    wait: Annotated[float, Field(ge=0, le=10, description="seconds to wait for further calls after the first")] = 0.005
    timeout: float = Field(
        default=20.0,
        gt=0,
        description="seconds after which a batch is given up; keep it below a third of `tool_timeout`",
    )
    cache: ByteSize = Field(default="64MiB", ge=0, validate_default=True, description="bytes of results that are kept")
    offload: Annotated[bool, Field(description="move the weights to the CPU while the policy is trained")] = False

    runner: ClassVar[Callable[..., "SpecialistRunner"]]

    def refuse(self, key: str, problem: str) -> ConfigError:
        """Return the error of a key whose value cannot be used."""
        return ConfigError(f"{key} = {getattr(self, key)!r}: {problem}", key=key)

    def get_server(self, **settings: Hashable) -> ModelServer:
        """Return the server of this model; `settings` are arguments of the runner that decide how the model is
        loaded."""
        identity = (self.model, self.revision, self.device, self.dtype, self.memory)
        key = (type(self).runner, *identity, *sorted(settings.items()))
        serving = ServingSettings(self.max_batch, self.wait, self.timeout, int(self.cache), self.offload)
        return get_server(key, lambda: self._load_runner(**settings), serving)

    def _load_runner(self, **settings: Hashable) -> "SpecialistRunner":
        runner = type(self).runner(self, **settings)
        runner.try_out()
        return runner


class SpecialistRunner:
    """A loaded model with its processor. A kind's own class sets `auto_classes` and `processor_class`, and writes
    `infer`. Raise `ConfigError` if the model cannot be loaded; its key is that of the setting to blame."""

    auto_classes: ClassVar[tuple[str, ...]]  # classes of transformers; the first that knows the model's type loads it
    processor_class: ClassVar[str] = "AutoImageProcessor"
    same_size: ClassVar[bool] = False  # whether the pictures of a batch must have one size
    sample: ClassVar[tuple[Any, ...]] = ()  # arguments of a request, for the picture at which the model is tried out

    def __init__(self, spec: ModelSpecialist) -> None:
        try:
            import torch
            import transformers
        except ImportError as error:
            raise spec.refuse("kind", f"needs {error.name}, which is not installed; {MODEL_PACKAGES}") from error
        transformers.utils.logging.disable_progress_bar()
        self.spec = spec
        self.device = find_device(spec)
        name = find_model(spec.model)
        options = {"revision": spec.revision, "trust_remote_code": False}
        try:
            self.config = transformers.AutoConfig.from_pretrained(name, **options)
            if (danger := describe_danger(self.config, name)) is not None:
                raise spec.refuse("model", danger)
            dtype: Any = getattr(torch, spec.dtype) if spec.dtype != "auto" else "auto"
            if spec.dtype == "auto" and self.device.type == "cpu":
                dtype = torch.float32
            self.model, info = self._choose_auto_class().from_pretrained(
                name, config=self.config, dtype=dtype, use_safetensors=True, output_loading_info=True, **options
            )
            self.processor = self.load_processor(name, options)
            if hasattr(tokenizer := getattr(self.processor, "tokenizer", self.processor), "get_vocab"):
                if (problem := describe_tokens(self.config, tokenizer, self.model.get_input_embeddings)) is not None:
                    raise spec.refuse("model", problem)
                if tokenizer is not self.processor:
                    take_template(self.processor)
            known = getattr(self.config, "known", None)
            self.known = None if known is None else Known(**known)
        except ConfigError:
            raise
        except Exception as error:  # transformers, tokenizers and safetensors fail in many ways
            raise spec.refuse("model", f"cannot be loaded: {describe_error(error, 600)}") from error
        self._check_weights(sorted(info["missing_keys"]), sorted(info["unexpected_keys"]))
        self.model.eval().requires_grad_(False)
        self.move_to(self.device)

    def load_processor(self, name: str, options: Mapping[str, Any]) -> Any:
        """Return what turns pictures into tensors."""
        import transformers

        return getattr(transformers, self.processor_class).from_pretrained(name, **options)

    def _choose_auto_class(self) -> Any:
        """Return the first class of `auto_classes` that knows the type of the model."""
        import transformers

        known = {name: getattr(transformers, name) for name in self.auto_classes}
        fitting = [auto_class for auto_class in known.values() if type(self.config) in auto_class._model_mapping]
        if not fitting:
            types = {kind.model_type for auto_class in known.values() for kind in auto_class._model_mapping}
            problem = describe_unknown("model_type", self.config.model_type, types)
            raise self.spec.refuse("model", f"kind {self.spec.kind}: {problem}")
        return fitting[0]

    def _check_weights(self, missing: Sequence[str], unexpected: Sequence[str]) -> None:
        others = [name for name in unexpected if not name.endswith(COUNTERS)]
        for problem, names in (("have no weights for", missing), ("have weights that would be dropped,", others)):
            if names:
                listed = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
                trained = f"it was not trained as {type(self.model).__name__}; allowed: a checkpoint of this kind"
                raise self.spec.refuse("model", f"its files {problem} {listed}: {trained}")
        if self.spec.memory is not None and self.num_bytes > self.spec.memory:
            taken = f"its weights take {self.num_bytes:,} bytes; allowed: at most memory = {self.spec.memory:,}"
            raise ConfigError(f"model = {self.spec.model!r}: {taken}", key="memory")

    @property
    def num_bytes(self) -> int:
        tensors = [*self.model.parameters(), *self.model.buffers()]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def move_to(self, device: "torch.device") -> None:
        """Move the weights. Raise `ConfigError` if the device has no memory for them."""
        import torch

        try:
            self.model.to(device)
        except torch.OutOfMemoryError as error:
            self.model.to("cpu")
            problem = f"has no memory for the {self.num_bytes:,} bytes of {self.spec.model!r}"
            raise self.spec.refuse("device", problem) from error

    def release(self) -> None:
        """Move the weights off the device. No batch is running."""
        import torch

        self.model.to("cpu")
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def wake(self) -> None:
        """Move them back. Raise `ConfigError` if the device has no memory for them any more."""
        self.move_to(self.device)

    def try_out(self) -> None:
        """Raise `ConfigError` if the model fails at a gray picture: it would fail at every call."""
        import torch

        gray = np.linspace(0, 255, 200 * 300).reshape(200, 300).astype(np.uint8)
        try:
            request = ModelRequest(ImageRef.of(gray), self.sample)
            with torch.inference_mode():
                self.infer([request])
            if self.known is not None:
                self.known.holds(request.picture)
                self.abstain(self.known)
        except torch.OutOfMemoryError:
            raise self.spec.refuse("device", f"has no memory for a picture beside {self.spec.model!r}") from None
        except Exception as error:
            problem = f"fails at a gray picture, as it would at every other: {describe_error(error, 600)}"
            raise self.spec.refuse("model", problem) from error

    def run(self, requests: Sequence[ModelRequest]) -> Sequence[Any]:
        """Return one result for each request, or a `ToolError` or `ToolFault` in its place; episodes share results.
        Raise `OutOfMemory` if the batch is too large for the device. After another exception, its requests are run
        again one at a time."""
        import torch

        results: list[Any] = [None] * len(requests)
        groups: dict[Hashable, list[int]] = {}
        for place, request in enumerate(requests):
            if self.known is not None and not self.known.holds(request.picture):
                results[place] = self.abstain(self.known)
            else:
                groups.setdefault(self.get_group(request), []).append(place)
        try:
            with torch.inference_mode():
                for places in groups.values():
                    for place, result in zip(places, self.infer([requests[i] for i in places]), strict=True):
                        results[place] = result
            return results
        except torch.OutOfMemoryError:
            pass
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        raise OutOfMemory

    def get_group(self, request: ModelRequest) -> Hashable:
        """Return the group of a request: those of one can be computed together with the results that each would have
        alone."""
        return (request.picture.width, request.picture.height) if self.same_size else None

    def infer(self, requests: Sequence[ModelRequest]) -> Sequence[Any]:
        """Return one result for each request, in inference mode; a `ToolFault` in the place of a result that is not
        usable."""
        raise NotImplementedError

    def abstain(self, known: "Known") -> "Unfamiliar":
        """Return what is said of a picture that is unlike those that are known."""
        return Unfamiliar()

    def open_pictures(self, requests: Sequence[ModelRequest]) -> list["Image.Image"]:
        """Return the pictures in the color mode that the model was built for."""
        encoder = getattr(self.config, "encoder", self.config)  # of a VisionEncoderDecoder
        mode = "L" if getattr(encoder, "num_channels", 3) == 1 else "RGB"
        return [to_mode(request.picture, mode) for request in requests]

    def to_device(self, inputs: Any) -> Any:
        """Return the processor's tensors on the model's device, floats in the type of its weights."""
        return inputs.to(self.device, dtype=self.model.dtype)


@dataclass(frozen=True)
class Unfamiliar:
    """What is said of a picture unlike all that the model knows; `shares` are those of the labels among those."""

    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    words: ClassVar[str] = "uncertain, the picture is unlike those that the model knows"


@dataclass(frozen=True)
class Known:
    """The pictures that a model learned from, as `known` of its config.json describes them.
    A picture is a square thumbnail of gray values, less their mean and over their deviation, so that brightness and
    contrast do not count. Its distance is that of Mahalanobis over the root of the number of values.
    `benchmarks/train_specialists.py:describe_known` fits one."""

    mean: Sequence[float]
    whiten: Sequence[Sequence[float]]  # the inverse root of the covariance
    at_most: float  # distance
    rates: Sequence[float] = ()  # the shares of a classifier's labels

    def measure(self, picture: ImageRef) -> float:
        gray, side = np.asarray(to_mode(picture, "L"), np.float32), math.isqrt(len(self.mean))
        small = cv2.resize(gray, (side, side), interpolation=cv2.INTER_AREA).ravel()
        if small.std() < 1:  # of 255: nothing is on it
            return math.inf
        return float(np.linalg.norm(self.whiten @ ((small - small.mean()) / small.std() - self.mean))) / side

    def holds(self, picture: ImageRef) -> bool:
        return self.measure(picture) <= self.at_most


def to_mode(picture: ImageRef, mode: str) -> "Image.Image":
    """Return a picture in mode "L" or "RGB". OpenCV repeats a gray value five times as fast as Pillow."""
    from PIL import Image

    pixels = picture.pixels
    if mode == "RGB" and isinstance(pixels, np.ndarray) and pixels.ndim == 2:
        return Image.fromarray(cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB))
    return picture.open().convert(mode)


def find_device(spec: ModelSpecialist) -> "torch.device":
    """Return the device that a specialist names. Raise `ConfigError` if there is none."""
    import torch

    if spec.device == "auto":
        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    device = torch.device(spec.device)
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        allowed = ", ".join(["auto", "cpu", *(f"cuda:{number}" for number in range(count))])
        raise spec.refuse("device", f"there is no such GPU; allowed: {allowed}")
    return device


def find_model(name: str) -> str:
    """Return the folder of a model, or its hub name. Raise `ConfigError` if the name is a path and nothing is there."""
    try:
        return str(find_model_folder(name, "model") or name)
    except ModelError as error:
        raise ConfigError(str(error), key="model") from error


BYTES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


def estimate_bytes(spec: ModelSpecialist, *, gpu: bool) -> int:
    """Return the bytes of the weights on their device; `memory` of the specialist if the files are not on this machine.
    On a `gpu`, `dtype: auto` keeps the type in which the weights are stored."""
    folder = _find_folder(spec)
    if folder is None:
        if spec.memory is not None:
            return int(spec.memory)
        raise spec.refuse("model", "its files are not on this machine, so its memory is not known; set memory")
    wanted = DTYPES.get(spec.dtype) if spec.dtype != "auto" else None if gpu else "F32"
    return sum(_count_bytes(path, wanted) for path in sorted(folder.glob("*.safetensors")))


def _find_folder(spec: ModelSpecialist) -> Path | None:
    name = find_model(spec.model)
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=spec.revision, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, HfHubHTTPError):
        return None


def _count_bytes(path: Path, wanted: str | None) -> int:
    from safetensors import safe_open

    total = 0
    with safe_open(path, framework="numpy") as file:
        for name in file.keys():  # noqa: SIM118 (it is no mapping)
            weight = file.get_slice(name)
            stored = weight.get_dtype()
            is_float = stored in ("F64", "F32", "BF16", "F16")
            total += math.prod(weight.get_shape()) * BYTES.get(wanted if wanted and is_float else stored, 4)
    return total
