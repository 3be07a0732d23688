"""The memory of specialists that share the device with the policy."""

from collections.abc import Iterator, Mapping

from viewbox.configs.schema import Config
from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.errors import ConfigError
from viewbox.rollouts.from_config import build_envs
from viewbox.specialists.model import ModelSpecialist
from viewbox.specialists.weights import estimate_bytes


def count_specialists(config: Config, *, gpu: bool) -> tuple[int, int]:
    """The bytes of their weights while the model plays, and while it learns (without those that are offloaded).

    A model that several specialists share counts once; one on another device (`cpu`, `cuda:1`) does not.

    Args:
        config: a checked config.
        gpu: whether the run trains on a GPU.

    Raises:
        ConfigError: the files of a specialist are not on this machine, and its `memory` is not set.
    """
    found: dict[object, tuple[int, bool]] = {}
    for env in build_envs(config, {})[: 2 if config.log.eval_tasks else 1]:
        for name, spec in _list_specialists(env):
            if not isinstance(spec, ModelSpecialist) or spec.device not in ("auto", "cuda" if gpu else "cpu", "cuda:0"):
                continue
            try:
                size = estimate_bytes(spec, gpu=gpu)
            except ConfigError as error:
                key = f"env.specialists.{name}.{error.key}"
                raise ConfigError(f"env.specialists.{name}.{error}", key=key, given=error.given) from error
            key_of_model = type(spec).runner, spec.model, spec.revision, spec.device, spec.dtype
            _, stays = found.get(key_of_model, (0, False))
            found[key_of_model] = size, stays or not spec.offload
    return sum(size for size, _ in found.values()), sum(size for size, stays in found.values() if stays)


def _list_specialists(env: BaseMultiTurnEnv) -> Iterator[tuple[str, object]]:
    parts = getattr(env, "parts", None)
    for part in parts.values() if isinstance(parts, Mapping) else (env,):
        yield from part.specialists.items()
