"""Average precision by pycocotools."""

import contextlib
import io

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

NAMES = ("map@0.3", "map@0.5", "map@0.5:0.95")


def coco(pairs):
    """The same figures by pycocotools; NaN where it has none."""
    labels = sorted({one["label"] for _, gold in pairs for one in gold["found"]})
    ids = {label: number + 1 for number, label in enumerate(labels)}

    def boxes(items, image):
        for one in items:
            if one["label"] in ids:
                x1, y1, x2, y2 = one["bbox"]
                area = (x2 - x1) * (y2 - y1)
                yield {"image_id": image, "category_id": ids[one["label"]], "bbox": [x1, y1, x2 - x1, y2 - y1]} | {
                    "area": area, "iscrowd": 0, "score": one.get("confidence", 1.0)
                }  # fmt: skip

    gold = [box for image, (_, one) in enumerate(pairs) for box in boxes(one["found"], image)]
    said = [box for image, (one, _) in enumerate(pairs) for box in boxes((one or {"found": []})["found"], image)]
    if not gold:
        return dict.fromkeys(NAMES, np.nan)
    with contextlib.redirect_stdout(io.StringIO()):
        sets = []
        for listed in (gold, said):
            one = COCO()
            one.dataset = {
                "images": [{"id": image} for image in range(len(pairs))],
                "categories": [{"id": number} for number in ids.values()],
                "annotations": [{**box, "id": number + 1} for number, box in enumerate(listed)],
            }
            one.createIndex()
            sets.append(one)
        judged = COCOeval(*sets, "bbox")
        judged.params.iouThrs = np.array([0.3, *np.linspace(0.5, 0.95, 10)])
        judged.evaluate()
        judged.accumulate()
    precision = judged.eval["precision"][:, :, :, 0, -1]  # thresholds, recalls, classes
    assert (precision > -1).all()
    return dict(zip(NAMES, (precision[0].mean(), precision[1].mean(), precision[1:].mean()), strict=True))
