"""wanglab/chest-agent-bench: metadata.jsonl beside the folder figures; the options stand inside the question."""

import json
from pathlib import Path

from tests.support.datasets.pictures import write

OPTIONS = ("A) Pneumothorax", "B) Effusion", "C) Mass", "D) Fibrosis", "E) Edema", "F) Cardiomegaly")
ROWS = [  # (the question, the letter, categories, number of images)
    ("Which finding does the posteroanterior radiograph show?", "B", "detection,classification", 1),
    ("Which of these explains the change between the two radiographs?", "E", "comparison,diagnosis", 2),
    ("Where is the opacity, and what is the most likely diagnosis?", "C", "localization,diagnosis", 3),
    ("Which finding is the largest?", "A", "characterization", 1),
]


def build(folder: Path) -> Path:
    rows = []
    for number, (question, answer, categories, count) in enumerate(ROWS):
        case = str(10000 + number)
        images = [f"figures/{case}/figure_{part + 1}.jpg" for part in range(count)]
        for part, image in enumerate(images):
            write(folder / image, 10 * number + part, (120, 100))
        rows.append(
            {
                "full_question_id": f"{case}_{number}",
                "question_id": str(number),
                "case_id": case,
                "question": f"{question} " + " ".join(OPTIONS),
                "answer": answer,
                "explanation": "As the discussion of the case says.",
                "categories": categories,
                "sections": "history,image_finding",
                "type": "single choice",
                "images": images,
                "image_source_urls": [f"https://www.eurorad.org/{image}" for image in images],
            }
        )
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
