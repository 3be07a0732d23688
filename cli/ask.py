"""`viewbox ask`: a person's own images and question, answered in the terminal turn by turn."""

import json
import os
import re
import sys
from base64 import b64encode
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..configs import schema, yaml_reader
from ..errors import ConfigError, ImageError
from ..registry import list_plugins
from ..utils.files import check_out, read_regular
from ..utils.frozen import thaw
from ..utils.terminal import make_line, make_printable

if TYPE_CHECKING:
    from ..images.ref import ImageRef
    from ..records import Turn
    from ..rollouts.ask import Answer, Session

INTERRUPTED = 130
MAX_CONTEXT = 20_000  # characters of --file
MAX_TEXT = 600  # characters of a turn that are printed
PROMPT = "you: "
_shorten = partial(make_line, limit=MAX_TEXT)
_SHOWN = re.compile(r"\s*@(\S+)")  # an image that is shown with what is said
Output = Annotated[Literal["text", "json"], typer.Option("--format", help="What is printed.")]


def ask(
    words: Annotated[Sequence[str], typer.Argument(metavar="ENV IMAGE... QUESTION", show_default=False)] = (),
    *,
    model: str | None = None,
    endpoint: str | None = None,
    config: str | None = None,
    image: Sequence[str] = (),
    file: str | None = None,
    specialists: str | None = None,
    live: bool = False,
    set: Sequence[str] = (),
    temperature: float | None = None,
    seed: int = 0,
    out: str | None = None,
    view: bool = False,
    output: Output = "text",
) -> None:
    """Ask a model about your own images, and see every turn as it comes.

    If the model asks back, you answer in the terminal. After its answer you may go on in the same conversation; an
    empty line ends it. `@other.png and here?` shows another image. There is no right answer, so nothing is scored.
    Images and words go to the model and to nobody else; every turn is stored on this machine as it comes.

    Args:
        words: the environment (a name, file.py:Class, or a config), the images, and the question. An image is a file,
            or a folder of DICOM slices, FOLDER#series=3.
        model: its name at the endpoint, else a local folder, a hub name, or package:tiny_chest.
        endpoint: URL of an OpenAI-compatible server; images are sent there.
        config: YAML config whose model, env and rollout sections are used; then ENV is left out.
        image: a further image; may be given several times.
        file: a text that the model reads beside the question, such as a CSV of measurements.
        specialists: YAML file with specialists by name, as in the section env of a config.
        live: search PubMed and Open-i live, with the tools search_web and search_images; in software_adviser, what is
            told of repositories is asked of GitHub, too.
        set: a setting of the sections env, rollout, model and endpoint, such as env.max_turns=4.
        temperature: sampling temperature. Default: the server's, or 0 for a local model.
        seed: sampling seed.
        out: folder of the conversation; one that has others keeps them. Default: a new folder in runs/.
        view: open the page with the pictures when the conversation ends.
        output: json: one object at the end, and no conversation.
    """
    from ..envs import load_class
    from ..rollouts.ask import Session
    from ..rollouts.job import build_job, create_rollout_folder, read_config
    from ..rollouts.store import run_folder

    env, images, question = read_words(words, config)
    question += "" if file is None else read_context(file)
    check_out("runs" if out is None else out, "folder")
    name, config = (None, config or env) if config is not None or is_config(env) else (env, None)
    served = endpoint is not None or (config is not None and "endpoint" in schema.read(config).values)
    sampling = {} if temperature is None and served else {"rollout.temperature": temperature or 0.0}
    listed = {} if specialists is None else yaml_reader.read(Path(specialists)).values
    if isinstance(listed, dict):  # else the environment says what is allowed
        listed = listed.get("specialists", listed)
    services = {"env.specialists": listed} if listed else {}
    if live:
        services["env.specialists.search"] = {"kind": "literature"}
        read, _ = read_config(config, env=name, model=model, overrides=set)
        if getattr(load_class(read.env.name), "live", None) is False:  # a setting of its own
            services["env.live"] = True
    options = [f"{key}={json.dumps(value)}" for key, value in (sampling | services).items()]
    source: dict[str, Any] = {"env": name, "config": config, "model": model, "endpoint": endpoint}
    job = build_job(**source, overrides=[*options, *set], seed=seed, purpose="ask")
    with (
        closing(job.player),
        run_folder.remove_unused(create_rollout_folder(job, out, kind="ask"), new=out is None) as folder,
        run_folder.lock_folder(folder),
    ):
        if not (folder / "config.yaml").exists():
            run_folder.write_config(folder, job.config.model_dump(mode="json", exclude_unset=True))
        episodes = folder / run_folder.EPISODES
        show = partial(print_turn, episodes) if output == "text" else None
        session = Session(job.env, job.generator, folder=episodes, seed=seed, on_turn=show)
        answer, status = None, INTERRUPTED
        try:
            answer = converse(session, question, [*images, *image], is_quiet=output == "json")
            status = int(answer.value is None)
        except KeyboardInterrupt:
            typer.echo("\nstopped; what was said is stored", err=True)
        finally:
            session.close()
    if output == "json" and answer is not None:
        typer.echo(json.dumps({**describe(answer), "folder": str(folder)}, ensure_ascii=False))
    else:
        typer.echo(f"stored: {folder}\n{run_folder.describe_view(folder)}")
    if view:
        typer.echo(f"page: {open_page(folder)}", err=output == "json")
    raise typer.Exit(status)


def read_words(words: Sequence[str], config: str | None) -> tuple[str, list[str], str]:
    """Return environment (empty with a config), images and question.

    >>> read_words(["vqa", "a.png", "b.png", "Which is larger?"], None)
    ('vqa', ['a.png', 'b.png'], 'Which is larger?')
    """
    env, rest = ("", list(words)) if config is not None else (words[0] if words else "", list(words[1:]))
    if not rest or (not env and config is None):
        raise ConfigError('give an environment, images and a question: viewbox ask chest_xray film.png "An effusion?"')
    if Path(rest[-1]).exists():
        raise ConfigError(f"{rest[-1]!r}: is a file; the last word is the question, in quotes")
    return env, rest[:-1], rest[-1]


def is_config(name: str) -> bool:
    """Return whether a name is that of a config, or its file, and of no environment."""
    with suppress(ConfigError):
        return name not in list_plugins("environments") and ":" not in name and bool(schema.find(name))
    return False  # an environment, or what is refused with the names of all


def read_context(path: str) -> str:
    """Return what stands behind the question: the name of a text file and what is in it."""
    try:
        text = read_regular(path, limit=2**20).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--file {path}: cannot be read as text ({error})", key="file") from error
    if len(text) > MAX_CONTEXT:
        raise ConfigError(f"--file {path}: has {len(text):,} characters; allowed: {MAX_CONTEXT:,}", key="file")
    return f"\n\n{Path(path).name}:\n{text}"


def converse(session: "Session", question: str, images: Sequence[str], *, is_quiet: bool) -> "Answer":
    """Ask, and go on as long as somebody at the terminal says something; return the last answer."""
    answer = session.ask(question, images)
    while True:
        if not is_quiet:
            head = "the model asks" if answer.question is not None else "answer"
            typer.echo(make_printable(f"{head}: {answer}"))
        said, more = read_said() if sys.stdin.isatty() else ("", [])
        if not said:
            return answer
        try:
            answer = session.ask(said, more)
        except ImageError as error:
            typer.echo(f"error: {make_printable(error)}", err=True)


def read_said() -> tuple[str, list[str]]:
    """Return what is typed, and the images that are shown with it (`@other.png`); empty at an empty line."""
    try:
        text = input(PROMPT)
    except EOFError:
        return "", []
    images = []
    while shown := _SHOWN.match(text):
        images.append(shown[1])
        text = text[shown.end() :]
    return text.strip() or ("Look at this." if images else ""), images


def print_turn(episodes: Path, turn: "Turn") -> None:
    """Print a turn as it comes, with the files of its pictures in a folder of episodes."""
    from ..rollouts.store.layout import build_image_path

    if turn.role == "assistant":
        typer.echo(f"-- model: {_shorten(turn.content) or '(calls a tool)'}")
        for call in turn.tool_calls:
            typer.echo(f"   -> {call.name} {_shorten(json.dumps(thaw(call.arguments)))}")
    elif turn.nudge:  # else the person knows what they said
        typer.echo(f"-- viewbox: {_shorten(turn.content)}")
    for result in turn.tool_results:
        typer.echo(f"   <- {result.tool_name}{' FAILED' if result.is_fault else ''}: {_shorten(result.text)}")
    for ref in turn.images:
        path = episodes / build_image_path(ref.hash, ref.mode)
        typer.echo(f"   [picture] {path}{draw_picture(ref) if sys.stdout.isatty() else ''}")


def draw_picture(ref: "ImageRef") -> str:
    """Return what makes a terminal show a picture, if it can, in the protocol of iTerm."""
    if os.environ.get("TERM_PROGRAM") not in ("iTerm.app", "WezTerm"):
        return ""
    return f"\n\x1b]1337;File=inline=1;height=12:{b64encode(ref.to_png()).decode()}\x07"


def describe(answer: "Answer") -> dict[str, Any]:
    episode = answer.episode
    return {
        "answer": None if answer.question is not None else thaw(answer.value),
        "evidence": dict(answer.evidence),
        "question": answer.question,
        "end_reason": episode.end_reason,
        "error": episode.info.get("error"),
        "environment": episode.environment,
        "task": episode.task.id,
        "replies": episode.num_turns,
        "tool_calls": episode.tool_call_count,
        "tool_faults": [result.tool_name for turn in episode.turns for result in turn.tool_results if result.is_fault],
    }


def open_page(folder: Path) -> Path:
    """Write the page of a conversation beside it, and open it in a browser; return its path."""
    import webbrowser

    from ..viewer.report import write_report
    from ..viewer.sources import find_sets, read_all

    sets, path = find_sets([str(folder)]), folder / "report.html"
    read_all(sets)
    write_report(sets, path)
    webbrowser.open(path.absolute().as_uri())
    return path
