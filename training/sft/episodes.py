"""The episodes that supervised training learns from: read, selected, and with tokens of the model that learns.

The tokens of a conversation equal those of an episode that is played with the same messages: the prompt, then the
replies with their end tokens and the text between them. The mask is 1 on the replies and their end tokens, and 0 on
everything else.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ...core.base import BaseMultiTurnEnv, get_offered_tools
from ...core.loop import parse_reply
from ...core.messages import write_call
from ...core.parsing.reply import ToolCalls
from ...core.prompts.templates import Prompts
from ...core.settings import ReplyFormat
from ...engines.generator import Conversation, ReplyError
from ...engines.hf.chat_tokens import ChatTokens
from ...errors import ImageError, StoreError
from ...images.files import open_image
from ...images.ref import ImageRef
from ...images.view import View
from ...records import Episode, EpisodeTokens, Message, Task, ToolCall, Turn
from ...rollouts.exchange.chat_rows import LABELS, ChatRow, find_folder, list_lines, read_chat_row
from ...rollouts.exchange.conversation import list_messages
from ...rollouts.exchange.importing import list_table
from ...rollouts.store.reader import load
from ...utils.frozen import thaw

ALLOWED = "messages, tools, system, images; take out what is not to be learned from"
THINKING = "thinking of replies: reasoning_content"

log = logging.getLogger("viewbox.train")


def read_episodes(
    saved: str, env: BaseMultiTurnEnv, tokens: ChatTokens, max_completion_tokens: int, print_line: Callable[[str], None]
) -> list[Episode]:
    """Return the episodes of a folder, or one for each conversation of a file (`read_transcripts`).
    Those of a folder come as they were stored, by task; `add_tokens` gives tokens to those that have none."""
    if not Path(saved).is_file():
        # sorted by task: episodes are stored in the order in which they end
        return sorted(load(saved, tokens=True), key=lambda episode: episode.info.get("index", 0))
    episodes, problems, unread, firsts = [], Counter[str](), Counter[str](), dict[str, str]()
    shown: dict[str, Any] = {"max_pixels": env.max_pixels, "multiple": env.pixel_multiple}
    for number, (place, row) in enumerate(read_transcripts(Path(saved), **shown, left_out=problems)):
        try:
            tokenized = tokenize_conversation(
                row.messages,
                tokens,
                tools=row.tools,
                skipped=row.skipped,
                reply_format=env.reply_format,
                prompts=env.prompts,
                max_completion_tokens=max_completion_tokens,
            )
        except (StoreError, ImageError, ReplyError) as error:
            problems[firsts.setdefault(str(error), f"{place}: {error}")] += 1
            continue
        unread.update([*row.unread, *[THINKING] * any(message.reasoning for message in row.messages)])
        task = Task(f"{Path(saved).name}, {place}")
        episodes.append(Episode(task, environment="transcript", info={"index": number}, tokens=tokenized))
    _tell(f"{saved}: conversations left out", problems, print_line)
    _tell(f"{saved}: conversations of which a part is not learned from", unread, print_line)
    return episodes


def add_tokens(
    episodes: Iterable[Episode],
    env: BaseMultiTurnEnv,
    tokens: ChatTokens,
    max_completion_tokens: int,
    print_line: Callable[[str], None],
) -> list[Episode]:
    """Return the episodes, those without tokens tokenized here; those that cannot be are left out, and the reasons
    told."""
    complete, problems, unread = [], Counter[str](), Counter[str]()
    for episode in episodes:
        if episode.tokens is None:
            unread.update([THINKING] * any(turn.reasoning for turn in episode.turns))
            try:
                tokenized = tokenize_episode(episode, env, tokens, max_completion_tokens)
            except (StoreError, ImageError, ReplyError) as error:
                problems[str(error)] += 1
                continue
            episode = replace(episode, tokens=tokenized)
        complete.append(episode)
    _tell("episodes without tokens left out", problems, print_line)
    _tell("episodes of which a part is not learned from", unread, print_line)
    return complete


def _tell(what: str, problems: Counter[str], print_line: Callable[[str], None]) -> None:
    for reason, count in problems.most_common(5):
        print_line(f"note: {what}: {count} ({reason:.300})")


def tokenize_conversation(
    messages: Sequence[Message],
    tokens: ChatTokens,
    *,
    tools: Sequence[Mapping[str, object]] = (),
    skipped: Collection[int] = (),
    reply_format: ReplyFormat = "hermes",
    prompts: Prompts | None = None,
    max_completion_tokens: int = 4096,
) -> EpisodeTokens:
    """Return the tokens of a conversation; messages after the last reply are left out. Raise `StoreError` if there is
    no reply, nothing before the first one, or the conversation is too long. Raise `ImageError` if an image cannot be
    opened.

    Args:
        messages: as a model was shown them, and its replies. Native tool calls are written in `reply_format`,
            and with "native" as the chat template writes them.
        tools: the schemas that the prompt lists.
        skipped: places of the replies that are not to be learned from.
        reply_format, prompts: how the prompt teaches calls, as in `ChatTokens.encode_prompt`.
    """
    if any(message.images for message in messages if message.role in ("system", "assistant")):
        raise StoreError("a message of the system or the assistant shows a picture; allowed: of the user and of tools")
    learned = [message.role == "assistant" and place not in skipped for place, message in enumerate(messages)]
    if not any(learned):
        raise StoreError("no message of the assistant to learn from")
    if messages[0].role == "assistant":
        raise StoreError("begins with the assistant; allowed: a system or user message before the first reply")
    if tools and messages[0].role != "system":
        messages, learned = [Message("system", ("",)), *messages], [False, *learned]  # the list of tools stands in it
    conversation = Conversation(
        [], tools, seed=0, index=0, reply_format=reply_format, prompts=Prompts() if prompts is None else prompts
    )
    record = conversation.record
    for message, is_learned in zip(messages, learned, strict=True):
        if message.role == "assistant":
            fits = tokens.observe(conversation, max_completion_tokens)
            ids = tokens.encode_reply(write_reply(message, reply_format), conversation) if fits else []
            room = tokens.get_room(record, max_completion_tokens)
            if not fits or len(record.completion_ids) + len(ids) > room:
                raise StoreError(f"longer than {room} tokens (rollout.max_completion_tokens, the model's context)")
            if is_learned:
                record.add_sampled(ids, [0.0] * len(ids))
            else:
                record.add_observation(ids)
        conversation.messages.append(message)
    tokenized = record.to_episode_tokens()
    assert tokenized is not None
    return tokenized


def write_reply(message: Message, reply_format: ReplyFormat = "hermes") -> str:
    """Return a reply as text, with its native calls in the format that the prompt teaches.

    >>> print(write_reply(Message("assistant", ("Closer.",), tool_calls=(ToolCall("a", "zoom", {"factor": 2}),))))
    Closer.
    <tool_call>
    {"name": "zoom", "arguments": {"factor": 2}}
    </tool_call>
    """
    calls = [_write_call(call, reply_format) for call in message.tool_calls]
    return "\n".join([*([message.text] if message.text else []), *calls])


def _write_call(call: ToolCall, reply_format: ReplyFormat) -> str:
    arguments = call.arguments
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as error:
            raise StoreError(f"the arguments of a call of {call.name} are not JSON") from error
    return write_call(call.name, thaw(arguments), reply_format)


def tokenize_episode(
    episode: Episode, env: BaseMultiTurnEnv, tokens: ChatTokens, max_completion_tokens: int = 4096
) -> EpisodeTokens:
    """Return the tokens of an episode that was stored without: that of an endpoint, of a person or of a script. Raise
    `StoreError` if it was played with another system prompt than `env` has, or cannot be tokenized. Raise `ImageError`
    if an image cannot be opened."""
    env = env.for_task(episode.task)
    if episode.system_prompt != env.build_system_prompt(episode.task):
        raise StoreError(
            f"was played with another system prompt than {env.name} has now (other tools, coordinates or texts); "
            "allowed: the settings it was played with"
        )
    return tokenize_conversation(
        rebuild_messages(episode, env),
        tokens,
        tools=env.toolbox.build_schemas(get_offered_tools(env, episode.task)),
        reply_format=env.reply_format,
        prompts=env.prompts,
        max_completion_tokens=max_completion_tokens,
    )


def rebuild_messages(episode: Episode, env: BaseMultiTurnEnv) -> list[Message]:
    """Return the messages of an episode from its turns. Raise `StoreError` if they do not tell them."""

    def count_written(turn: Turn) -> int:
        parsed = parse_reply(env, turn.content)
        return len(parsed.calls) if isinstance(parsed, ToolCalls) else 0

    messages = list_messages(episode, count_written)
    return messages if episode.system_prompt else [Message("system", ("",)), *messages]


def read_transcripts(
    path: Path, *, max_pixels: int, multiple: int = 1, left_out: Counter[str] | None = None
) -> Iterator[tuple[str, ChatRow]]:
    """Yield the conversations of a JSONL or Parquet file (`rollouts/exchange/chat_rows.py`), each with its place; log
    each that cannot be read, or holds something that is not learned from. Raise `StoreError` if the file cannot be
    read. Raise `ConfigError` if it is no Parquet file.

    Args:
        max_pixels, multiple: images are shown as an environment with these settings shows them.
    """

    def open_picture(where: str | bytes) -> ImageRef:
        source = open_image(where, find_folder(where, path.parent))
        return View.of(source, max_pixels=max_pixels, multiple=multiple).to_ref()

    left_out = Counter() if left_out is None else left_out
    firsts: dict[str, str] = {}  # where a reason came first
    is_table = path.suffix.lower() == ".parquet"
    try:
        for place, raw, problem in list_table(path) if is_table else list_lines(path):
            try:
                if problem:
                    raise StoreError(problem)
                row = read_chat_row(raw, open_picture)
                unread = [key for key in row.unread if key.rpartition(".")[2] not in LABELS]
                if unread:
                    raise StoreError(f"{', '.join(unread)}: not read; allowed: {ALLOWED}")
            except (StoreError, ImageError, ValueError, RecursionError) as error:
                left_out[firsts.setdefault(str(error), f"{place}: {error}")] += 1
                log.warning("%s, %s: left out: %.300s", path, place, error)
                continue
            yield place, row
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror or error})") from error
