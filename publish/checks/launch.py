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
        cpu, size = int(seconds), int(memory)
        for name, soft, hard in (("CORE", 0, 0), ("FSIZE", 2**30, 2**30), ("DATA", size, size), ("CPU", cpu, cpu + 1)):
            kind = getattr(resource, f"RLIMIT_{name}")
            most = resource.getrlimit(kind)[1]  # a command that is itself limited may only lower it
            resource.setrlimit(kind, (soft, hard) if most < 0 else (min(soft, most), min(hard, most)))
    os.execvpe(command[0], command, os.environ)
