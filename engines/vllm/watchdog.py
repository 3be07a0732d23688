"""Runs a command for as long as the process that asked for it lives; every process of the command ends with it.

    python watchdog.py COMMAND …

Standard input is a pipe from that process. Nothing is written to it: its end says that the process is gone, whether it
ended, failed or was killed. This program is the leader of the command's process group, and ends last. It is run by its
path, before any package is imported.
"""

import os
import signal
import subprocess
import sys
import threading
from types import FrameType

GRACE = 20.0  # seconds that the command has to end by itself


def main(command: list[str]) -> None:
    """Runs the command, says with which status it ended, and kills what it left."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def end(number: int = 0, frame: FrameType | None = None) -> None:
        child.terminate()
        threading.Timer(GRACE, child.kill).start()

    def watch() -> None:
        sys.stdin.buffer.read()
        end()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    threading.Thread(target=watch, daemon=True).start()
    status = child.wait()
    print(f"viewbox: the command ended with status {status}", flush=True)
    os.killpg(os.getpid(), signal.SIGKILL)  # this process, too


if __name__ == "__main__":
    main(sys.argv[1:])
