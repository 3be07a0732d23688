"""The installed accelerate sets the variables by which a launch is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from viewbox.errors import ConfigError
from viewbox.training.findings import check_launch


@pytest.mark.parametrize(("number", "fails"), [(1, False), (2, True)])
def test_accelerate_itself_sets_the_variables_that_are_looked_for(number, fails):
    launch = [Path(sys.executable).with_name("accelerate"), "launch", "--cpu", "--no_python"]
    others = ("ACCELERATE", "MASTER_", "WORLD")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    command = [*launch, "--num_processes", str(number), "env"]
    said = subprocess.run(command, capture_output=True, text=True, env=clean).stdout
    found = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    if not fails:
        return check_launch(variables=found)
    with pytest.raises(ConfigError, match="several processes and started one"):
        check_launch(variables=found)
