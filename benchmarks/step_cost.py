"""What a GRPO step with LoRA costs, before and now: decoding, pictures, and the update with gradient checkpointing.

    python benchmarks/step_cost.py [--before COMMIT] [--rounds 1]      (minutes; the last line is one JSON object)

Operations, pictures, bytes and floating-point operations are counted, so they do not vary; seconds do. Each side is a
process of its own, and the sides take turns. The default commit comes before pixels were prepared once, prompts were
shared under gradient checkpointing, and adapters were merged for generation.

- `decode`: operations of a decode step (`decode_operations.py`; its "before" is a switch, not the earlier commit).
- `pictures`: pictures prepared in a step, and the bytes of pixels that the loss holds (`picture_cost.py`).
- `update`: floating-point operations and peak memory of the loss and its backward pass (`update_cost.py`). "before" has
  adapters on all linear layers, "now" on the language layers only, as the shipped configs had and have;
  "before, language layers" is the earlier commit with the adapters of today.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from grpo_step import REPOSITORY, extract_commit

BEFORE = "a98521b"
LANGUAGE_LAYERS = ".*language_model.*_proj"
MEMORY_BAR, FLOPS_BAR = 0.5, 0.7  # now / before


def run_side(script: str, package: Path, *arguments: str) -> dict[str, Any]:
    """Return the figures on the last line of a script that imports viewbox from the folder `package`."""
    command = [sys.executable, str(REPOSITORY / "benchmarks" / script), *arguments]
    environment = os.environ | {"PYTHONPATH": str(package)}
    done = subprocess.run(command, env=environment, text=True, capture_output=True)
    if done.returncode:
        raise SystemExit(f"{script}: exit status {done.returncode}\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(before: Path, now: Path, rounds: int) -> dict[str, Any]:
    """Return the figures of every part, by side."""
    sides = {
        "pictures": {"before": ("picture_cost.py", before), "now": ("picture_cost.py", now)},
        "update": {
            "before": ("update_cost.py", before, "all-linear"),
            "before, language layers": ("update_cost.py", before, LANGUAGE_LAYERS),
            "now": ("update_cost.py", now, LANGUAGE_LAYERS),
        },
    }
    figures: dict[str, Any] = {"decode": run_side("decode_operations.py", now)}
    print("decode", json.dumps(figures["decode"]), flush=True)
    for part, commands in sides.items():
        runs: dict[str, list[dict[str, Any]]] = {side: [] for side in commands}
        for _ in range(rounds):
            for side, command in commands.items():
                runs[side].append(run_side(*command))
                print(part, side, json.dumps(runs[side][-1]), flush=True)
        figures[part] = {side: min(found, key=lambda one: one.get("seconds", 0)) for side, found in runs.items()}
    return figures


def judge(figures: dict[str, Any]) -> dict[str, Any]:
    """Return the ratios that have a bar, and the names of those that miss it."""
    pictures, update = figures["pictures"], figures["update"]
    ratios = {
        "decode_operations": figures["decode"]["ratio"],
        "pictures_prepared": pictures["now"]["prepared"] / pictures["now"]["distinct"],
        "pixel_bytes": pictures["now"]["bytes"] / pictures["before"]["bytes"],
        "update_memory": update["now"]["peak_bytes"] / update["before"]["peak_bytes"],
        "update_flops": update["now"]["flops"] / update["before"]["flops"],
    }
    bars = {"pictures_prepared": 1, "update_memory": MEMORY_BAR, "update_flops": FLOPS_BAR}
    bars["decode_operations"] = figures["decode"]["bar"]
    return {"ratios": ratios, "bars": bars, "missed": [name for name, bar in bars.items() if ratios[name] > bar]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", default=BEFORE, help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each side, in turns; only seconds vary")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        now = Path(folder) / "now"
        now.mkdir()
        (now / "viewbox").symlink_to(REPOSITORY)
        figures = measure(extract_commit(given.before, Path(folder)), now, given.rounds)
    verdict = judge(figures)
    print(json.dumps(verdict | figures | {"commit": given.before}))
    sys.exit(bool(verdict["missed"]))


if __name__ == "__main__":
    main()
