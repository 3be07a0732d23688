"""The vLLM engine's own keys of the section `rollout`."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from ...configs.sections import RolloutSection


class Settings(RolloutSection):
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
