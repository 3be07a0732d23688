"""One specialist fails and its calls are lost; episodes that ask another one are those of a clean run, byte for byte.

Here: a model that cannot be loaded, an address that goes down, a function that fails in any way.
"""

import pytest

from tests.support.servers import serve
from tests.support.tiny_specialists import save_vit
from tests.support.ward import Ward, get_result, make_tasks, play

BAD = 3  # the task that asks the specialist that fails
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
    "raises": "failing failed (RuntimeError)",
    "has_no_memory": "failing failed (MemoryError)",
    "exits": "failing failed (SystemExit)",
    "hangs": "failing took longer than 3 seconds",
    "gives_no_words": "failing returned",
    "gives_no_picture": "failing returned an image that cannot be shown",
    "says_100_mb": None,
    "gives_nan": None,
}


SETTINGS = {"tool_timeout": 3}


def make_calls():
    """Eight tasks; only the fourth asks the tool `failing`."""
    return make_tasks(*[("failing" if number == BAD else "good", {"image": "image_1"}) for number in range(8)])


@pytest.fixture
def functions(tmp_path):
    """The functions as specialists, by name."""
    path = tmp_path / "own.py"
    path.write_text(FUNCTIONS)
    words = {"kind": "function", "description": "Looks at a picture."}
    return {name: {**words, "function": f"{path}:{name}"} for name in ("good", *FAULTS)}


def compare(episodes, clean, ends=("error", None)):
    """The result of the call that fails and ends its episode; all other episodes are those of the clean run."""
    episodes, clean = list(episodes), list(clean)
    failed = episodes.pop(BAD)
    assert get_result(clean.pop(BAD)).error is None
    assert len(episodes) == len(clean) == 7
    for one, other in zip(episodes, clean, strict=True):
        assert get_result(one).error is None
        assert one.to_json() == other.to_json()
    assert (failed.end_reason, failed.scores.total) == ends
    return get_result(failed)


@pytest.mark.parametrize("name", FAULTS)
def test_a_function_that_fails_costs_its_call(functions, name):
    def run(failing):
        specialists = {"good": functions["good"], "failing": functions[failing]}
        return play(Ward(specialists=specialists, **SETTINGS), make_calls())

    episodes = run(name)
    result = compare(episodes, run("good"), ("answered", 1.0) if FAULTS[name] is None else ("error", None))
    assert max(len(episode.to_json()) for episode in episodes) < 30_000
    if FAULTS[name] is None:
        assert result.error is None
    else:
        assert result.error.startswith(FAULTS[name])
        assert "patient" not in result.error


def test_an_address_that_goes_down_costs_its_calls(functions):
    parameters = {"properties": {"image": {"x-kind": "picture"}}, "required": ["image"]}

    def make_env(url):
        away = {"kind": "http", "url": url, "parameters": parameters, "attempts": 1, "description": "Looks."}
        return Ward(specialists={"good": functions["good"], "failing": away})

    with serve(lambda sent, number: {"ratio": 1}) as server:
        clean = play(make_env(server.url), make_calls())
        env = make_env(server.url)
        env.prepare()
    result = compare(play(env, make_calls()), clean)
    assert result.error.startswith(("failing cannot be reached", "failing gave no reply that can be used"))


def test_two_models_do_not_share_results_of_one_picture(tmp_path):
    folders = [save_vit(tmp_path / str(seed), seed=seed) for seed in range(2)]
    specs = {f"m{i}": {"kind": "classification", "model": folder, "device": "cpu"} for i, folder in enumerate(folders)}
    env = Ward(specialists=specs)
    one, two, again = play(env, make_tasks(*[(name, {"image": "image_1"}) for name in ("m0", "m1", "m0")]))
    assert get_result(one).facts == get_result(again).facts != get_result(two).facts
    assert [sum(env.toolbox[name].function.server.batches) for name in specs] == [1, 1]  # the third was kept
