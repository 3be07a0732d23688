"""How much memory the weights of a specialist take, read from the headers of its files: no weight is loaded."""

import math
from pathlib import Path

from ....errors import ConfigError
from .model import ModelSpecialist, find_model

BYTES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


def estimate_bytes(spec: ModelSpecialist, *, gpu: bool) -> int:
    """The bytes of the weights on their device; `memory` of the specialist if the files are not on this machine.

    Args:
        spec: the specialist.
        gpu: whether `dtype: auto` keeps the type in which the weights are stored.

    Raises:
        ConfigError: the files are not here, and `memory` is not set.
    """
    folder = _find_folder(spec)
    if folder is None:
        if spec.memory is not None:
            return int(spec.memory)
        raise ConfigError(
            f"model = {spec.model!r}: its files are not on this machine, so its memory is not known; set memory",
            key="model",
            given=spec.model,
        )
    wanted = DTYPES.get(spec.dtype) if spec.dtype != "auto" else None if gpu else "F32"
    return sum(_count_bytes(path, wanted) for path in sorted(folder.glob("*.safetensors")))


def _find_folder(spec: ModelSpecialist) -> Path | None:
    name = find_model(spec.model)
    if Path(name).is_dir():
        return Path(name)
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    except ImportError:
        return None
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
