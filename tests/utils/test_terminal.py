"""What a command prints of its own log and of those of libraries."""

import subprocess
import sys

CODE = """
import logging
from viewbox.utils.terminal import protect_output

protect_output()
library = logging.getLogger("library")
library.addHandler(logging.StreamHandler())
logging.getLogger("kept").addHandler(logging.FileHandler("/dev/null"))
logging.getLogger("kept").warning("kept in a file and said")
library.getChild("part").warning("said by the library")
logging.getLogger("viewbox.x").warning("said by viewbox")
"""


def test_a_warning_that_a_library_prints_itself_stands_there_once():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["kept in a file and said", "said by the library", "said by viewbox"]
