"""c-i-ber/Nova: data/nova-v1.parquet beside the folder images; boxes as x, y, width, height, each by its source."""

from pathlib import Path

from datasets import Dataset, Features, Value

from tests.support.datasets.pictures import write

TEXTS = {name: Value("string") for name in ("filename", "case_id", "scan_id", "caption_text", "image_path")}
BOX = {**{name: Value("float64") for name in ("x", "y", "width", "height")}, "source": Value("string")}
META = {name: Value("string") for name in ("clinical_history", "final_diagnosis")}
FEATURES = Features({**TEXTS, "meta": META, "bboxes": [BOX]})
CASES = [
    ("Axial T2 shows a cyst in the pineal region.", "Pineal cyst", [(96, 120, 48, 40)], [(90, 118, 60, 44)]),
    ("Axial FLAIR shows two cortical tubers.", "Tuberous sclerosis", [(40, 60, 30, 24), (200, 64, 36, 30)], []),
    ("Sagittal T1 shows a mass of the clivus.", "Chordoma", [(120, 130, 60, 54)], [(118, 128, 66, 60)]),
]


def build(folder: Path) -> Path:
    rows = []
    for i, (caption, diagnosis, gold, rater) in enumerate(CASES):
        name = f"case{i:04}_001.png"
        write(folder / "images" / name, i, (480, 480))
        boxes = [("gold", box) for box in gold] + [("rater1", box) for box in rater]
        rows.append(
            {
                "filename": name,
                "case_id": f"case{i:04}",
                "scan_id": "001",
                "caption_text": caption,
                "image_path": f"images/{name}",
                "meta": {"clinical_history": "Headache.", "final_diagnosis": diagnosis},
                "bboxes": [
                    {**dict(zip(("x", "y", "width", "height"), map(float, box), strict=True)), "source": source}
                    for source, box in boxes
                ],
            }
        )
    (folder / "data").mkdir(exist_ok=True)
    Dataset.from_list(rows, features=FEATURES).to_parquet(folder / "data" / "nova-v1.parquet")
    return folder
