"""Runs a command under limits of the kernel: `python launch.py MEMORY SECONDS COMMAND...`; a program, not a module."""

import os
import sys

if __name__ == "__main__":
    memory, seconds, *command = sys.argv[1:]
    try:
        import resource
    except ImportError:  # a system without it: only the time is limited, from outside
        pass
    else:
        limits = {
            "CORE": (0, 0),
            "FSIZE": (2**30, 2**30),
            "DATA": (int(memory), int(memory)),
            "CPU": (int(seconds), int(seconds) + 1),
        }
        for name, wanted in limits.items():
            kind = getattr(resource, f"RLIMIT_{name}")
            most = resource.getrlimit(kind)[1]  # a command that is itself limited may only lower it
            resource.setrlimit(kind, tuple(one if most < 0 else min(one, most) for one in wanted))
    os.execvpe(command[0], command, os.environ)
