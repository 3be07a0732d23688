"""Loads the model and processor of a config: from a folder, from the hub or shipped with viewbox; or builds them."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors import safe_open

from ...assets import find_model_folder, resolve_model_path
from ...configs.sections import ModelSection
from ...core.base import BaseMultiTurnEnv
from ...errors import ConfigError, ModelError
from ...utils.docstrings import check_kept
from ...utils.model_folder import describe_danger, describe_tokens, take_template
from ...utils.terminal import describe_error
from . import tiny_model
from .architectures import Architecture
from .picture_settings import describe_misfit
from .picture_settings import get_view_settings as get_view_settings
from .picture_settings import set_max_pixels as set_max_pixels
from .quantization import Quantization, build_quantization_config, keep_weights

if TYPE_CHECKING:
    from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel

SAFE = {"trust_remote_code": False}  # without it, transformers asks on stdin whether to run code in the model's folder
PREFIXES = {  # of the names of weights, by what leaves them: how to save the model without
    "_orig_mod.": "torch.compile leaves: save model._orig_mod",
    "module.": "DistributedDataParallel leaves: save model.module",
    "base_model.model.": "peft leaves: save model.merge_and_unload()",
}


class LoadedPolicy(NamedTuple):
    """A model with its processor, and the environments built for it."""

    env: BaseMultiTurnEnv
    held_out: BaseMultiTurnEnv
    model: "PreTrainedModel"
    processor: Any


def load_processor(section: ModelSection) -> "tuple[PretrainedConfig, Any]":
    """Return the (model config, processor) of a named model. Raise `ConfigError` if there is no such folder, and
    `ModelError` if they cannot be loaded, or the architecture is not supported."""
    check_kept("transformers")
    from transformers import AutoProcessor, GenerationConfig

    assert section.name is not None
    name = str(find_model_folder(section.name) or section.name)
    silence_transformers()
    failure = "cannot be loaded"
    try:
        config = load_config(section)
        Architecture(config)
        processor = AutoProcessor.from_pretrained(name, revision=section.revision, **SAFE)
        if (Path(name) / "generation_config.json").is_file():  # a damaged one is taken for none later
            GenerationConfig.from_pretrained(name)
        take_template(processor)
        failure = f"its {type(processor.image_processor).__name__} cannot show a picture as its settings say"
        if (problem := describe_misfit(config, processor)) is None:
            get_view_settings(config, processor)
            problem = describe_tokens(config, processor.tokenizer, lambda: _build_embedding(config))
    except ModelError:
        raise
    except Exception as error:  # of a damaged file, transformers raises many kinds
        reason = str(error).splitlines()[0] if isinstance(error, OSError) else describe_error(error, 300)
        raise _refuse(section, f"{failure}: {reason}") from error
    if problem is not None:
        raise _refuse(section, problem)
    return config, processor


def load_config(section: ModelSection, **options: Any) -> "PretrainedConfig":
    """Return the config of a named model; raise `ModelError` if it asks for code, or its folder for files elsewhere."""
    from transformers import AutoConfig

    name = resolve_model_path(str(section.name))
    config = AutoConfig.from_pretrained(name, revision=section.revision, **SAFE, **options)
    if (danger := describe_danger(config, name)) is not None:
        raise _refuse(section, danger)
    return config


def _build_embedding(config: "PretrainedConfig") -> Any:
    from transformers import AutoModelForImageTextToText

    with torch.device("meta"):
        return AutoModelForImageTextToText.from_config(config).get_input_embeddings()


def find_changed_settings(section: ModelSection, image_processor: Any) -> dict[str, Any]:
    from transformers import AutoProcessor

    saved = AutoProcessor.from_pretrained(resolve_model_path(str(section.name)), revision=section.revision, **SAFE)
    stored = saved.image_processor.to_dict()
    return {name: value for name, value in image_processor.to_dict().items() if value != stored.get(name)}


def silence_transformers() -> None:
    """Leave out what transformers prints while it loads; what matters of it is raised."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def load_generation_config(section: ModelSection) -> "GenerationConfig | None":
    """Return the generation config of a named model, which may name further end tokens; None if it has none."""
    from transformers import GenerationConfig

    assert section.name is not None
    try:
        return GenerationConfig.from_pretrained(resolve_model_path(section.name), revision=section.revision)
    except (OSError, ValueError):
        return None


def load_model(
    section: ModelSection, quantize: Quantization | None = None, *, with_numbers: bool = True
) -> "PreTrainedModel":
    """Return the weights of a named model, on the GPU if there is one; `quantize`: see `quantization.py`. Without
    numbers, only the names and shapes in the files are read. Raise `ModelError` if they cannot be loaded, are not all
    of the model's, or not finite."""
    from transformers import AutoModelForImageTextToText

    assert section.name is not None
    name = resolve_model_path(section.name)
    device: Any = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"
    more: dict[str, Any] = {} if with_numbers else {"device_map": "meta"}
    try:
        config = load_config(section)  # which refuses code of a hub
        if quantize is not None and with_numbers:  # such weights are moved while they are loaded, not afterward
            dtype = torch.bfloat16 if section.dtype == "auto" else getattr(torch, section.dtype)
            more = {"quantization_config": build_quantization_config(quantize, dtype, config)}
            more["device_map"] = {"": device}
        more |= {"output_loading_info": True, "ignore_mismatched_sizes": True}  # which is then refused here
        model, report = AutoModelForImageTextToText.from_pretrained(
            name, revision=section.revision, dtype=section.dtype, attn_implementation=section.attention, **SAFE, **more
        )
    except (ModelError, ConfigError):
        raise
    except Exception as error:  # safetensors, pickle and torch fail in many ways
        damage = describe_damage(Path(name)) or describe_error(error, 300)
        raise _refuse(section, f"cannot be loaded: {damage}") from error
    if (problem := _describe_report(report, len(model.state_dict()))) is not None:
        raise _refuse(section, problem)
    for conversion in getattr(model, "_weight_conversions", None) or ():
        for operation in getattr(conversion, "operations", ()):
            operation.check_dims = False  # else experts are saved as they lie in memory, which vLLM does not read
    if not with_numbers:
        return model
    model = keep_weights(model) if quantize is not None else model.to(device)
    numbers = ((name, one) for name, one in model.named_parameters() if one.element_size() > 1)  # torch tests no 8 bits
    wrong = [name for name, one in numbers if not one.isfinite().all()]
    if wrong:
        text = f"{len(wrong)} of its weights hold NaN or infinity as {model.dtype}, such as {wrong[0]}"
        raise _refuse(section, f"{text}; allowed: finite numbers")
    return model


def check_weights(section: ModelSection) -> None:
    """Raise `ModelError` if a model's folder has weights, and they are not the model's or are damaged."""
    folder = find_model_folder(str(section.name))
    if folder is not None and any(folder.glob("*.safetensors")):
        load_model(section, with_numbers=False)


def _refuse(section: ModelSection, problem: str) -> ModelError:
    return ModelError(f"model.name = {section.name!r}: {problem}", key="model.name")


def _describe_report(report: Mapping[str, Any], total: int) -> str | None:
    """Return what does not fit between a model and its files, as transformers reports it; None if all does."""
    missing, unexpected = sorted(report["missing_keys"]), sorted(report["unexpected_keys"])
    if mismatched := sorted(report["mismatched_keys"]):
        name, in_file, in_model = mismatched[0]
        shapes = f"{tuple(in_file)} in the file and {tuple(in_model)} in the model"
        return f"{len(mismatched)} of its weights have other shapes than config.json says, such as {name}: {shapes}"
    if not missing and not unexpected:
        return None
    problems = []
    if missing:
        problems.append(f"{len(missing)} of the model's {total} weights are not in its files, such as {missing[0]}")
    if unexpected:
        problems.append(f"{len(unexpected)} of the names in its files are no weights of it, such as {unexpected[0]}")
    common = next((prefix for prefix in PREFIXES if any(name.startswith(prefix) for name in unexpected)), None)
    if common is None:
        problems.append("allowed: the weights of the model and no others, as its save_pretrained writes them")
    else:
        problems.append(f"names begin with {common!r}, which {PREFIXES[common]}")
    return "; ".join(problems)


def describe_damage(folder: Path) -> str | None:
    """Return which file of weights or of a checkpoint in a folder is damaged, and how; None if none is."""
    from transformers.trainer_pt_utils import safe_globals

    for path in sorted(one for kind in ("safetensors", "bin", "pt", "pth") for one in folder.glob(f"*.{kind}")):
        try:
            with path.open("rb") as file:
                if file.read(40).startswith(b"version https://git-lfs"):
                    return f"{path.name} is a pointer of Git LFS; allowed: the file itself (git lfs pull)"
            if path.suffix == ".safetensors":
                safe_open(path, "pt")
            elif not zipfile.is_zipfile(path):
                raise ValueError("not what torch.save writes")
            elif path.suffix in (".pt", ".pth"):  # of a checkpoint; of its numbers nothing is read
                with safe_globals():
                    torch.load(path, mmap=True, weights_only=True)
        except UnpicklingError:
            return f"{path.name} holds more than numbers: viewbox did not write it so, and does not load it"
        except Exception as error:
            return f"{path.name} is damaged or cut short ({describe_error(error, 200)})"
    return None


def build_tiny_model(
    section: ModelSection, corpus: Sequence[str], max_pixels: int, seed: int
) -> "tuple[PreTrainedModel, Any]":
    """Return the (model, processor) of a section with `model.tiny`, its tokenizer trained on the texts of `corpus`."""
    processor, sizes = _build_tiny_processor(section, corpus, max_pixels)
    return tiny_model.build_model(processor.tokenizer, seed=seed, **sizes), processor


def build_tiny_config(section: ModelSection, max_pixels: int) -> "tuple[PretrainedConfig, Any]":
    """Return the (config, processor) of a section with `model.tiny`: no weights, and a tokenizer of no words."""
    processor, sizes = _build_tiny_processor(section, [""], max_pixels)
    config = tiny_model.build_config(processor.tokenizer, **sizes)
    assert section.tiny is not None
    config.text_config.vocab_size = section.tiny.vocab_size
    return config, processor


def _build_tiny_processor(section: ModelSection, corpus: Sequence[str], max_pixels: int) -> tuple[Any, dict[str, int]]:
    assert section.tiny is not None
    sizes: dict[str, int] = section.tiny.model_dump()
    tokenizer = tiny_model.build_tokenizer(corpus, sizes.pop("vocab_size"))
    processor = tiny_model.build_processor(tokenizer, patch=sizes["patch"], max_pixels=max_pixels)
    return processor, sizes | {"positions": max_pixels // sizes["patch"] ** 2}
