"""`examples/specialist_server.py`: the package's own preparation bit for bit, and masks where they lie on the film."""

import asyncio
import importlib.util
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import viewbox
from tests.support.image_files import save_film
from viewbox import make, open_image
from viewbox.images.view import View
from viewbox.tools.calling import call_stateless

xrv = pytest.importorskip("torchxrayvision")
EXAMPLES = Path(viewbox.__file__).parent / "examples"
SHAPES = [(500, 400), (400, 500), (448, 448)]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("specialist_server", EXAMPLES / "specialist_server.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class WhatIsBright(torch.nn.Module):
    """Stands for the segmenter: everything above the middle of the range is each of its 14 structures."""

    targets = xrv.baseline_models.chestx_det.PSPNet.targets

    def __init__(self, cache_dir=None):
        super().__init__()

    def forward(self, film):
        return torch.where(film > 0, 8.0, -8.0).repeat(1, 14, 1, 1)


@pytest.fixture
def ask(script, monkeypatch, tmp_path):
    """Asks a tool of examples/medrax.yaml about a film, which the policy sees at a tenth of its pixels."""
    torch.manual_seed(0)
    name = os.path.basename(xrv.models.model_urls["all"]["weights_url"])
    torch.save(xrv.models.DenseNet(weights=None), tmp_path / name)
    monkeypatch.setattr(xrv.baseline_models.chestx_det, "PSPNet", WhatIsBright)
    server = script.serve(["classify", "segment"], 0, cache=str(tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    listed = yaml.safe_load((EXAMPLES / "medrax.yaml").read_text())["env"]["specialists"]
    specialists = {name: one for name, one in listed.items() if one["kind"] == "http"}
    for one in specialists.values():
        one["url"] = one["url"].replace("9000", str(server.server_port))
    env = make("chest_xray", specialists=specialists, tool_timeout=180)

    def call(tool, view, **more):
        arguments = {"image": "image_1", **more}
        found = asyncio.run(call_stateless(env.toolbox[tool], arguments, find_picture=lambda name: view))
        assert found.success, found.error
        return found.facts

    yield call
    server.shutdown()


def test_the_film_is_prepared_as_by_the_package_bit_for_bit(script, ask, monkeypatch):
    seen, prepare = [], script.prepare
    monkeypatch.setattr(script, "prepare", lambda *given: seen.append(prepare(*given)) or seen[-1])
    for shape in SHAPES:
        film = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
        facts = ask("classify_findings", View.of(film, max_pixels=20_000))
        own = xrv.datasets.XRayResizer(224)(xrv.datasets.XRayCenterCrop()(xrv.datasets.normalize(film, 255)[None]))
        assert (seen[-1].numpy()[0] == own).all()
        assert set(facts["findings"]) == set(xrv.datasets.default_pathologies)


def test_a_dicom_without_a_window_has_the_levels_of_the_package_to_the_8_bits_that_are_sent(
    script, ask, monkeypatch, tmp_path
):
    seen, prepare = [], script.prepare
    monkeypatch.setattr(script, "prepare", lambda *given: seen.append(prepare(*given)) or seen[-1])
    film = np.random.default_rng(0).integers(300, 2900, (448, 448)).astype(np.uint16)  # of 12 bits
    for inverted in (False, True):
        file = save_film(tmp_path / "film.dcm", film, 12, inverted=inverted)
        ask("classify_findings", View.of(open_image(file), max_pixels=20_000))
        own = xrv.datasets.XRayResizer(224)(xrv.datasets.normalize(film, 4095)[None])
        assert np.abs(seen[-1].numpy()[0] - own).max() < 1024 / 255 + 0.1


def test_structures_have_their_boxes_on_the_film_however_it_is_shown(ask):
    for height, width in SHAPES:
        film = np.zeros((height, width), np.uint8)
        film[150:220, 120:310] = 255
        for view in (View.of(film, max_pixels=20_000), View.of(film, max_pixels=20_000).rotate().flip_horizontal()):
            regions = ask("segment_anatomy", view)["regions"]
            assert [one["label"] for one in regions] == WhatIsBright.targets
            box = np.array(view.box_to_original(regions[3]["mask"]["box"])) * [width, height, width, height]
            assert np.abs(box - [120, 150, 310, 220]).max() <= 1.5
