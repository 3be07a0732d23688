"""The local engine's own keys of the section `rollout`."""

from pydantic import Field

from ...configs.sections import Bytes, NonNegativeFloat, RolloutSection


class Settings(RolloutSection):
    """viewbox's own engine, in this process."""

    kv_cache_bytes: Bytes | None = Field(
        default=None,
        description="memory for keys and values; fewer slots are used if they do not all fit; default: 80 % of a GPU's "
        "free memory, half of a CPU's",
    )
    tool_wait_timeout: NonNegativeFloat = Field(
        default=5.0, description="seconds the engine waits for a late tool before it continues without that episode"
    )
