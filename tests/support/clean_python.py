"""Python in a process of its own, also where viewbox is not installed, and packages unpacked where nothing else is."""

import os
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path


def run_python(*arguments, cwd=None, env=None, python=sys.executable):
    """What Python prints."""
    done = subprocess.run([python, *arguments], capture_output=True, text=True, cwd=cwd, env=env, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def make_clean(path, cwd):
    """Python without viewbox, and its variables: it is below this one's environment, with its libraries and `path`."""
    env = {"PATH": os.environ["PATH"], "HOME": str(cwd), "PYTHONPATH": f"{path}{os.pathsep}{link_libraries(cwd)}"}
    return Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}", env


def run_clean(arguments, path, cwd):
    """What Python prints without viewbox."""
    python, env = make_clean(path, cwd)
    return run_python(*arguments, cwd=cwd, env=env, python=python)


def link_libraries(folder):
    """A folder with all that is installed here but viewbox; as a plain folder, in which no `.pth` file is read."""
    libraries = folder / "libraries"
    if not libraries.exists():
        libraries.mkdir()
        for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
            if not path.name.startswith(("viewbox", "__editable__")):
                (libraries / path.name).symlink_to(path)
    return libraries


def unpack_wheel(package, folder):
    """Build the wheel of a package and unpack it into a folder where nothing else is; returns (wheel, that folder)."""
    offline = ["--no-build-isolation"] if find_spec("hatchling") else []  # else pip fetches the build tool
    pip = [sys.executable, "-m", "pip", "--quiet"]
    built = ["wheel", "--no-deps", *offline, "--wheel-dir", folder / "dist", package]
    subprocess.run([*pip, *built], check=True, cwd=folder, capture_output=True)
    (wheel,) = (folder / "dist").iterdir()
    target = folder / "unpacked"
    unpacked = ["install", "--no-deps", "--no-index", "--target", target, wheel]
    subprocess.run([*pip, *unpacked], check=True, cwd=folder, capture_output=True)
    return wheel, target
