"""Shows that the zoom is needed: a classifier reads digits from crops of the overview, another from zoomed crops.

Both crops are at the gold box of the same tasks of the quickstart. The last line is one JSON object; `points` is the
difference of the two shares, in percentage points.

    python benchmarks/tool_needed.py
"""

import json

import numpy as np
from PIL import Image
from sklearn.svm import SVC

import viewbox
from viewbox.configs import schema
from viewbox.images.view import View

SIDE = 12  # pixels of a crop as the classifier sees it
TRAIN, TEST = 4000, 1000


def render_crops(split: str, count: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """(overview crops, zoomed crops), each (count, SIDE²), and the labels."""
    settings = schema.load("quickstart").env.settings
    env = viewbox.make("digits", **{**settings, "split": split})
    overview, zoomed, labels = [], [], []
    for task in env.tasks[:count]:
        x1, y1, x2, y2 = task.reference["bbox"]
        view = View.of(env.images(task)[0], max_pixels=env.max_pixels)
        closer = view.zoom(4, ((x1 + x2) / 2, (y1 + y2) / 2))
        for kept, one in ((overview, view), (zoomed, closer)):
            box = [value * one.size[i % 2] for i, value in enumerate(one.from_original((x1, y1, x2, y2)))]
            patch = one.render().resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=box)
            kept.append(np.asarray(patch, dtype=np.float32).ravel())
        labels.append(task.reference["label"])
    return np.stack(overview), np.stack(zoomed), labels


def main() -> None:
    train, test = render_crops("train", TRAIN), render_crops("test", TEST)
    found = {}
    for k, name in enumerate(("overview", "zoomed")):
        mean, spread = train[k].mean(), train[k].std()
        scores = [
            SVC(C=c).fit((train[k] - mean) / spread, train[2]).score((test[k] - mean) / spread, test[2])
            for c in (1, 3, 10, 30)
        ]
        found[name] = max(scores)
        print(f"{name}: {found[name]:.3f} of {TEST} test digits read (best of C = 1, 3, 10, 30)")
    found["points"] = 100 * (found["zoomed"] - found["overview"])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
