"""`viewbox memory`: the table, the verdict, and the settings with which a run fits."""

import json
import re

import pytest

SMALL = ["quickstart", "train.per_device_train_batch_size=8", "rollout.slots=4", "log.eval_tasks=4"]


def test_a_run_that_fits(viewbox):
    status, out, _ = viewbox("memory", *SMALL, "--device-memory", "8GiB")
    assert status == 0
    assert re.search(r"weights +0\.\d\d GiB", out) or "other" in out
    assert "keys and values" in out or "other" in out
    assert re.search(r"needs 0\.\d of 8\.0 GiB, \d+% \(\w+\): fits", out)


def test_the_parts_add_up_to_the_peak(viewbox):
    status, out, _ = viewbox("memory", *SMALL, "--json")
    report = json.loads(out)
    assert (status, list(report["phases"])) == (0, ["generation", "update"])
    for phase in report["phases"].values():
        assert sum(phase["parts"].values()) == phase["peak"]
    assert report["fits"] is None


def test_a_run_that_does_not_fit_is_told_what_to_change(viewbox):
    status, out, _ = viewbox("memory", *SMALL, "--device-memory", "40MiB")
    assert status == 0
    assert "does not fit" in out
    assert "with train.gradient_checkpointing=true" in out


@pytest.mark.parametrize("given", ["much", "-3GiB"])
def test_a_size_that_is_none(viewbox, given):
    status, _, error = viewbox("memory", *SMALL, f"--device-memory={given}")
    assert status == 2
    assert "--device-memory" in error
