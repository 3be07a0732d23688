"""flaviagiammarino/vqa-rad: an image, a question, an answer; splits train and test, as Parquet."""

from pathlib import Path

from datasets import Dataset, Features, Image, Value

from tests.support.datasets.pictures import encode

FEATURES = Features({"image": Image(), "question": Value("string"), "answer": Value("string")})
ROWS = [
    ("is there evidence of an aortic aneurysm?", "yes"),
    ("is the lung healthy?", "no"),
    ("what type of image is this?", "chest x-ray"),
    ("where is the mass located?", "right upper lobe"),
]


def build(folder: Path) -> Path:
    for split, rows in (("train", ROWS), ("test", ROWS[:2])):
        (folder / "data").mkdir(exist_ok=True)
        table = [{"image": encode(i, form="JPEG"), "question": q, "answer": a} for i, (q, a) in enumerate(rows)]
        Dataset.from_list(table, features=FEATURES).to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")
    return folder
