"""Times a large dataset of tasks: a Parquet file of a million rows with image bytes.

    python benchmarks/tasks.py [--rows 1000000] [--streaming]

The file is written to a temporary folder (some 150 MB on disk, and its copy as Arrow if it is large) and deleted
afterwards. A fresh process then opens it. The last line is one JSON object: seconds to the first task with its image
open, megabytes over the process before it (peak), tasks read per second in random order, and tasks opened with their
images per second: by the clock, and by the processor time of all processes (decoding runs in processes of its own).
"""

import argparse
import io
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

READ, OPENED, PICTURES, BLOCK, SIDE = 20_000, 4_000, 256, 50_000, 12
COLUMNS = {"id": "id", "image": "image", "question": "question"}


def write_rows(path: Path, count: int) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    pictures = [encode(number) for number in range(PICTURES)]
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            ("question", pa.string()),
        ]
    )
    with parquet.ParquetWriter(path, schema) as writer:
        for first in range(0, count, BLOCK):
            numbers = range(first, min(first + BLOCK, count))
            # bytes after the end of a PNG are not read: every picture is another one
            images = [{"bytes": pictures[n % PICTURES] + n.to_bytes(8, "big"), "path": None} for n in numbers]
            table = {
                "id": [f"task-{n}" for n in numbers],
                "image": images,
                "question": [f"What is {n}?" for n in numbers],
            }
            writer.write_table(pa.table(table, schema=schema))


def encode(number: int) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 255, (SIDE, SIDE), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def measure(path: str, streaming: bool) -> dict[str, float]:
    from viewbox.envs.data import DataEnv

    class Many(DataEnv):
        name = "many"

        def default_reward(self):
            return lambda answer, reference: 1.0

    env = Many(data={"source": path, "columns": COLUMNS, "streaming": streaming})
    before = get_rss()
    started = time.perf_counter()
    env.reset(env.tasks[0], seed=0)
    first = time.perf_counter() - started
    numbers = random.Random(0).sample(range(len(env.tasks)), min(READ, len(env.tasks)))
    if streaming:  # in order: another order reads a row group for every task
        numbers = list(range(len(numbers)))
    started = time.perf_counter()
    tasks = [env.tasks[number] for number in numbers]
    read = len(tasks) / (time.perf_counter() - started)
    env.images(tasks[0])[0]
    tasks = tasks[:OPENED]
    started, spent = time.perf_counter(), get_processor_seconds()
    for task in tasks:
        env.images(task)[0]
    opened = len(tasks) / (time.perf_counter() - started)
    processor = len(tasks) / (get_processor_seconds() - spent)
    return {
        "rows": len(env.tasks),
        "first_task_s": first,
        "peak_mb": get_peak() - before,
        "read_per_s": read,
        "opened_per_s": opened,
        "opened_per_processor_s": processor,
    }


def get_rss() -> float:
    """Megabytes of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def get_peak() -> float:
    """Return the most megabytes this process had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def get_processor_seconds() -> float:
    """Seconds of processor time of this process and of its children that still run."""
    total = time.process_time()
    ticks = os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            total += (int(fields[11]) + int(fields[12])) / ticks
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description="Times a dataset of a million tasks.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--streaming", action="store_true")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.streaming)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tasks.parquet"
        write_rows(path, options.rows)
        command = [sys.executable, __file__, "--measure", str(path), *(["--streaming"] if options.streaming else [])]
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
        result = json.loads(found.stdout.splitlines()[-1])
        print(json.dumps({**result, "file_mb": path.stat().st_size / 1e6}))


if __name__ == "__main__":
    main()
