"""Plays episodes over HTTP against `transformers serve`, with the shipped tiny model.

    python benchmarks/transformers_serve.py [EPISODES [CONCURRENCY]]    (default 200 16; the last line is a JSON object)

The server is a process of its own on 127.0.0.1. What is played is the held-out task set of the quickstart, as
`viewbox rollout --endpoint` does it, with 300 seconds for each episode. Bar: every episode is stored and ends by itself
(`answered`, `max_turns`, `malformed`); exit code 1 if one ends as `error` or `timeout`, or is missing.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from viewbox.assets import resolve_model_path
from viewbox.rollouts.store.reader import load

FINE = {"answered", "max_turns", "malformed"}


@contextmanager
def serve(folder: Path):
    """The address of `transformers serve`, which loads a model when it is first asked for it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(sys.executable).with_name("transformers")
    command = [script, "serve", "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"HF_HUB_OFFLINE": "1"})
        try:
            wait_for_health(port, server, folder / "server.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(20)


def wait_for_health(port: int, server: "subprocess.Popen[bytes]", log: Path, seconds: float = 300) -> None:
    """Return when the server answers; raise `RuntimeError` if it ends or does not answer in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise RuntimeError(f"transformers serve does not answer:\n{log.read_text()[-2000:]}")


def play(url: str, folder: Path, episodes: int, concurrency: int) -> dict[str, object]:
    """Return the figures of one rollout."""
    command = [
        sys.executable,
        "-m",
        "viewbox",
        "rollout",
        "--config",
        "quickstart",
        "--held-out",
        "--endpoint",
        url,
    ]
    command += ["--model", resolve_model_path("package:tiny_viewer"), "--tasks", str(episodes), "--out", folder / "run"]
    command += ["--concurrency", str(concurrency), "endpoint.tool_images=tool", "rollout.timeout=300"]
    began = time.perf_counter()
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"viewbox rollout ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    played = list(load(folder / "run" / "episodes"))
    ends = Counter(episode.end_reason for episode in played)
    rewards = [one.scores.total for one in played if one.scores is not None and one.scores.total is not None]
    return {
        "episodes": len(played),
        "ends": dict(ends),
        "replies": sum(episode.num_turns for episode in played),
        "failed_attempts": sum(int(episode.info.get("failed_attempts", 0)) for episode in played),
        "mean_reward": round(sum(rewards) / len(rewards), 3) if rewards else None,
        "seconds": round(seconds, 1),
        "met": len(played) == episodes and set(ends) <= FINE,
    }


def main(episodes: int = 200, concurrency: int = 16) -> int:
    """Print the figures; 1 if an episode is missing or did not end by itself."""
    with tempfile.TemporaryDirectory() as name, serve(Path(name)) as url:
        figures = play(url, Path(name), episodes, concurrency)
    for key, value in figures.items():
        print(f"{key}: {value}")
    print(json.dumps(figures))
    return 0 if figures["met"] else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
