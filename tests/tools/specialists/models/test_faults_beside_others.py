"""One specialist fails and its calls are lost; episodes that ask another one are those of a clean run, byte for byte.

Here: a model that cannot be loaded, an address that goes down, a function that fails in any way.
"""

import pytest

from tests.support.servers import serve
from tests.support.tiny_specialists import save_vit
from tests.support.ward import Ward, get_result, make_tasks, play

FUNCTIONS = """
import time
import numpy as np
from viewbox import Picture
from viewbox.tools import ToolOutput

def good(image: Picture) -> dict:
    "The mean gray value."
    return {"mean": float(image.to_gray().mean())}

def raises(image: Picture) -> str:
    "Fails."
    raise RuntimeError("/home/dr.who/patient-17")

def has_no_memory(image: Picture) -> str:
    "Fails."
    raise MemoryError

def exits(image: Picture) -> str:
    "Fails."
    raise SystemExit(3)

def hangs(image: Picture) -> str:
    "Never ends."
    time.sleep(30)

def gives_no_words(image: Picture) -> str:
    "Returns what is no result."
    return object()

def gives_no_picture(image: Picture) -> ToolOutput:
    "Returns a picture without pixels."
    return ToolOutput("here", image=np.zeros((0, 5), np.uint8))

def says_100_mb(image: Picture) -> str:
    "Says much."
    return "x" * 10**8

def gives_nan(image: Picture) -> dict:
    "Returns a number that is none."
    return {"share": float("nan")}
"""
FAULTS = {
    "raises": "failed (RuntimeError)",
    "has_no_memory": "failed (MemoryError)",
    "exits": "failed (SystemExit)",
    "hangs": "took longer than 3 seconds",
    "gives_no_words": "returned",
    "gives_no_picture": "returned an image that cannot be shown",
    "says_100_mb": None,
    "gives_nan": None,
}


GOOD = [("good", {"image": "image_1"})] * 7


@pytest.fixture
def functions(tmp_path):
    """The functions as specialists, by name."""
    path = tmp_path / "own.py"
    path.write_text(FUNCTIONS)
    words = {"kind": "function", "description": "Looks at a picture."}
    return {name: {**words, "function": f"{path}:{name}"} for name in ("good", *FAULTS)}


def play_beside(specialists, *failing):
    """The results of the failing tools, beside seven calls of a good one that are those of a clean run."""
    env = Ward(specialists=specialists, tool_timeout=3)
    clean = play(Ward(specialists=specialists, tool_timeout=60), make_tasks(*GOOD))
    episodes = play(env, make_tasks(*GOOD, *((name, {"image": "image_1"}) for name in failing)))
    assert [one.to_json() for one in episodes[:7]] == [one.to_json() for one in clean]
    assert all(get_result(one).error is None for one in clean)
    assert max(len(episode.to_json()) for episode in episodes) < 30_000
    return {
        name: (get_result(one).error, one.end_reason, one.scores.total)
        for name, one in zip(failing, episodes[7:], strict=True)
    }


def test_a_function_that_fails_costs_its_call(functions):
    for name, (error, *ends) in play_beside(functions, *FAULTS).items():
        if FAULTS[name] is None:
            assert (error, ends) == (None, ["answered", 1.0])
        else:
            assert error.startswith(f"{name} {FAULTS[name]}")
            assert "patient" not in error
            assert ends == ["error", None]


def test_an_address_that_goes_down_costs_its_calls(functions):
    parameters = {"properties": {"image": {"x-kind": "picture"}}, "required": ["image"]}
    with serve(lambda sent, number: {"ratio": 1}) as server:
        away = {"kind": "http", "url": server.url, "parameters": parameters, "attempts": 1, "description": "Looks."}
        env = Ward(specialists={"good": functions["good"], "away": away})
        env.prepare()
    episodes = play(env, make_tasks(*GOOD, ("away", {"image": "image_1"})))
    assert {get_result(one).error for one in episodes[:7]} == {None}
    assert get_result(episodes[7]).error.startswith(("away cannot be reached", "away gave no reply that can be used"))


def test_two_models_do_not_share_results_of_one_picture(tmp_path):
    folders = [save_vit(tmp_path / str(seed), seed=seed) for seed in range(2)]
    specs = {f"m{i}": {"kind": "classification", "model": folder, "device": "cpu"} for i, folder in enumerate(folders)}
    env = Ward(specialists=specs)
    one, two, again = play(env, make_tasks(*[(name, {"image": "image_1"}) for name in ("m0", "m1", "m0")]))
    assert get_result(one).facts == get_result(again).facts != get_result(two).facts
    assert [sum(env.toolbox[name].function.server.batches) for name in specs] == [1, 1]  # the third was kept
