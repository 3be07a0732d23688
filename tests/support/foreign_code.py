"""Code of strangers for the table of cases: environments, tools, metrics and rewards, which may end the process."""

import argparse
import itertools
import sys
from collections import defaultdict
from types import MappingProxyType

import numpy as np
import torch
from pydantic import BaseModel, field_validator

from viewbox.envs.digits import Digits
from viewbox.records import Reply, Task

reads = itertools.count()


class Leaves(Digits):
    """Ends the process in every second episode, at `moment`."""

    name = "leaves"
    moment: str = ""

    def leave(self, moment, seed):
        if self.moment == moment and seed % 2:
            sys.exit(3)

    def reset(self, task, *, seed=0):
        self.leave("reset", seed)
        return super().reset(task, seed=seed)

    async def step(self, state, reply):
        self.leave("step", state.seed)
        return await super().step(state, reply)

    def validate_answer(self, answer, task):
        if self.moment == "answer":
            sys.exit(3)


class Label(BaseModel):
    """Ends the process at every second answer that it reads."""

    label: str
    bbox: tuple[float, float, float, float]

    @field_validator("label")
    @classmethod
    def check(cls, label):
        if next(reads) % 2:
            sys.exit(3)
        return label


class HasParser(Digits):
    """Reads answers with a model that ends the process."""

    name = "has_parser"
    answer = Label


def leave(query: str):
    """Leave.

    Args:
        query: whatever.
    """
    sys.exit(3)


class HasToolAndMetric(Digits):
    """Has a metric that ends the process, and calls a tool that does in every second episode."""

    name = "has_tool_and_metric"
    tools = ("zoom", leave)
    metrics = MappingProxyType({"own": lambda pairs: sys.exit(3)})

    async def step(self, state, reply):
        if state.seed % 2 and state.turn == 0:
            reply = Reply('<tool_call>{"name": "leave", "arguments": {"query": "x"}}</tool_call>')
        return await super().step(state, reply)


def measure(query: str):
    """Measure.

    Args:
        query: whatever.
    """
    return {"mean": np.float32(0.5), "count": np.int64(3), "dark": np.bool_(True), "values": np.array([1.5, 2.5])}


class Measures(Digits):
    """Calls a tool that returns numbers of numpy; tasks and metrics hold such numbers, too."""

    name = "measures"
    tools = ("zoom", measure)
    metrics = MappingProxyType({"own": lambda pairs: {"own": np.float32(0.5), "count": np.int64(len(pairs))}})

    def make_drawn(self, seed):
        task = super().make_drawn(seed)
        box = tuple(np.float32(value) for value in task.reference["bbox"])
        metadata = {**task.metadata, "image": np.int64(task.metadata["image"])}
        return Task(task.id, reference={**task.reference, "bbox": box}, metadata=metadata)

    async def step(self, state, reply):
        if state.turn == 0:
            reply = Reply('<tool_call>{"name": "measure", "arguments": {"query": "x"}}</tool_call>')
        return await super().step(state, reply)


class Refuses(Digits):
    """Ends the process when it is made."""

    name = "refuses"

    def __init__(self, **settings):
        sys.exit(3)


# ---------------------------------------------------------------------- rewards
calls = defaultdict(itertools.count)
RETURNED = {  # the name of a reward, and what it returns
    "truth": np.bool_(True), "scalar": np.array(0.5), "one": np.float64(0.5), "whole": np.int64(1),
    "tensor": torch.tensor(0.5), "half": torch.tensor(0.5, dtype=torch.bfloat16), "single": torch.tensor([0.5]),
    "equal": torch.tensor(1) == torch.tensor(1), "gradient": torch.tensor(0.5, requires_grad=True), "nothing": None,
    "lost": np.float32("nan"),
}  # fmt: skip
globals().update({name: lambda answer, reference, value=value: value for name, value in RETURNED.items()})


def leaves(answer, reference):
    raise SystemExit(3)


def leaves_well(answer, reference):
    sys.exit()


def leaves_at_times(answer, reference):
    if next(calls["leaves_at_times"]) % 2:
        sys.exit("no such file")
    return float(reference["label"] == (answer or {}).get("label"))


def parses(answer, reference):
    if next(calls["parses"]) % 2:
        argparse.ArgumentParser().parse_args(["--unknown"])
    return 0.5


def raises_its_own(answer, reference):
    class Stop(BaseException):
        pass

    if next(calls["raises_its_own"]) % 2:
        raise Stop("enough")
    return 0.5
