"""`kind: http`: what is sent, what comes back, and which settings are refused."""

import asyncio
import base64
import gc
import io
import json
import os
import threading

import numpy as np
import pytest
from PIL import Image

from tests.support.refusals import check_refusal
from tests.support.servers import make_response, make_script, serve
from tests.support.tables import each
from tests.support.ward import SIZE, ClosedWard, Ward, ask, get_result, make_png, make_tasks, play
from viewbox.errors import ConfigError, ToolFault
from viewbox.images.view import View
from viewbox.tools.calling import call_stateless
from viewbox.tools.specialists.remote import Returns, read_reply
from viewbox.utils.secrets import MASK

KEY = "sesame-4711-open-door"
DEEP = {"type": "object", "properties": {"n": {"type": "integer"}}}
PARAMETERS = {
    "properties": {
        "image": {"x-kind": "picture"}, "box": {"x-kind": "box", "description": "Where to look."},
        "at": {"x-kind": "point"}, "part": {"enum": ["heart", "lung"]}, "deep": DEEP,
    },
    "required": ["image"],
}  # fmt: skip


def make_env(url, cls=Ward, name="look", **settings):
    settings = {"kind": "http", "url": url, "parameters": PARAMETERS, **settings}
    return cls(specialists={name: settings})


def ask_once(reply, returns=None, unit="fraction", call=None, **settings):
    """(the result of a call whose reply is given, what was sent)"""
    with serve(make_script(reply)) as server:
        env = make_env(server.url, returns=returns or {}, unit=unit, **settings)
        return ask(env, "look", **{"image": "image_1", **(call or {})}), server.requests[-1]["body"]


def test_a_call_is_arguments_and_pictures_as_png_in_a_url_or_as_base64_alone():
    result, sent = ask_once({"found": "heart"}, call={"part": "heart", "deep": {"n": 3}})
    assert result.facts == {"found": "heart"}
    assert sent["arguments"] == {"part": "heart", "deep": {"n": 3}}
    scheme, _, content = sent["pictures"]["image"].partition(",")
    assert scheme == "data:image/png;base64"
    picture = Image.open(io.BytesIO(base64.b64decode(content)))
    assert (picture.size, picture.getpixel((3, 3))) == (SIZE, 42)
    assert ask_once({}, pictures="base64")[1]["pictures"]["image"] == content


def test_places_are_sent_and_read_in_the_unit_of_the_server():
    for unit, box, at in [("fraction", [0, 0.25, 0.5, 1], [0.5, 0.5]), ("pixel", [0, 8, 24, 32], [24, 16])]:
        reply = {"findings": [{"box": box, "p": 0.5}, {"box": None}], "center": at}
        returns = {"boxes": ["findings[].box"], "points": ["center"]}
        result, sent = ask_once(reply, returns, unit, {"box": [0, 0.25, 0.5, 1], "at": [0.5, 0.5]})
        assert sent["arguments"] == {"box": box, "at": at}
        assert result.facts["findings"] == ({"box": (0.0, 0.25, 0.5, 1.0), "p": 0.5}, {"box": None})
        assert result.facts["center"] == (0.5, 0.5)


def test_the_model_reads_its_own_coordinates_and_no_marks_of_ours():
    env = make_env("http://127.0.0.1:1/a")
    per_mille = type("PerMille", (Ward,), {"coordinates": "per_mille"})
    (schema,) = (one["function"] for one in make_env("http://127.0.0.1:1/a", per_mille).tool_schemas[1:])
    sides = {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1000}, "minItems": 4, "maxItems": 4}
    said = "[x1, y1, x2, y2] in thousandths of the image; Where to look."
    assert schema["parameters"]["properties"]["box"] == {**sides, "description": said}
    assert "x-kind" not in json.dumps([*map(dict, env.tool_schemas)])
    assert schema["parameters"]["required"] == ("image",)


def test_arguments_are_checked_before_anything_is_sent():
    with serve(make_script({})) as server:
        env = make_env(server.url)
        calls = [{"part": "hart"}, {"deep": {"n": "x"}}, {"box": [0, 0, 2, 2]}, {"other": 1}, {"image": "view_9"}]
        found = [ask(env, "look", **{"image": "image_1", **call}).error for call in calls]
    assert server.requests == []
    assert found[0].endswith('allowed: "heart", "lung" (did you mean "heart"?)')
    assert found[1] == 'look: deep.n = "x": allowed: an integer'
    assert "out of range" in found[2]
    assert 'unknown argument of look "other"' in found[3]
    assert "view_9" in found[4]


def test_text_facts_and_a_picture_that_has_a_number_come_back():
    result, _ = ask_once({"summary": "The heart is large.", "ratio": 0.61}, {"text": "summary"})
    assert (result.description, result.facts) == ("The heart is large.", {"ratio": 0.61})
    overlay = "data:image/png;base64," + make_png((10, 20), (255, 0, 0), "RGB")
    result, _ = ask_once({"overlay": overlay}, {"image": "overlay"})
    assert (result.image.width, result.image.height, result.image.open().getpixel((1, 1))) == (10, 20, (255, 0, 0))
    assert result.facts == {"view": 1}


def write_mask():
    """A mask of the picture in both forms: a PNG as Base64, and rows of 0 and 1."""
    mask = np.zeros(SIZE[::-1], np.uint8)
    mask[8:16, 12:24] = 200
    buffer = io.BytesIO()
    Image.fromarray(mask).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode(), (mask > 0).astype(int).tolist()


def test_a_mask_is_drawn_on_the_picture_and_measured_an_empty_one_has_no_box_and_several_have_a_color_each():
    for reply in write_mask():
        result, _ = ask_once({"m": reply}, {"mask": "m"})
        assert result.facts["m"] == {"share": 96 / (48 * 32), "box": (0.25, 0.25, 0.5, 0.5)}
        shown = np.asarray(result.image.open())
        assert shown[0, 0].tolist() == [42, 42, 42]
        assert shown[10, 15, 0] > shown[10, 15, 1]
        assert result.views[0].image == 0
    assert ask_once({"m": make_png(value=0)}, {"mask": "m"})[0].facts["m"] == {"share": 0.0, "box": None}
    png, rows = write_mask()
    masks = {"heart": png, "lung": rows, "none": None}
    reply = {"regions": [{"label": label, "mask": mask} for label, mask in masks.items()]}
    result, _ = ask_once(reply, {"mask": "regions[].mask"})
    heart, lung, none = result.facts["regions"]
    assert heart["mask"] == {"color": "red", "share": 96 / (48 * 32), "box": (0.25, 0.25, 0.5, 0.5)}
    assert (lung["mask"]["color"], none["mask"]) == ("green", None)
    view = View.of(np.zeros(SIZE[::-1], np.uint8))
    with pytest.raises(ToolFault, match=r"m\[100\] is one mask too many; allowed: 100"):
        read_reply({"m": [rows] * 101}, Returns(mask="m[]"), "fraction", view, "look")


def test_a_specialist_may_get_the_file_at_its_own_resolution():
    film = np.arange(200 * 120).reshape(200, 120).astype(np.uint8)
    view = View.of(film, max_pixels=100)
    with serve(make_script({"box": [30, 50, 60, 100]})) as server:
        tool = make_env(server.url, returns={"boxes": ["box"]}, unit="pixel", max_pixels=10**6).toolbox["look"]
        found = asyncio.run(call_stateless(tool, {"image": "image_1"}, find_picture=lambda name: view))
    sent = server.requests[-1]["body"]
    picture = Image.open(io.BytesIO(base64.b64decode(sent["pictures"]["image"].partition(",")[2])))
    assert (np.asarray(picture) == film).all()
    assert found.facts["box"] == (0.25, 0.25, 0.5, 0.5)


def test_all_episodes_share_one_connection_across_event_loops():
    with serve(make_script({"ok": True})) as server:
        env = make_env(server.url, concurrency=1)
        for _ in range(3):  # each has an event loop of its own
            played = play(env, make_tasks(*[("look", {"image": "image_1"})] * 5))
            assert all(get_result(one).facts == {"ok": True} for one in played)
            gc.collect()
    assert len(server.requests) == 15
    assert len(server.connections) == 2  # one is the look at the address before the first episode


def test_the_key_is_sent_in_a_header_and_masked_wherever_it_comes_back(monkeypatch):
    monkeypatch.setenv("WARD_API_KEY", KEY)
    with serve(make_script({"echo": KEY, "deep": [{"x": KEY}], "t": KEY})) as server:
        env = make_env(server.url, api_key_env="WARD_API_KEY", returns={"text": "t"})
        result = ask(env, "look", image="image_1")
        assert server.requests[-1]["headers"]["Authorization"] == f"Bearer {KEY}"
    assert result.facts == {"echo": MASK, "deep": ({"x": MASK},)}
    assert result.description == MASK
    with pytest.raises(ConfigError, match="not sent over http to another machine"):
        make_env("http://192.0.2.1/measure", api_key_env="WARD_API_KEY").prepare()


@pytest.mark.slow
def test_temporary_failures_are_asked_again_and_the_server_s_words_about_the_call_alone_reach_the_model():
    slow = make_response(429, {"error": "busy"}, Retry_After=0)
    with serve(lambda body, number: slow if number < 2 else {"ok": True}) as server:
        assert ask(make_env(server.url), "look", image="image_1").facts == {"ok": True}
    assert len(server.requests) == 3
    for status, detail, said in [
        (422, "the box is smaller than 10 pixels", "the box is smaller than 10 pixels"),
        (403, "account of dr.who@example.org is closed", "look failed with HTTP 403"),
    ]:
        with serve(make_script(make_response(status, {"detail": detail}))) as server:
            error = ask(make_env(server.url), "look", image="image_1").error
        assert said in error
        assert (error == said) == (status == 403)


@each("settings, key, says", [
    ({"url": "ftp://example.org"}, "url", "cannot be used; allowed: http(s)://host"),
    ({"url": "http://user:pass@example.org"}, "url", "'http://***@example.org' cannot be used; allowed: http(s)://"),
    ({"api_key_env": "GITHUB_TOKEN"}, "api_key_env", "only a variable whose name ends with API_KEY"),
    ({"timeout": 0}, "timeout", "allowed: a number above 0"),
    ({"timeout": 60}, "timeout", "a call is abandoned after tool_timeout = 60 seconds; allowed: less"),
    ({"max_reply": -1}, "max_reply", "bytes"), ({"returns": {"txt": "a"}}, "returns.txt", "did you mean 'text'?"),
    ({"parameters": {"properties": {"box": {"x-kind": "box"}}}}, "", "properties.box is a place in no picture"),
    ({"parameters": {}, "returns": {"mask": "m"}}, "", "returns names a box, point or mask in no picture"),
    ({"parameters": {"properties": {"a": {"x-kind": "bax"}}}}, "parameters", "did you mean 'box'?"),
])  # fmt: skip
def test_a_mistake_is_named_with_what_is_allowed(settings, key, says):
    key = ".".join(filter(None, ["specialists.look", key]))
    check_refusal(lambda: make_env(**{"url": "http://127.0.0.1:1/a", **settings}), key, says)


def test_making_an_environment_asks_nothing_and_a_key_or_a_server_that_is_missing_ends_the_run_at_its_start():
    with serve(make_script({})) as server:
        env = make_env(server.url, api_key_env="NOBODYS_API_KEY")
        assert env.tool_schemas[-1]["function"]["name"] == "look"
    assert server.connections == []
    says = "specialists.look.api_key_env is 'NOBODYS_API_KEY', but no such"
    check_refusal(env.prepare, "specialists.look.api_key_env", says)
    unreached = make_env(server.url), make_tasks(("look", {"image": "image_1"}))
    check_refusal(lambda: play(*unreached), "specialists.look.url", "specialists.look.url = ", " no connection")


def test_restricted_pictures_go_to_this_machine_only():
    with serve(make_script({"ok": True})) as server:
        assert ask(make_env(server.url, ClosedWard), "look", image="image_1").facts == {"ok": True}
    with pytest.raises(ConfigError, match=r"specialists\.look sends pictures to https://models\.example"):
        make_env("https://models.example/look", ClosedWard)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_connections_of_its_own():
    with serve(make_script({"ok": True})) as server:
        env = make_env(server.url)
        assert ask(env, "look", image="image_1").facts == {"ok": True}
        child = os.fork()
        if child == 0:
            facts = {}
            try:
                facts = ask(env, "look", image="image_1").facts
            finally:
                os._exit(0 if facts == {"ok": True} else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert len(server.connections) == 4  # each looks at the address, and then sends


def test_a_cancelled_episode_cancels_its_request():
    asked, released = threading.Event(), threading.Event()

    def wait(handler):
        asked.set()
        released.wait(60)
        handler.close_connection = True

    with serve(lambda body, number: wait if body else {}) as server:
        env = make_env(server.url)
        state = env.reset(make_tasks(("look", {"image": "image_1"}))[0], seed=0)

        async def run():
            step = asyncio.ensure_future(env.step(state, state.messages[1].text))
            await asyncio.to_thread(asked.wait, 60)
            step.cancel()
            return await asyncio.gather(step, return_exceptions=True)

        (outcome,) = asyncio.run(run())
        released.set()
    assert isinstance(outcome, asyncio.CancelledError)
