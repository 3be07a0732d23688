"""craigwu/vstar_bench: test_questions.jsonl beside a folder of photographs for each category."""

import json
from pathlib import Path

from tests.support.datasets.pictures import write

END = "Answer with the option's letter from the given choices directly."


def build(folder: Path) -> Path:
    rows = []
    for i in range(10):
        category = ("direct_attributes", "relative_position")[i % 2]
        image = f"{category}/sa_{i}.jpg"
        write(folder / image, i, (400, 300))
        options = ["rubber", "cotton", "kevlar", "leather"] if i % 2 == 0 else ["left", "right"]
        lines = [f"({letter}) {option}" for letter, option in zip("ABCD", options, strict=False)]
        text = "\n".join(["What is the material of the glove?", *lines, END])
        label = "ABCD"[i % len(options)]
        rows.append({"image": image, "text": text, "category": category, "label": label, "question_id": str(i)})
    (folder / "test_questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
