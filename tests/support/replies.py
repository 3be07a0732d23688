"""What a scripted model says in an episode, and what its tools answered."""

import json

from viewbox.engines.scripted import ScriptedPolicy


def call(tool, /, **arguments):
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': arguments})}</tool_call>"


def play(env, task, *replies, seed=0):
    return env.play(task, ScriptedPolicy(replies), seed=seed)


def play_gold(env, task):
    return play(env, task, *env.oracle(task), env.write_answer(task))


def list_results(episode):
    return [result for turn in episode.turns for result in turn.tool_results]
