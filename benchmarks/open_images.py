"""Times `open_image`: pictures a second on one and on four threads, and the first one of a process.

    python benchmarks/open_images.py [SECONDS]

Pictures are smooth with a little noise, as photographs and scans are: gray and RGB PNGs of about 64 KB, one of 6 KB, a
JPEG, a 16-bit PNG of 6 MB, and a DICOM slice. Each row is opened for SECONDS (default 2). The processor time of one
picture counts this process and its workers. `peak_gib` is the most that both hold together, above their start, while
eight threads open RGBA pictures of 64 million pixels. The last line is one JSON object.
"""

import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import Image

THREADS = (1, 4)
FIRST = "import time; t = time.time(); import viewbox; viewbox.open_image({!r}); print(time.time() - t)"
RANDOM = np.random.default_rng(0)


def encode(pixels: np.ndarray, kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def draw(side: int) -> np.ndarray:
    """Return a smooth gray picture with noise."""
    smooth = Image.fromarray(RANDOM.integers(0, 200, (8, 8), dtype=np.uint8)).resize(
        (side, side), Image.Resampling.BICUBIC
    )
    return np.asarray(smooth) + RANDOM.integers(0, 8, (side, side), dtype=np.uint8)


def write_files(folder: Path) -> dict[str, Path]:
    """Return one file a row, by its name."""
    from pydicom.data import get_testdata_file

    deep = draw(2048).astype(np.uint16) * 16 + RANDOM.integers(0, 16, (2048, 2048), dtype=np.uint16)
    rows = {
        "PNG, gray, 64 KB": encode(draw(370), "PNG"),
        "PNG, RGB, 64 KB": encode(
            np.stack([draw(210)] * 3, axis=2) ^ RANDOM.integers(0, 2, (210, 210, 3), np.uint8), "PNG"
        ),
        "PNG, gray, 6 KB": encode(draw(112), "PNG"),
        "JPEG, 64 KB": encode(draw(480), "JPEG"),
        "PNG, 16 bits, 6 MB": encode(deep, "PNG"),
        "DICOM, 39 KB": Path(str(get_testdata_file("CT_small.dcm", download=False))).read_bytes(),
    }
    for name, content in rows.items():
        (folder / name.replace(" ", "_")).write_bytes(content)
    return {name: folder / name.replace(" ", "_") for name in rows}


def count_opened(path: Path, threads: int, seconds: float) -> tuple[float, float]:
    """(pictures a second, milliseconds of processor time of this process a picture)."""
    from viewbox.images.files import open_image

    counts = [0] * threads
    end = time.perf_counter() + seconds

    def work(number: int) -> None:
        while time.perf_counter() < end:
            open_image(path)
            counts[number] += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    cpu, start = get_cpu_time(), time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - start), (get_cpu_time() - cpu) / sum(counts) * 1000


def list_processes() -> list[int]:
    """Return this process and its children."""
    found = [os.getpid()]
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread that has ended
            found += map(int, (task / "children").read_text().split())
    return found


def get_cpu_time() -> float:
    """Processor seconds of this process and of its children."""
    total = 0
    for process in list_processes():
        with suppress(OSError):  # it has ended
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def get_memory() -> int:
    """Bytes that this process and its children hold, shared ones counted once each."""
    total = 0
    for process in list_processes():
        with suppress(OSError, IndexError):  # it has ended
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return total * os.sysconf("SC_PAGE_SIZE")


def measure_peak(threads: int = 8, side: int = 8000) -> float:
    """GiB that are held above the start while as many threads open one-colored RGBA pictures."""
    from viewbox.images.files import open_image

    content = encode(np.zeros((side, side, 4), np.uint8), "PNG")
    before, peak = get_memory(), 0
    workers = [threading.Thread(target=open_image, args=(content,)) for _ in range(threads)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        peak = max(peak, get_memory())
        time.sleep(0.01)
    return (peak - before) / 2**30


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(Path(folder))
        for name, path in files.items():
            for threads in THREADS:
                count_opened(path, threads, seconds / 4)
                rate, cpu = count_opened(path, threads, seconds)
                found[f"{name}, {threads} threads"] = {"per_second": round(rate, 1), "cpu_ms": round(cpu, 3)}
                print(f"{name:18} {threads} threads  {rate:8.1f}/s  {cpu:8.3f} ms of processor time each")
        code = FIRST.format(str(files["PNG, gray, 64 KB"]))
        first = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(3)]
        found["first_seconds"] = round(min(first), 3)
        found["peak_gib"] = round(measure_peak(), 2)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
