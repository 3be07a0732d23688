"""Policies that need no model: for tests, documentation and dry runs of an environment."""

from collections.abc import Sequence

from viewbox.envs.state import Reply
from viewbox.records import Message


class ScriptedPolicy:
    """Says its replies in order, in every episode it plays: which comes next is read off the messages.

    Holds no state, so one policy plays any number of episodes at once; raises `IndexError` where an episode goes on
    beyond its last reply.

    >>> policy = ScriptedPolicy(["first", "second"])
    >>> policy([Message("system", ("…",)), Message("user", ("?",)), Message("assistant", ("first",))])
    Reply(text='second', tool_calls=(), finish_reason='stop')
    """

    def __init__(self, replies: Sequence[Reply | str]) -> None:
        self.replies = tuple(Reply(one) if isinstance(one, str) else one for one in replies)

    def __call__(self, messages: Sequence[Message]) -> Reply:
        said = sum(message.role == "assistant" for message in messages)
        if said >= len(self.replies):
            raise IndexError(f"the script has {len(self.replies)} replies; the episode asks for number {said + 1}")
        return self.replies[said]
