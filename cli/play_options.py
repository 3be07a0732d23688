"""The options that `viewbox rollout` and `viewbox evaluate` share: who plays what, and how."""

from collections.abc import Sequence
from typing import Annotated

import typer

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        help="Any other setting of the sections env, reward, rollout, model and endpoint, such as env.noise=3, "
        "rollout.top_p=0.9, rollout.timeout=60, rollout.engine=vllm or endpoint.tool_images=tool.",
        metavar="KEY.PATH=VALUE",
        show_default=False,
    ),
]
Env = Annotated[str | None, typer.Option(help="Environment: a registered name, package.module:Class or file.py:Class.")]
Model = Annotated[str | None, typer.Option(help="Model: its name at the endpoint, else a local folder or a hub name.")]
Endpoint = Annotated[str | None, typer.Option(help="URL of an OpenAI-compatible server; images are sent there.")]
ConfigFile = Annotated[
    str | None, typer.Option(help="YAML config whose model, env, reward and rollout sections are used.")
]
Tasks = Annotated[int, typer.Option(help="Number of tasks to play, beginning with the first.")]
Group = Annotated[int, typer.Option(help="Number of episodes per task.")]
Concurrency = Annotated[
    int | None,
    typer.Option(help="Number of episodes played at once. Default: 16 with an endpoint, else rollout.slots."),
]
Temperature = Annotated[
    float | None, typer.Option(help="Sampling temperature. Default: the server's, or 1 for a local model.")
]
MaxTokens = Annotated[
    int | None, typer.Option(help="Maximum tokens per reply. Default: the server's, or 512 for a local model.")
]
Seed = Annotated[int, typer.Option(help="Sampling seed; each episode derives its own from it.")]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Play again the episodes that ended as error, timeout or cancelled.")
]


def list_overrides(
    overrides: Sequence[str] | None, *, concurrency: int | None, temperature: float | None, max_tokens: int | None
) -> list[str]:
    """Options of the section `rollout` as overrides, before those that were given, which win."""
    section = {"slots": concurrency, "temperature": temperature, "max_reply_tokens": max_tokens}
    given = [f"rollout.{name}={value}" for name, value in section.items() if value is not None]
    return [*given, *(overrides or ())]
