"""The processes that decode: what a hostile file costs others, and that they never stay behind."""

import functools
import gc
import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, ImageOps

from tests.attacks.files import makers
from tests.support.tables import each
from tests.support.waiting import wait_until, wait_until_gone
from viewbox.errors import ImageError
from viewbox.images import limits
from viewbox.images.files import open_image, open_picture, paths, pool
from viewbox.images.files.pool import Budget
from viewbox.images.source import Source

GOOD = makers.saved(makers.COLOR, "PNG")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc, and limits that the kernel keeps")
PARENT = str(Path(pool.__file__).resolve().parents[3])


def make_endless():
    """A DICOM file on which pydicom 3.0 loops for ever: the boxes are looked at before the fragments are joined."""
    part = makers.boxes(0)
    return makers.raw_dicom(syntax=makers.JPEG_2000, pixels=makers.fragments(part[:14], part[14:]))


def run_at_once(*functions):
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


@pytest.fixture
def own_pool(monkeypatch):
    """A pool that no other test has used."""
    made = pool.Pool()
    monkeypatch.setattr(pool, "_pool", made)
    yield made
    made.end()


def open_good(pool):
    """Open a good file; the one worker of the pool has decoded it."""
    assert open_image(GOOD).size == (17, 12)
    (worker,) = pool._all
    return worker.process


# ---- time
def test_a_file_that_takes_for_ever_ends_at_its_limit_and_the_next_one_opens(monkeypatch, own_pool):
    monkeypatch.setattr(limits, "CPU_SECONDS", 0.3)
    monkeypatch.setattr(limits, "WAIT", 200)  # on a busy machine, 0.3 s of the processor may take many seconds
    with pytest.raises(ImageError, match=r"image \(\d+ bytes\): it takes more than 0\.3 s of processor time to decode"):
        open_image(make_endless())
    assert own_pool._all == set()
    open_good(own_pool)


def test_a_file_that_hangs_without_working_ends_by_the_clock(monkeypatch, own_pool):
    process = open_good(own_pool)
    monkeypatch.setattr(limits, "CPU_SECONDS", 0.2)
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(ImageError, match=r"it is not decoded after 1\.2 s"):
        open_image(GOOD)
    wait_until_gone([process.pid])


def test_other_files_open_while_one_hangs(monkeypatch, own_pool):
    monkeypatch.setattr(limits, "CPU_SECONDS", 1.0)
    ended = threading.Event()

    def hang():
        with pytest.raises(ImageError):
            open_image(make_endless())
        ended.set()

    thread = threading.Thread(target=hang)
    thread.start()
    ct, opened = makers.dicom("CT_small.dcm"), 0
    while not ended.is_set():
        assert (open_image(ct).unit, open_image(GOOD).size) == ("HU", (17, 12))
        opened += 1
    thread.join()
    assert opened > 1


def test_hanging_files_on_every_thread_are_no_more_processes_than_allowed(monkeypatch, own_pool):
    monkeypatch.setattr(limits, "CPU_SECONDS", 0.2)
    said, most = [], []

    def hang():
        try:
            open_image(make_endless())
        except ImageError as error:
            said.append(str(error))
        most.append(len(own_pool._all))

    run_at_once(*[hang] * (limits.MAX_WORKERS + 1))
    assert len(said) == limits.MAX_WORKERS + 1
    assert max(most) <= limits.MAX_WORKERS


# ---- memory
@LINUX
def test_a_file_that_takes_more_memory_than_its_size_explains_is_an_error(monkeypatch, own_pool):
    content = makers.png(20_000, 20_000, data=b"")
    monkeypatch.setattr(limits, "PEAK", 1e-6)
    monkeypatch.setattr(limits, "SMALL", 2**20)
    with pytest.raises(ImageError, match="more memory than its size explains"):
        open_image(content)


@LINUX
@each("mode", ["1", "F"])
def test_an_ordinary_large_picture_opens_in_the_memory_that_its_size_explains(monkeypatch, own_pool, mode):
    monkeypatch.setattr(limits, "SMALL", 2**20)
    content = makers.saved(Image.new(mode, (4000, 3000)), "TIFF", compression="tiff_lzw")
    assert open_image(content).size == (4000, 3000)


def test_a_picture_that_needs_more_than_all_memory_is_refused(own_pool, monkeypatch):
    own_pool.memory = Budget(2**26)
    with pytest.raises(ImageError, match=r"it needs 0\.\d GiB while it is opened; allowed: 0.1 GiB"):
        open_image(makers.saved(np.zeros((5000, 5000), np.uint8), "PNG"))


def test_large_pictures_wait_for_memory_and_small_ones_pass(own_pool):
    content = makers.saved(np.zeros((5000, 5000), np.uint8), "PNG")
    opened = []
    with own_pool.memory.hold(own_pool.memory.total):
        thread = threading.Thread(target=lambda: opened.append(open_image(content).size))
        thread.start()
        wait_until(own_pool.memory._turn.locked)
        assert open_image(GOOD).size == (17, 12)
        assert opened == []
    thread.join()
    assert opened == [(5000, 5000)]


def test_a_budget_never_gives_more_than_it_has_and_everybody_gets_some():
    budget, held, most, done = Budget(10), 0, [], []
    lock = threading.Lock()

    def take(amount):
        nonlocal held
        for _ in range(50):
            with budget.hold(amount):
                with lock:
                    held += amount
                    most.append(held)
                time.sleep(0)
                with lock:
                    held -= amount
        done.append(amount)

    run_at_once(*(functools.partial(take, amount) for amount in (1, 1, 1, 3, 7, 10)))
    assert sorted(done) == [1, 1, 1, 3, 7, 10]
    assert max(most) == 10


def test_small_parts_of_a_budget_do_not_pass_a_large_one():
    budget, order, threads = Budget(10), [], []

    def take(amount):
        with budget.hold(amount):
            order.append(amount)

    with budget.hold(5):
        for amount in (10, 1, 2):
            threads.append(threading.Thread(target=take, args=(amount,)))
            threads[-1].start()
            wait_until(budget._turn.locked)
        time.sleep(0.05)
        assert order == []
    for thread in threads:
        thread.join()
    assert order[0] == 10


# ---- what a worker has and says
@LINUX
def test_a_worker_has_no_secret_of_its_parent(monkeypatch, own_pool):
    monkeypatch.setenv("SOME_API_KEY", "sk-secret")
    process = open_good(own_pool)
    assert b"secret" not in Path(f"/proc/{process.pid}/environ").read_bytes()
    opened = [os.readlink(path) for path in Path(f"/proc/{process.pid}/fd").iterdir()]
    assert all(name == "/dev/null" or name.startswith(("socket:", "pipe:")) for name in opened)


@each("change", [
    {"dtype": "object"}, {"dtype": "float64"}, {"dtype": None}, {"shape": [-1, 4]}, {"shape": [2**40, 4]},
    {"shape": []}, {"shape": [1, 1, 1, 1, 1]}, {"unit": "x"}, {"display": [1]}, {"display": ["nan", 1]},
    {"order": [5, 6]}, {"flipped": [9]}, {"spacing": "ab"}, {"volume": {}},
    {"volume": {"planes": True, "plane": "axial", "index": 10**9}},
])  # fmt: skip
def test_an_answer_that_no_decoder_gives_is_an_error(change):
    answer = {"dtype": "uint8", "shape": [2, 2], "order": [0, 1], "flipped": [], "display": [0, 255]}
    answer |= {"spacing": None, "unit": None, "stays": True}
    worker = object.__new__(pool.WorkerProcess)
    worker.channel = SimpleNamespace(read_into=lambda room: None)
    with pytest.raises((ImageError, KeyError, TypeError, ValueError, IndexError)):
        worker._finish(answer | change, 100)


@each("said", [b"[" * 10**5, b"[]", b"{", b"7", b"\xff", b'{"stays": true}', b'{"memory": "x"}', b'{"memory": -1}'])
def test_words_that_no_worker_says_are_an_error(own_pool, said):
    worker = pool.WorkerProcess()
    worker.channel.sock.close()
    worker.channel.sock, other = socket.socketpair()
    other.sendall(len(said).to_bytes(4, "little") + said)
    try:
        with pytest.raises(ImageError):
            worker.decode("source", GOOD, Budget(100))
    finally:
        worker.end()
        other.close()


@LINUX
def test_what_happens_to_its_socket_while_it_decodes_does_not_end_a_worker(own_pool):
    worker = pool.WorkerProcess()
    try:
        worker._send("source", GOOD, paths.WHOLE)
        assert worker._finish(worker._receive(), limits.SMALL).size == (17, 12)
        worker._send("source", makers.saved(Image.new("L", (4000, 4000)), "PNG"), paths.WHOLE)
        for _ in range(20):  # files that come while it is decoded
            time.sleep(0.01)
            worker._send("source", GOOD, paths.WHOLE)
        assert worker._finish(worker._receive(), limits.SMALL).size == (4000, 4000)
        for _ in range(20):
            assert worker._finish(worker._receive(), limits.SMALL).size == (17, 12)
    finally:
        worker.end()


@LINUX
def test_what_is_open_is_closed_again(own_pool, tmp_path):
    (tmp_path / "a.png").write_bytes(GOOD)
    open_image(tmp_path / "a.png")
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        open_image(tmp_path / "a.png")
        open_image(GOOD + bytes(2**21))
    assert len(os.listdir("/proc/self/fd")) == before


def draw(mode):
    if mode in ("PA", "LAB", "I;16"):
        return Image.new(mode, (5, 3), 1)
    return Image.fromarray(makers.COLOR).convert("L").convert(mode)


@each("content", [
    *(makers.saved(draw(mode), "PNG") for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")),
    *(makers.saved(draw(mode), "TIFF") for mode in ("PA", "RGBX", "CMYK", "YCbCr", "I", "F", "LAB")),
    *(makers.saved(draw("RGB").convert("P"), "PNG", transparency=kind) for kind in (3, bytes([0, 9, 255]))),
])  # fmt: skip
def test_a_picture_is_the_one_that_pillow_decodes(content):
    found, expected = open_picture(content), Image.open(io.BytesIO(content))
    assert (found.mode, found.size, found.tobytes()) == (expected.mode, expected.size, expected.tobytes())
    assert found.getpalette() == expected.getpalette()
    if "transparency" in expected.info:
        assert found.convert("RGBA").tobytes() == expected.convert("RGBA").tobytes()


@each("orientation", range(1, 9))
def test_every_exif_orientation_is_turned_as_pillow_does(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = makers.saved(makers.COLOR, "PNG", exif=exif)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(content))))
    assert np.array_equal(open_image(content).pixels, expected)
    assert np.array_equal(Source.of(open_picture(content)).pixels, expected)


# ---- that nothing stays behind
def run(code, *, stdin=None, **options):
    options |= {"env": {**os.environ, "PYTHONPATH": PARENT}, "capture_output": True, "text": True, "timeout": 120}
    return subprocess.run([sys.executable, *(["-c", code] if stdin is None else ["-"])], input=stdin, **options)


OPEN = f"import viewbox; print(viewbox.open_image({GOOD!r}).size)\n"


@pytest.mark.parametrize("how", ["stdin", "file"])
def test_a_script_without_a_main_guard_opens_images_and_ends_in_silence(how, tmp_path):
    (tmp_path / "script.py").write_text(OPEN)
    code = f"import runpy; runpy.run_path({str(tmp_path / 'script.py')!r}, run_name='__main__')"
    done = run(code if how == "file" else OPEN, stdin=OPEN if how == "stdin" else None)
    assert (done.stdout, done.stderr, done.returncode) == ("(17, 12)\n", "", 0)


def test_a_folder_with_modules_of_the_same_names_is_not_imported(tmp_path):
    for name in ("json", "numpy", "PIL", "socket", "select"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w')")
    code = "import os, json, numpy, PIL, socket, select, viewbox\nimport viewbox.images.files\n"
    done = run(code + f"os.chdir({str(tmp_path)!r})\n" + OPEN, cwd="/")
    assert done.stdout == "(17, 12)\n", done.stderr
    assert not (tmp_path / "imported").exists()


FORK = f"""
import os, sys, threading, viewbox
good = {GOOD!r}
viewbox.open_image(good)
from viewbox.images.files import pool
ours = {{worker.process.pid for worker in pool._pool._all}}
child = os.fork()
if child == 0:
    assert viewbox.open_image(good).size == (17, 12)
    assert not ours & {{worker.process.pid for worker in pool._pool._all}}
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert viewbox.open_image(good).size == (17, 12)
assert {{worker.process.pid for worker in pool._pool._all}} == ours
import multiprocessing
def work(n): return viewbox.open_image(good).size
with multiprocessing.get_context("fork").Pool(2) as many:
    assert many.map(work, range(4)) == [(17, 12)] * 4
print("fine")
"""


def test_a_forked_process_has_workers_of_its_own():
    done = run(FORK)
    assert (done.stdout, done.stderr) == ("fine\n", "")


HANG = f"""
import sys, threading, time, viewbox
from viewbox.images import limits
from viewbox.images.files import pool
limits.CPU_SECONDS = 1000.0
if sys.argv[1:] == []:
    threading.Thread(target=viewbox.open_image, args=({make_endless()!r},), daemon=True).start()
    time.sleep(0.5)
print(viewbox.open_image({GOOD!r}).size)
print(*(worker.process.pid for worker in pool._pool._all), flush=True)
"""


@LINUX
@pytest.mark.parametrize("how", ["kill", "exit", "os._exit"])
def test_workers_end_with_their_parent_also_while_they_decode(how):
    end = {"exit": "", "os._exit": "import os; os._exit(0)"}.get(how, "time.sleep(600)")
    command = [sys.executable, "-c", HANG + end]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, env={**os.environ, "PYTHONPATH": PARENT}) as parent:
        try:
            assert parent.stdout.readline() == "(17, 12)\n"
            workers = [int(pid) for pid in parent.stdout.readline().split()]
            assert len(workers) == 2
            if how == "kill":
                parent.kill()
            parent.wait(60)
            wait_until_gone(workers)
            assert parent.stderr.read() == ""
        finally:
            parent.kill()


def test_an_interrupt_while_decoding_ends_the_worker_and_not_the_pool(own_pool):
    open_image(GOOD)
    timer = threading.Timer(0.5, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        open_image(make_endless())
    timer.join()
    assert own_pool._all == set()
    open_good(own_pool)


@each("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_was_killed_while_idle_costs_no_file(own_pool, how):
    process = open_good(own_pool)
    os.kill(process.pid, how)
    process.wait()
    open_good(own_pool)


def test_a_worker_that_is_killed_while_decoding_is_named_as_such(monkeypatch, own_pool):
    monkeypatch.setattr(limits, "CPU_SECONDS", 100.0)
    timer = threading.Timer(0.5, os.kill, (open_good(own_pool).pid, signal.SIGSEGV))
    timer.start()
    with pytest.raises(ImageError, match=r"its decoder crashed \(SIGSEGV\)"):
        open_image(make_endless())
    timer.join()


def test_a_python_that_cannot_be_started_is_an_error_in_words(monkeypatch, own_pool):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ImageError, match=r"no process to decode it can be started \(No such file"):
        open_image(GOOD)
