"""rajpurkarlab/ReXVQA: metadata/*.json, objects by id, beside the images of ReXGradient-160K in deid_png.

`convert` is the program on the dataset's page, which writes one object a line.
"""

import json
import re
from pathlib import Path

from tests.support.datasets.pictures import write

PAGE = Path(__file__).resolve().parents[3] / "docs" / "datasets" / "rexvqa.md"
ROWS = [  # (task, question, options, the letter, number of images)
    ("presence_assessment", "Is a pleural effusion present?", ("No", "Left", "Right", "Both sides"), "C", 2),
    ("location_assessment", "Where is the opacity?", ("Apex", "Hilum", "Left base", "Right base"), "D", 1),
    ("negation_assessment", "Which is absent?", ("Edema", "Nodule", "Device", "Fracture"), "A", 1),
    ("differential_diagnosis", "What is most likely?", ("Pneumonia", "Mass", "Atelectasis", "Edema"), "B", 2),
]


def convert(folder: Path) -> None:
    """Run the program of the page in the folder of the dataset."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    exec(compile(code.replace('"data/ReXVQA"', repr(str(folder))), str(PAGE), "exec"), {})


def build(folder: Path) -> Path:
    (folder / "metadata").mkdir(exist_ok=True)
    for first, split in enumerate(("train", "valid", "test")):
        table = {}
        for number, (task, question, options, answer, count) in enumerate(ROWS):
            study = f"GRDN{first}{number}"
            images = [f"../deid_png/{study}/studies/1/{part}.png" for part in range(count)]
            for part, image in enumerate(images):
                write(folder / "metadata" / image, 100 * first + 10 * number + part, (110, 120))
            table[f"{split}_{number}"] = {
                "study_id": study,
                "task_name": task,
                "category": "Pleural",
                "question": question,
                "options": [f"{letter}. {text}" for letter, text in zip("ABCD", options, strict=True)],
                "correct_answer": answer,
                "correct_answer_explanation": "As the report says.",
                "ImagePath": images,
            }
        (folder / "metadata" / f"{split}_vqa_data.json").write_text(json.dumps(table))
    convert(folder)
    return folder
