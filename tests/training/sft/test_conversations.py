"""Conversations without tokens become, token by token, what an episode with the same messages has recorded."""

import json
from collections import Counter

import pytest
from msgspec.structs import replace
from PIL import Image

from viewbox.core.messages import to_openai_messages
from viewbox.engines.hf import Settings
from viewbox.engines.hf.engine import HFGenerator
from viewbox.engines.scripted import ScriptedGenerator
from viewbox.envs.digits import Digits, viewer
from viewbox.errors import StoreError
from viewbox.records import Message, Reply, ToolCall
from viewbox.training.sft.episodes import read_transcripts, rebuild_messages, tokenize_conversation, tokenize_episode

ENV = Digits(max_turns=4)
ZOOM = viewer.write_zoom(ENV, 2, 0.4, 0.6)
SCRIPTS = {
    "an answer": lambda env, task: [viewer.write_answer(env, task)],
    "a zoom and an answer": lambda env, task: [viewer.write_gold_look(env, task), viewer.write_answer(env, task)],
    "two calls in a reply": lambda env, task: [f"{ZOOM}\n{ZOOM}", viewer.write_answer(env, task)],
    "words, a refused call, all turns": lambda env, task: ["hm", ZOOM.replace("zoom", "zoon"), ZOOM, "no"],
}


def play_script(play, kit, env, script):
    def reply(conversation):
        replies = SCRIPTS[script](env, conversation.task)
        return replies[sum(message.role == "assistant" for message in conversation.messages)]

    return play(env, [env.tasks[i] for i in range(4)], ScriptedGenerator(kit.tokens, reply))


@pytest.mark.parametrize(
    ("script", "boundary"), [*((script, True) for script in SCRIPTS), ("two calls in a reply", False)]
)
def test_an_episode_without_its_tokens_gets_the_same_ones_again(kit, play, script, boundary):
    env = Digits(max_turns=4, boundary=boundary)
    for episode in play_script(play, kit, env, script):
        found = tokenize_episode(replace(episode, tokens=None), env, kit.tokens)
        assert found == episode.tokens


def get_runs(tokens, bit):
    """The stretches of tokens of one side, in order."""
    runs, last = [], None
    for token, mask in zip(tokens.completion_ids, tokens.mask, strict=True):
        if mask == bit:
            if last != bit:
                runs.append([])
            runs[-1].append(token)
        last = mask
    return runs


def test_the_masks_are_those_of_the_engines_own_episodes(kit, play):
    """A random model's ids are not those a tokenizer makes of its text; everything around its replies is the same."""
    generator = HFGenerator(kit.model(), kit.tokens, Settings(slots=4, max_reply_tokens=12, max_completion_tokens=2000))
    for episode in play(ENV, [ENV.tasks[i] for i in range(4)], generator):
        found = tokenize_episode(replace(episode, tokens=None), ENV, kit.tokens)
        assert found.prompt_ids == episode.tokens.prompt_ids
        replies = [turn.content for turn in episode.turns if turn.role == "assistant"]
        # a control token that it sampled is text in the record, and text is no control token
        assert [kit.tokens.decode(run).replace("< |", "<|") for run in get_runs(found, 1)] == replies
        end = kit.tokens.end_id  # the environment's side writes it after a reply that was cut off
        theirs = [run[1:] if run[0] == end else run for run in get_runs(episode.tokens, 0)]
        assert get_runs(found, 0) == theirs
        assert all(run[-1] == end for run in get_runs(found, 1))
        assert found.images == episode.tokens.images


def test_native_calls_are_written_as_the_prompt_teaches_them(qwen3, play):
    """A reply with native calls, as an endpoint gives it, has the tokens of the same reply as text."""
    task = ENV.tasks[0]
    written = json.loads(viewer.write_gold_look(ENV, task).split("\n")[1])
    call = ToolCall("c1", "zoom", json.dumps(written["arguments"]))
    replies = iter([Reply("", tool_calls=(call,)), Reply(viewer.write_answer(ENV, task))])
    native = ENV.play(task, lambda messages: next(replies))
    (text,) = play_script(play, qwen3, ENV, "a zoom and an answer")[:1]
    found = tokenize_episode(native, ENV, qwen3.tokens)
    assert get_runs(found, 1) == get_runs(text.tokens, 1)
    assert len(get_runs(found, 0)) == len(get_runs(text.tokens, 0)) == 1
    assert found.images == text.tokens.images


def test_an_episode_of_another_prompt_is_refused(qwen3, play):
    (episode, *_) = play_script(play, qwen3, ENV, "an answer")
    with pytest.raises(StoreError, match="played with another system prompt than digits has now"):
        tokenize_episode(episode, Digits(max_turns=4, coordinates="pixel"), qwen3.tokens)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([Message("user", ("?",))], "no message of the assistant"),
        ([Message("assistant", ("!",))], "begins with the assistant"),
        ([Message("user", ("?",)), Message("assistant", ("a " * 500,))], "longer than 100 tokens"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(qwen3, messages, words):
    with pytest.raises(StoreError, match=words):
        tokenize_conversation(messages, qwen3.tokens, max_completion_tokens=100)


def test_control_tokens_in_a_reply_do_not_end_it(qwen3):
    end = qwen3.tokenizer.decode([qwen3.tokens.end_id])
    messages = [Message("user", ("?",)), Message("assistant", (f"a{end}b",))]
    found = tokenize_conversation(messages, qwen3.tokens)
    assert found.completion_ids.count(qwen3.tokens.end_id) == 1
    assert found.mask == (1,) * len(found.mask)


# ---------------------------------------------------------------------- transcripts
def read(path, env=ENV):
    left_out = Counter()
    found = list(read_transcripts(path, max_pixels=env.max_pixels, multiple=env.pixel_multiple, left_out=left_out))
    return found, left_out.total()


def test_a_transcript_of_an_episode_has_the_tokens_of_the_episode(qwen3, play, tmp_path):
    episodes = play_script(play, qwen3, ENV, "a zoom and an answer")
    lines = [
        {"messages": to_openai_messages(rebuild_messages(episode, ENV)), "tools": [*ENV.tool_schemas]}
        for episode in episodes
    ]
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(line, default=dict) + "\n" for line in lines))
    transcripts, skipped = read(path)
    assert (len(transcripts), skipped) == (4, 0)
    for transcript, episode in zip(transcripts, episodes, strict=True):
        found = tokenize_conversation(transcript.messages, qwen3.tokens, tools=transcript.tools)
        assert found.mask == episode.tokens.mask
        assert found.completion_ids == episode.tokens.completion_ids
        assert [image.width for image in found.images] == [image.width for image in episode.tokens.images]


def test_an_image_may_be_a_file_beside_the_transcripts_but_no_other(tmp_path, caplog):
    Image.new("RGB", (40, 30), "red").save(tmp_path / "red.png")
    (tmp_path / "inner").mkdir()
    path = tmp_path / "inner" / "chats.jsonl"
    Image.new("RGB", (40, 30), "red").save(tmp_path / "inner" / "red.png")

    def write(image):
        user = {"role": "user", "content": [image, {"type": "text", "text": "Color?"}]}
        return json.dumps({"messages": [user, {"role": "assistant", "content": "red"}]})

    by_url = {"type": "image_url", "image_url": {"url": "red.png"}}
    outside = {"type": "image", "image": "../red.png"}
    path.write_text("\n".join([write(by_url), write({"type": "image", "image": "red.png"}), write(outside), "{}"]))
    transcripts, skipped = read(path)
    assert [transcript.line for transcript in transcripts] == [1, 2]
    assert transcripts[0].messages == transcripts[1].messages
    assert transcripts[0].messages[0].images[0].open().getpixel((0, 0))[0] > 200
    assert skipped == 2
    assert "line 3: left out: " in caplog.text
    assert 'line 4: left out: allowed: an object with a list of "messages"' in caplog.text
