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
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**30, 2**30))
        resource.setrlimit(resource.RLIMIT_DATA, (int(memory), int(memory)))
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
    os.execvpe(command[0], command, os.environ)
