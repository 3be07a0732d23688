"""BoKelvin/SLAKE: train.json, validation.json and test.json, lists of objects, beside the folder imgs."""

import json
from pathlib import Path

from tests.support.datasets.pictures import write

ROWS = [
    ("What modality is used to take this image?", "MRI", "en", "Abdomen", "MRI", "OPEN", "vqa", "Modality"),
    ("Does the picture contain liver?", "Yes", "en", "Abdomen", "CT", "CLOSED", "vqa", "Organ"),
    ("Which side of the lung is abnormal?", "Left", "en", "Lung", "X-Ray", "CLOSED", "vqa", "Abnormality"),
    ("图像的扫描平面是什么?", "横断面", "zh", "Abdomen", "MRI", "OPEN", "vqa", "Plane"),
    ("How to treat pneumonia?", "Medical therapy", "en", "Lung", "X-Ray", "OPEN", "kvqa", "KG"),
]


def build(folder: Path) -> Path:
    number = 0
    for split, rows in (("train", ROWS), ("validation", ROWS[:2]), ("test", ROWS)):
        table = []
        for question, answer, language, location, modality, kind, base, content in rows:
            name = f"xmlab{number}/source.jpg"
            write(folder / "imgs" / name, number)
            table.append(
                {
                    "img_id": number, "img_name": name, "question": question, "answer": answer, "q_lang": language,
                    "location": location, "modality": modality, "answer_type": kind, "base_type": base,
                    "content_type": content, "triple": ["vhead", "_", "_"], "qid": number,
                }
            )  # fmt: skip
            number += 1
        (folder / f"{split}.json").write_text(json.dumps(table, ensure_ascii=False))
    return folder
