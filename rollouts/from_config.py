"""What the section `rollout` of a config means to the engine and to an endpoint: the one place where that is decided.

Training, held-out evaluation and `viewbox rollout` all generate with these keyword arguments.
"""

from typing import Any

from viewbox.configs.schema import Config
from viewbox.errors import ConfigError

FILTERS = ("top_p", "top_k", "min_p", "repetition_penalty")
OURS = ("time_limit",)  # of the driver, not of a generator
LOCAL = ("kv_bytes", "patience")  # what an endpoint manages itself


def engine_settings(config: Config, **changes: Any) -> dict[str, Any]:
    """Keyword arguments of `HFGenerator`: the section's, and over them `changes`.

    >>> from viewbox.configs.schema import parse
    >>> config = parse({"model": {"name": "m"}, "env": {"name": "digits"}, "rollout": {"kv_bytes": "2GiB"}})
    >>> found = engine_settings(config, temperature=0.0)
    >>> found["model_name"], found["kv_bytes"], found["temperature"], found["top_p"]
    ('m', 2147483648, 0.0, 1.0)
    """
    section = config.rollout.model_dump(mode="json", exclude=set(OURS))
    return {**section, "model_name": config.model.name or "tiny", **changes}


def endpoint_settings(config: Config) -> dict[str, Any]:
    """Keyword arguments of `OpenAIGenerator`: only what is given, the rest is the server's to choose.

    `top_p` and `stop` are fields of the interface; `top_k`, `min_p` and `repetition_penalty` are those that vLLM and
    its kind add, which other servers may refuse. Raises `ConfigError` for what no server takes from a client.
    """
    section, given = config.rollout, config.rollout.model_fields_set
    for name in LOCAL:
        if name in given and getattr(section, name) is not None:
            raise ConfigError(
                f"rollout.{name} = {getattr(section, name)}: is about a local model; with an endpoint its server "
                "decides: leave it out"
            )
    names = {"temperature": "temperature", "max_reply_tokens": "max_tokens"}
    known = {ours: getattr(section, name) for name, ours in names.items() if name in given}
    sampling = {name: getattr(section, name) for name in (*FILTERS, "stop") if name in given}
    return known | {"sampling": {name: value for name, value in sampling.items() if value != []}}


def notes(config: Config) -> list[str]:
    """What somebody who trains with these settings should know: filters change what is sampled, not its log-probs.

    >>> from viewbox.configs.schema import parse
    >>> print(*notes(parse({"model": {"name": "m"}, "env": {"name": "digits"}, "rollout": {"top_p": 0.9}})))
    rollout.top_p = 0.9: episodes are sampled from other probabilities than those of the loss, which know no filters
    """
    section = config.rollout
    fields = type(section).model_fields
    given = {name: getattr(section, name) for name in FILTERS if getattr(section, name) != fields[name].default}
    named = ", ".join(f"rollout.{name} = {value}" for name, value in given.items())
    words = "episodes are sampled from other probabilities than those of the loss, which know no filters"
    return [f"{named}: {words}"] if given and config.train.method == "grpo" else []
