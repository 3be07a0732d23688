"""The `viewbox` command."""

import sys
from typing import Annotated, Literal

import typer

from viewbox.exit_status import guard

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def train(context: typer.Context) -> None:
    """Train from a YAML config: `viewbox train quickstart train.seed=1` (see `viewbox train --help`)."""
    from viewbox.train import main as run

    raise typer.Exit(run(context.args))


@app.command()
def config() -> None:
    """Print what a YAML config may say: every section, key, type and default."""
    from viewbox.cli.docs.config_page import page

    typer.echo(page(), nl=False)


@app.command()
def envs() -> None:
    """List the environments."""
    from viewbox import make
    from viewbox.envs import ENVIRONMENTS

    for name in sorted(ENVIRONMENTS):
        summary = (type(make(name)).__doc__ or "").strip().splitlines()[0]
        typer.echo(f"{name}: {summary}")


@app.command()
def picture(
    run: Annotated[str, typer.Argument(help="a folder of saved episodes")],
    out: Annotated[str, typer.Option(help="the PNG to write")] = "episode.png",
    number: Annotated[int, typer.Option(help="which episode that used a tool and answered right, from 0")] = 0,
) -> None:
    """Draw one saved episode: what was shown, what was said, turn by turn."""
    from viewbox.cli.picture import best, draw

    draw(best(run, number), out)
    typer.echo(out)


@app.command()
def rollout(
    env: Annotated[str | None, typer.Option(help="the environment")] = None,
    model: Annotated[str | None, typer.Option(help="its name at the endpoint; without --endpoint a local one")] = None,
    endpoint: Annotated[str | None, typer.Option(help="an OpenAI-compatible server; images go there")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value of the environment; repeat")] = None,
    config: Annotated[str | None, typer.Option(help="a run's YAML: its env, reward and rollout sections")] = None,
    held_out: Annotated[bool, typer.Option("--held-out", help="with the settings in env.eval of the config")] = False,
    tasks: Annotated[int, typer.Option(help="how many tasks, from the first")] = 100,
    group: Annotated[int, typer.Option(help="episodes a task")] = 1,
    concurrency: Annotated[int | None, typer.Option(help="episodes at once (endpoint: 16)")] = None,
    temperature: Annotated[float | None, typer.Option(help="of sampling; default: the endpoint's")] = None,
    top_p: Annotated[float | None, typer.Option(help="sample from the likeliest tokens that add up to it")] = None,
    top_k: Annotated[int | None, typer.Option(help="sample from so many of the likeliest tokens; 0: all")] = None,
    min_p: Annotated[float | None, typer.Option(help="… from tokens this share as likely as the likeliest")] = None,
    repetition_penalty: Annotated[float | None, typer.Option(help="above 1: what was said becomes less likely")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="a text that ends a reply; repeat")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="tokens of a reply; default: the endpoint's")] = None,
    kv_cache_bytes: Annotated[str | None, typer.Option(help="keys and values, such as 8GiB (local model)")] = None,
    timeout: Annotated[float | None, typer.Option(help="seconds an episode (endpoint: 600)")] = None,
    seed: Annotated[int, typer.Option(help="of sampling; every episode's own is drawn from it")] = 0,
    out: Annotated[str | None, typer.Option(help="the folder; one that was begun goes on (new in runs/)")] = None,
    api_key_env: Annotated[str, typer.Option(help="the variable that holds the key")] = "OPENAI_API_KEY",
    tool_images: Annotated[Literal["tool", "user"], typer.Option(help="what message a tool's image is in")] = "user",
    native_tools: Annotated[bool, typer.Option(help="tools of the interface; else in the prompt")] = True,
    extra: Annotated[list[str] | None, typer.Option(help="key=value of each request (null: left out); repeat")] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="play error, timeout, cancelled again")] = False,
) -> None:
    """Play an environment's tasks against an endpoint or a local model; every episode is kept."""
    from viewbox.cli.rollout import Options, run

    section = {
        "slots": concurrency,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "stop": stop or None,
        "max_reply_tokens": max_tokens,
        "kv_cache_bytes": kv_cache_bytes,
        "timeout": timeout,
    }
    options = Options(
        env=env,
        model=model,
        endpoint=endpoint,
        config=config,
        held_out=held_out,
        settings=settings or (),
        tasks=tasks,
        group=group,
        rollout={name: value for name, value in section.items() if value is not None},
        seed=seed,
        out=out,
        api_key_env=api_key_env,
        tool_images=tool_images,
        native_tools=native_tools,
        extra=extra or (),
        retry_failed=retry_failed,
    )
    raise typer.Exit(run(options))


@app.command()
def publish(
    environment: Annotated[str, typer.Argument(help="a name, package.module:Class, or path/to/module.py:Class")],
    out: Annotated[str, typer.Argument(help="the folder to write")],
    to: Annotated[str, typer.Option(help="where to: dir (a folder)")] = "dir",
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value, a setting (YAML); repeatable")] = None,
    id: Annotated[str | None, typer.Option(help="the package's name  [default: viewbox-<name>]")] = None,
    version: Annotated[str, typer.Option(help="the package's version")] = "0.1.0",
    license: Annotated[str, typer.Option(help="the package's license (SPDX)")] = "Apache-2.0",
    force: Annotated[bool, typer.Option(help="replace a package written here before")] = False,
) -> None:
    """Write an environment as a package for verifiers 0.4: `viewbox publish digits --to dir OUT`."""
    from viewbox.cli.publish import report, settings_of
    from viewbox.publish import publish as write

    chosen = settings_of(settings or [])
    written = write(environment, out, to=to, settings=chosen, id=id, version=version, license=license, force=force)
    typer.echo(report(written))


@app.command()
def score(
    run: Annotated[str, typer.Argument(help="a run folder, or a folder of saved episodes")],
    reward: Annotated[str | None, typer.Option(help="reward.yaml, module:name or file.py:name (its own)")] = None,
    where: Annotated[list[str] | None, typer.Option(help="field op value, such as end_reason=answered; repeat")] = None,
    group_by: Annotated[str | None, typer.Option(help="a field; the reward is also shown for each value")] = None,
    name: Annotated[str | None, typer.Option("--name", "--out", help="of the new column (the reward's)")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="an earlier column of that name")] = False,
    write: Annotated[bool, typer.Option("--write/--no-write", help="keep the scores as a column")] = True,
    bootstrap: Annotated[int, typer.Option(min=0, help="draws for the 95 % intervals; 0: no intervals")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="of the bootstrap")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Score saved episodes again: no model, no torch. Stored scores stay; the new ones become a column beside them."""
    import json

    from viewbox.cli import score
    from viewbox.rollouts.scoring.rescore import score_run as rescore

    report = rescore(
        run,
        reward=reward,
        where=where or (),
        group_by=group_by,
        name=name,
        replace=replace,
        write=write,
        resamples=bootstrap,
        seed=seed,
    )
    if as_json:
        typer.echo(json.dumps(report.to_dict()))
    else:
        score.print_report(report)


tools_app = typer.Typer(help="The viewer's tools: what they are, and what they do to an image.")
app.add_typer(tools_app, name="tools")
Frame = Literal["unit", "per_mille", "pixel"]


@tools_app.callback(invoke_without_command=True)
def tools(
    context: typer.Context,
    markdown: Annotated[bool, typer.Option("--markdown", help="print docs/tools.md")] = False,
) -> None:
    """The viewer's tools: without a command, every one of them, by family."""
    if context.invoked_subcommand is not None:
        return
    from viewbox.cli.docs import tools_page

    if markdown or not sys.stdout.isatty():
        typer.echo(tools_page.markdown(), nl=False)
    else:
        from rich.console import Console

        Console().print(tools_page.table())


@tools_app.command("try")
def try_tools(
    image: Annotated[str, typer.Argument(help="a picture, DICOM, NIfTI or .npy file, or a folder of slices")],
    calls: Annotated[
        list[str] | None, typer.Argument(help="TOOL name=value … TOOL name=value …", metavar="[CALLS]...")
    ] = None,
    out: Annotated[str, typer.Option(help="file for the picture that is shown last")] = "view.png",
    max_pixels: Annotated[int, typer.Option(min=256, help="largest view, width x height")] = 512 * 512,
    coordinates: Annotated[Frame, typer.Option(help="how points and boxes are written")] = "unit",
) -> None:
    """Apply tools to an image: `viewbox tools try scan.dcm zoom factor=2 crop box=0.1,0.1,0.5,0.5`.

    Prints what a model would read after each call. Stops with status 2 at the first failed call and writes nothing.
    Without a call, shows the image as it is first seen.
    """
    from viewbox.cli.tools import try_calls

    results = try_calls(image, calls or [], out=out, coordinates=coordinates, max_pixels=max_pixels)
    for result in results:
        typer.echo(result.text)
    if results[-1].error is not None:
        raise typer.Exit(2)
    typer.echo(out)


@tools_app.command()
def sheet(
    image: Annotated[str | None, typer.Argument(help="default: a CT slice that pydicom brings along")] = None,
    out: Annotated[str, typer.Option(help="the PNG to write")] = "tools.png",
) -> None:
    """Draw every tool on one image."""
    from viewbox.cli.docs.tool_sheet import draw, example
    from viewbox.cli.tools import save_picture

    save_picture(draw(image or example()), out)
    typer.echo(out)


reward_app = typer.Typer(help="Rewards: what one gives on an answer and why; each of them drawn.", no_args_is_help=True)
app.add_typer(reward_app, name="reward")


@reward_app.command("try")
def try_reward(
    reward: Annotated[str, typer.Argument(help="reward.yaml, a run's YAML, module:name or file.py:name")],
    answer: Annotated[str | None, typer.Option(help="a JSON object or @file.json; null: no answer")] = None,
    reference: Annotated[str | None, typer.Option(help="the task's reference: a JSON object or @file.json")] = None,
    episode: Annotated[str | None, typer.Option(help="RUN:NUMBER, a saved episode, from 0: for all it holds")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """What a reward gives: every component, and why.

    `viewbox reward try reward.yaml --answer '{"label": "six"}' --reference '{"label": "seven"}'`
    """
    import json

    from viewbox.cli.reward import print_trial, run

    trial = run(reward, answer=answer, reference=reference, episode=episode)
    if as_json:
        typer.echo(json.dumps(trial.to_dict()))
    else:
        print_trial(trial)


@reward_app.command("sheet")
def reward_sheet(out: Annotated[str, typer.Option(help="the PNG to write")] = "rewards.png") -> None:
    """Draw every reward on an example."""
    from viewbox.cli.docs.reward_sheet import draw
    from viewbox.cli.tools import save_picture

    save_picture(draw(), out)
    typer.echo(out)


def main() -> None:
    """Runs the command and ends with its status (see `viewbox.exit_status`)."""
    sys.exit(guard(app))
