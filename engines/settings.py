"""The own keys that each engine has in the section `rollout`."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from ..configs.sections import Bytes, NonNegativeFloat, RolloutSection


class LocalSettings(RolloutSection):
    """viewbox's own engine, in this process."""

    kv_cache_bytes: Bytes | None = Field(
        default=None,
        description="memory for keys and values; fewer slots are used if they do not all fit; default: 80 % of a GPU's "
        "free memory, half of a CPU's",
    )
    tool_wait_timeout: NonNegativeFloat = Field(
        default=5.0, description="seconds the engine waits for a late tool before it continues without that episode"
    )


class ServerSettings(RolloutSection):
    """A vLLM server: one that runs already, or one that viewbox starts on this machine and ends."""

    url: str | None = Field(
        default=None,
        description="the server, such as http://127.0.0.1:8000; default: viewbox starts one on this machine, and ends "
        "it",
    )
    gpu_memory: Annotated[float, Field(gt=0, le=1, strict=True)] | None = Field(
        default=None,
        description="without a url: the share of the GPU's memory for the server; default: 0.9, and 0.4 beside a "
        "trainer",
    )

    @model_validator(mode="after")
    def _check_share(self) -> Self:
        if self.gpu_memory is not None and self.url is not None:
            raise ValueError(
                f"gpu_memory = {self.gpu_memory:g} is read with engine: vllm and no url only; the server at a url was "
                "given its share when it was started"
            )
        return self
