"""Programs that run where viewbox is not installed."""

import json
from subprocess import PIPE, Popen

import pytest

from tests.support.clean_python import make_clean

FORKS = """
import gc, json, os, sys
import verifiers.v1.cli.eval.main, verifiers.v1.cli.replay, verifiers.v1.tasksets
assert "viewbox" not in {name.partition(".")[0] for name in sys.modules}
gc.freeze()  # what a fork does not look at, it does not copy
for line in sys.stdin:
    if os.fork():
        print(os.wait()[1], flush=True)
        continue
    code, sys.argv[1:], path, cwd, said = json.loads(line)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.environ |= {"HOME": cwd, "PYTHONPATH": path + os.pathsep + os.environ["PYTHONPATH"]}
    sys.path[1:1] = path.split(os.pathsep)
    os.chdir(cwd)
    exec(code)
    break
"""


@pytest.fixture(scope="session")
def run_forked(tmp_path_factory):
    """`run_clean` of code, in a fork of one process that has imported verifiers, which takes seconds."""
    folder = tmp_path_factory.mktemp("clean")
    python, env = make_clean("", folder)
    with Popen([python, "-c", FORKS], env=env, cwd=folder, stdin=PIPE, stdout=PIPE, text=True) as process:

        def run(code, *arguments, path, cwd):
            asked = json.dumps([code, arguments, path, cwd, folder / "said"], default=str)
            print(asked, file=process.stdin, flush=True)
            status, said = process.stdout.readline(), (folder / "said").read_text()
            assert status == "0\n", said[-3000:]
            return said

        yield run
