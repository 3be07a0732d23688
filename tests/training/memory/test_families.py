"""The forecast of a run's memory for every family, against the bytes that are alive in two updates with its weights."""

import pytest

from tests.support.families import FAMILIES, save_family
from viewbox.configs.schema import parse
from viewbox.training.memory.forecast import predict
from viewbox.training.memory.measure import LiveBytes, run_updates
from viewbox.training.memory.workload import count_bytes, find_workload
from viewbox.training.plan import Plan
from viewbox.training.precision import build_model
from viewbox.training.trainer_args import build_trainer_arguments

TOLERANCE = 0.02
AT_DAY = ("gemma3", "internvl", "lfm2_vl")


@pytest.mark.parametrize(
    "name", [name if name in AT_DAY else pytest.param(name, marks=pytest.mark.nightly) for name in FAMILIES]
)
def test_the_forecast_is_near_what_two_updates_take(tmp_path, name):
    config = parse(
        {
            "model": {"name": str(save_family(name, tmp_path)), "dtype": "float32"},
            "env": {"name": "digits", "max_turns": 3, "max_pixels": 64 * 64},
            "rollout": {"max_completion_tokens": 400, "max_reply_tokens": 40, "slots": 8},
            "train": {"per_device_train_batch_size": 8, "num_generations": 4, "use_cpu": True},
            "log": {"eval_tasks": 0},
        }
    )
    plan = Plan(config)
    forecast, workload, known = predict(plan), find_workload(plan), plan.known_model
    assert workload.describe() == forecast.workload.describe()
    model = build_model(config, known.config, "cpu")
    given = [*model.parameters(), *model.buffers()]
    with LiveBytes(given) as counter:
        run_updates(model, config, build_trainer_arguments(config, "runs"), workload, known.processor)
    ratio = forecast.phases[-1].peak / (counter.peak + count_bytes(given))
    assert abs(ratio - 1) < TOLERANCE
