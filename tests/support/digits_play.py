"""Digits played in the driver: the environment, its tasks, a generator of text, and a plain policy."""

import asyncio

from viewbox.envs.digits import Digits, viewer
from viewbox.records import Reply, RunConfig

ENV = Digits()
ANSWER = viewer.write_answer(ENV, ENV.tasks[0])
LOOK = '<tool_call>{"name": "zoom", "arguments": {"factor": 2}}</tool_call>'


class Says:
    """A generator of text alone: `reply_to(conversation)` is the reply, an exception to raise, or seconds to sleep."""

    def __init__(self, reply_to=lambda conversation: viewer.write_answer(ENV, conversation.task)):
        self.reply_to, self.run_config = reply_to, RunConfig("says", temperature=0.5, max_tokens=99)
        self.inside, self.most, self.joined = 0, 0, 0

    def join(self, conversation):
        self.inside, self.joined = self.inside + 1, self.joined + 1
        self.most = max(self.most, self.inside)

    def leave(self, conversation):
        self.inside -= 1

    async def reply(self, conversation):
        await asyncio.sleep(0)
        said = self.reply_to(conversation)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, float):
            await asyncio.sleep(said)
        return Reply(str(said))

    async def close(self): ...


def tasks(count):
    return [ENV.tasks[i] for i in range(count)]


def script(messages):
    """Looks once, then answers; a plain function of the messages."""
    return LOOK if len(messages) == 2 else ANSWER
