"""The episodes that supervised training learns from: read, selected, and with tokens of the model that learns."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.errors import ImageError, StoreError
from viewbox.records import Episode, Task
from viewbox.rollouts.engine.chat_tokens import ChatTokens
from viewbox.rollouts.store.reader import load
from viewbox.training.sft.conversations import tokenize_conversation, tokenize_episode
from viewbox.training.sft.transcripts import TranscriptReader


def read_episodes(
    saved: str, env: BaseMultiTurnEnv, tokens: ChatTokens, max_completion_tokens: int, print_line: Callable[[str], None]
) -> list[Episode]:
    """The episodes of a folder, or one for each conversation of a JSONL file (`transcripts.py`).

    Those of a folder come as they were stored, by task; `add_tokens` gives tokens to those that have none.
    """
    if not Path(saved).is_file():
        # sorted by task: episodes are stored in the order in which they end
        return sorted(load(saved, tokens=True), key=lambda episode: episode.info.get("index", 0))
    reader = TranscriptReader(Path(saved), max_pixels=env.max_pixels, multiple=env.pixel_multiple)
    episodes, problems = [], Counter[str]()
    for transcript in reader:
        try:
            found = tokenize_conversation(
                transcript.messages,
                tokens,
                tools=transcript.tools,
                reply_format=env.reply_format,
                prompts=env.prompts,
                max_completion_tokens=max_completion_tokens,
            )
        except (StoreError, ImageError) as error:
            problems[str(error)] += 1
            continue
        task = Task(f"{Path(saved).name}:{transcript.line}")
        episodes.append(Episode(task, environment="transcript", info={"index": transcript.line}, tokens=found))
    if reader.skipped:
        problems["could not be read; see the warnings above"] += reader.skipped
    _tell(f"{saved}: conversations left out", problems, print_line)
    return episodes


def add_tokens(
    episodes: Iterable[Episode],
    env: BaseMultiTurnEnv,
    tokens: ChatTokens,
    max_completion_tokens: int,
    print_line: Callable[[str], None],
) -> list[Episode]:
    """The episodes, those without tokens tokenized here; those that cannot be are left out, and the reasons told."""
    complete, problems = [], Counter[str]()
    for episode in episodes:
        if episode.tokens is None:
            try:
                found = tokenize_episode(episode, env, tokens, max_completion_tokens)
            except (StoreError, ImageError) as error:
                problems[str(error)] += 1
                continue
            episode = replace(episode, tokens=found)
        complete.append(episode)
    _tell("episodes without tokens left out", problems, print_line)
    return complete


def _tell(what: str, problems: Counter[str], print_line: Callable[[str], None]) -> None:
    for reason, count in problems.most_common(5):
        print_line(f"note: {what}: {count} ({reason:.300})")
