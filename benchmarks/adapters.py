"""Measures what a turn costs in each adapter, with a model that answers at once.

    python benchmarks/adapters.py [EPISODES [ROUNDS]]    (default 40 5; the last line is a JSON object)

Each adapter plays EPISODES episodes of `digits` one after the other: a zoom, and then the right answer. A figure is the
time of all episodes divided by the number of turns. It holds the environment's own work (a view of 48 x 48 pixels,
parsing, the score), and what the framework does around it:

- driver: viewbox's own, with a function as the model
- gymnasium: `reset` and `step`
- trl: the rollouts of TRL's own loop (`reset`, a call, the reward), without tokens
- openenv: client and server over a WebSocket on 127.0.0.1
- verifiers: the agent's span of `vf-eval`'s traces, with an endpoint on 127.0.0.1 that answers at once
- inspect_ai: `eval` with its log, less an `eval` of one task; the model is its mockllm

Each adapter runs ROUNDS times; the median and the lowest are printed. One whose framework is not installed is left out.
Bar: verifiers at most 15 ms; exit code 1 if missed.
"""

import asyncio
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.everywhere import PACKAGE, SCRIPTS, Case, serve_app
from viewbox.envs.digits import Digits
from viewbox.records import Message
from viewbox.rollouts.play import play_many

BAR_MS = 15.0  # of a turn in verifiers
TURNS = 2
SCRIPT = "looks, then answers right"


def build_case(episodes: int) -> Case:
    """EPISODES tasks with the same script: a zoom, and the right answer."""
    assert SCRIPT in SCRIPTS
    return Case([SCRIPT] * episodes)


def check_totals(totals: list[Any]) -> None:
    """Raise unless every episode was answered right: what was timed would be something else."""
    if not totals or min(totals) < 0.9:
        raise RuntimeError(f"an episode was not answered right: {totals}")


def time_driver(case: Case) -> float:
    numbers = {case.env.reset(one, seed=0).messages[1].images[0].hash: n for n, one in enumerate(case.env.tasks)}

    def policy(messages: list[Message]) -> str:
        number = numbers[messages[1].images[0].hash]
        return case.replies[number][sum(one.role == "assistant" for one in messages)][0]

    async def play() -> list[Any]:
        return [one.scores.total async for one in play_many(case.env, case.env.tasks, policy, concurrency=1)]

    began = time.perf_counter()
    check_totals(asyncio.run(play()))
    return time.perf_counter() - began


def time_gymnasium(case: Case) -> float:
    import gymnasium

    env = gymnasium.make("viewbox.integrations.gymnasium:viewbox/digits-v0", **case.settings)
    began, totals = time.perf_counter(), []
    for number, replies in enumerate(case.replies):
        env.reset(options={"task": number})
        for text, _ in replies[:TURNS]:
            _, reward, *_ = env.step(text)
        totals.append(reward)
    check_totals(totals)
    return time.perf_counter() - began


def time_trl(case: Case) -> float:
    from viewbox.integrations.trl_rollouts import TRLRollouts

    owner = TRLRollouts(Digits(**case.settings, max_malformed=1))
    rollout = owner.make_rollout()
    looks = [json.loads(replies[0][0].split("\n")[1])["arguments"] for replies in case.replies]

    async def play() -> list[Any]:
        totals: list[Any] = []
        for number, replies in enumerate(case.replies):
            rollout.reset(task=number)
            await asyncio.gather(rollout.zoom(**looks[number]))
            said = [{"role": "assistant", "content": ""}, {"role": "assistant", "content": replies[1][0]}]
            totals += await asyncio.to_thread(owner.compute_rewards, [said], [rollout])
        return totals

    began = time.perf_counter()
    check_totals(asyncio.run(play()))
    return time.perf_counter() - began


def time_openenv(case: Case) -> float:
    from viewbox.integrations.openenv import ViewboxClient, build_app

    totals = []
    with serve_app(build_app("digits", case.settings)) as url, ViewboxClient(url).sync() as client:
        client.reset(task=0)
        began = time.perf_counter()
        for number, replies in enumerate(case.replies):
            client.reset(task=number)
            for text, _ in replies[:TURNS]:
                result = client.step(text)
            totals.append(result.reward)
        seconds = time.perf_counter() - began
    check_totals(totals)
    return seconds


def time_verifiers(case: Case) -> float:
    from tests.support.verifiers_command import run_command

    with tempfile.TemporaryDirectory() as folder, case.serve() as server, redirect_stdout(io.StringIO()):
        out = Path(folder)
        (out / "viewbox_timed").mkdir()
        (out / "viewbox_timed" / "__init__.py").write_text(
            PACKAGE.format(environment=case.environment, settings=case.settings)
        )
        given = ["viewbox-timed", "--model", "scripted", "--client.base-url", server.url, "--no-push", "--no-rich"]
        given += ["-n", len(case.names), "-c", 1, "-o", out / "out"]
        run_command("vf-eval", *given, path=out, cwd=out)
        sys.modules.pop("viewbox_timed", None)
        (saved,) = (out / "out").rglob("traces.jsonl")
        traces = [trace for line in saved.read_text().splitlines() for trace in json.loads(line)["traces"]]
    check_totals([trace["rewards"]["total"]["score"] for trace in traces])
    return sum(trace["timing"]["agent"]["end"] - trace["timing"]["agent"]["start"] for trace in traces)


def time_inspect_ai(case: Case) -> float:
    whole, first = (evaluate_with_inspect(case, limit) for limit in (len(case.names), 1))
    return (whole - first) * len(case.names) / (len(case.names) - 1)


def evaluate_with_inspect(case: Case, limit: int) -> float:
    from inspect_ai import eval as evaluate
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    from viewbox.integrations.inspect_ai import build_task

    urls = [case.env.reset(one, seed=0).messages[1].images[0].to_data_url() for one in case.env.tasks]
    numbers = {url: number for number, url in enumerate(urls)}

    def answer(messages: Any, tools: Any, choice: Any, config: Any) -> Any:
        replies = case.replies[numbers[messages[1].content[0].image]]
        output = ModelOutput.from_content("mockllm", replies[sum(one.role == "assistant" for one in messages)][0])
        output.usage = ModelUsage()
        return output

    model = get_model("mockllm/model", custom_outputs=answer, memoize=False)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        task = build_task("digits", case.settings, limit=limit)
        (log,) = evaluate(task, model=model, log_dir=folder, display="none", max_samples=1, log_level="error")
        seconds = time.perf_counter() - began
        check_totals([sample.scores["reward"].value for sample in log.samples or ()])
    return seconds


TIMED: dict[str, Callable[[Case], float]] = {
    "driver": time_driver,
    "gymnasium": time_gymnasium,
    "trl": time_trl,
    "openenv": time_openenv,
    "verifiers": time_verifiers,
    "inspect_ai": time_inspect_ai,
}


def measure(episodes: int, rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds a turn of each adapter: the median of the rounds, and the lowest."""
    case = build_case(episodes)
    rows = {}
    for name, run in TIMED.items():
        if name not in ("driver", "trl") and find_spec(name) is None:
            continue
        run(case)  # imports and caches
        each = [1000 * run(case) / (episodes * TURNS) for _ in range(rounds)]
        rows[name] = {"median_ms": round(median(each), 3), "lowest_ms": round(min(each), 3)}
        print(f"{name:12} {rows[name]['median_ms']:8.2f} ms a turn (lowest {rows[name]['lowest_ms']:.2f})", flush=True)
    return rows


def main(episodes: int = 40, rounds: int = 5) -> int:
    """Print the table; 1 if verifiers misses its bar."""
    rows = measure(episodes, rounds)
    met = "verifiers" not in rows or rows["verifiers"]["median_ms"] <= BAR_MS
    print(
        json.dumps({"episodes": episodes, "rounds": rounds, "turns": TURNS, "rows": rows, "bar_ms": BAR_MS, "met": met})
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
