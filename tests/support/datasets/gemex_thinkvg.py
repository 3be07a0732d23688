"""BoKelvin/GEMeX-ThinkVG: one Parquet file; an answer with its places is XML text in `response`, boxes at 336 x 336.

The images are those of MIMIC-CXR-JPG, in the folder `images` here, below the paths that the dataset names.
"""

from pathlib import Path

from datasets import Dataset, Features, Value

from tests.support.datasets.pictures import write

FEATURES = Features({name: Value("string") for name in ("image_path", "question", "question_type", "response")})
ROWS = [
    ("Is there pneumothorax?", "closed_ended_questions", "No", "bilateral lungs", "[[36, 42, 168, 252]]"),
    ("What is seen at the hila?", "open_ended_questions", "normal hilar contours", "hila", "[[116, 112, 227, 182]]"),
    (
        "Which one is right? A: effusion B: mass", "single_choice_questions", "A", "left costophrenic angle",
        "[200, 250, 300, 336]",
    ),
    (
        "Which are right? A: edema B: effusion", "multi_choice_questions", "A, B", "both lungs",
        "[[30, 60, 150, 300], [180, 60, 300, 300]]",
    ),
]  # fmt: skip


def build(folder: Path) -> Path:  # fmt: skip
    rows = []
    for i in range(60):  # enough that a fiftieth can be cut off
        question, kind, answer, place, boxes = ROWS[i % 4]
        path = f"/p10/p1000{i:04}/s5000{i:04}/{i:08x}.jpg"
        write(folder / "images" / path.lstrip("/"), i, (60, 72))
        response = f"<answer>{answer}</answer><location><ref>{place}</ref><box>{boxes}</box></location>"
        rows.append(
            {
                "image_path": path,
                "question": question,
                "question_type": kind,
                "response": f"<think>The film shows it.</think><response>{response}</response>",
            }
        )
    (folder / "data").mkdir(exist_ok=True)
    Dataset.from_list(rows, features=FEATURES).to_parquet(folder / "data" / "train-00000-of-00001.parquet")
    return folder
