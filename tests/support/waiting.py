"""Wait for what another process or thread does."""

import time
from pathlib import Path


def wait_until(condition, seconds=120):
    """Wait until `condition()` is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def wait_until_gone(pids, seconds=60):
    """Wait until none of these processes runs."""

    def is_there(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    wait_until(lambda: not any(map(is_there, pids)), seconds)
