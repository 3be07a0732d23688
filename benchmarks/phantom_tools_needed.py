"""Shows that `phantom` needs window and zoom: a classifier tells solid lesions from rings in four kinds of view.

    python benchmarks/phantom_tools_needed.py       (minutes)

Each candidate (a solid lesion, or a ring of the same slice) is cut out at its right place, which is more than a policy
without tools knows: from the overview, from the windowed overview, from a zoom, and from a windowed zoom. The rest is
chance: as many rings as lesions are shown. The last line is one JSON object.
"""

import json

import numpy as np
from PIL import Image
from sklearn.decomposition import PCA
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from viewbox import make
from viewbox.envs.drawn import TEST_SEEDS
from viewbox.envs.phantom.anatomy import FIELD, ORGAN_VALUES, Lesion, draw_slice
from viewbox.envs.phantom.env import DISPLAY, GOLD_ZOOM, WINDOW_WIDTH
from viewbox.images.source import Source
from viewbox.images.view import View

TRAIN, TEST = 400, 150  # slices
SIDE = 16  # pixels of a crop as a classifier sees it
MARGIN = 1.0  # of a candidate's size, shown around it on each side
VIEWS = ("overview", "window", "zoom", "window and zoom")


def render_crops(first: int, count: int, difficulty: float) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the crops of each kind of view, (2 * count, SIDE²), and whether each shows a solid lesion, (2 *
    count,)."""
    crops: dict[str, list[np.ndarray]] = {name: [] for name in VIEWS}
    solid = []
    env = make("phantom")
    for seed in range(first, first + count):
        drawn = draw_slice(seed, difficulty, has_lesion=True)
        source = Source.of(drawn.pixels, unit="HU", display=DISPLAY)
        if drawn.lesion is None or not drawn.decoys:
            continue
        ring = drawn.decoys[int(np.random.default_rng(seed).integers(len(drawn.decoys)))]
        for lesion in (drawn.lesion, ring):
            for name in VIEWS:
                crops[name].append(_cut(source, lesion, name, env.max_pixels))
            solid.append(lesion.solid)
    return {name: np.stack(some) for name, some in crops.items()}, np.array(solid)


def _cut(source: Source, lesion: Lesion, kind: str, max_pixels: int) -> np.ndarray:
    view = View.of(source, max_pixels=max_pixels)
    if "window" in kind:
        low = ORGAN_VALUES[lesion.organ] - WINDOW_WIDTH / 2
        view = _apply(view, low)
    if "zoom" in kind:
        view = view.zoom(GOLD_ZOOM, (lesion.x / FIELD, lesion.y / FIELD))
    x1, y1, x2, y2 = lesion.box
    pad = MARGIN * (x2 - x1)
    box = view.from_original((x1 - pad, y1 - pad, x2 + pad, y2 + pad))
    pixels = [value * view.size[place % 2] for place, value in enumerate(box)]
    left, top, right, bottom = pixels
    patch = view.render().convert("L").crop(tuple(map(round, (left, top, right, bottom))))
    return np.asarray(patch.resize((SIDE, SIDE), Image.Resampling.BILINEAR), dtype=np.float32).ravel()


def _apply(view: View, low: float) -> View:
    """Return the view through the narrow window."""
    shown = Source.of(view.source.pixels, unit="HU", display=(low, low + WINDOW_WIDTH))
    return View.of(shown, max_pixels=view.max_pixels)


def main() -> None:
    found: dict[str, float] = {}
    for difficulty in (0.0, 0.5, 1.0):
        train = render_crops(0, TRAIN, difficulty)
        test = render_crops(TEST_SEEDS, TEST, difficulty)
        for name in VIEWS:
            models = ExtraTreesClassifier(200, random_state=0), make_pipeline(StandardScaler(), PCA(40), SVC(C=3))
            chosen = max(models, key=lambda model: cross_val_score(model, train[0][name], train[1], cv=3).mean())
            best = chosen.fit(train[0][name], train[1]).score(test[0][name], test[1])
            found[f"{name}, difficulty {difficulty:g}"] = best
            print(f"difficulty {difficulty:g}, {name}: {best:.3f} of {len(test[1])} candidates told apart (chance 0.5)")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
