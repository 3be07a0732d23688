"""An area of the fuzzer whose cases do what none may do, each case another thing."""

import asyncio
import os
import subprocess
import sys
import time

CPU_SECONDS = 0.1
FAULTS = ("raise", "score", "loop", "write", "start", "sleep", "die", "good")


def make_case(chance):
    return chance.choice(FAULTS).encode()


def check_case(content, folder):
    fault = content.decode()
    if fault == "raise":
        raise KeyError("planted")
    if fault == "score":
        assert 1.5 <= 1, "a score of 1.5"
    if fault == "loop":
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass
    if fault == "write":
        (folder.parent / f"{folder.name}.planted").write_text("x")
        os.remove(folder.parent / f"{folder.name}.planted")
    if fault == "start":
        subprocess.run([sys.executable, "-c", ""], check=True)
    if fault == "sleep":
        asyncio.run(asyncio.sleep(600))
    if fault == "die":
        os._exit(7)
