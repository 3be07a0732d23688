"""One of some processes that train on one server: what each of them played, and with which weights."""

import json
from pathlib import Path

from viewbox.engines.vllm import weights as sender
from viewbox.rollouts import play as playing
from viewbox.training import command as train
from viewbox.training.grpo import player
from viewbox.training.grpo.player import BatchPlayer


def main(argv):
    """`argv`: a file for what this process found, seconds that the server may be away, the arguments of `train`.

    The seed of an episode is its number alone. In real runs it also depends on which process plays it, so that the
    episodes of two processes are not those of one.
    """
    player.sample_seed = lambda seed, first: first
    playing.sample_seed = lambda seed, index: seed + index
    out, wait, *arguments = argv
    sender.WeightSender.__init__.__kwdefaults__["wait"] = float(wait)
    batches, play, served = [], BatchPlayer.play, []
    send = sender.WeightSender.send
    sender.WeightSender.send = lambda *given: served.append(send(*given)) or served[-1]

    def record(self, *given):
        episodes = play(self, *given)
        played = [(e.info["number"], e.task.id, e.tokens.completion_ids, e.end_reason) for e in episodes]
        sent = {"version": served[-1].version, "sent": self.weights.num_sent}
        batches.append({"played": played, **sent})
        return episodes

    BatchPlayer.play = record
    try:
        return train.main(arguments)
    finally:
        Path(out).write_text(json.dumps(batches))
