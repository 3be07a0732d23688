"""HuggingFaceM4/ChartQA: an image, a question, a list of one answer, and who wrote it; as Parquet."""

from pathlib import Path

from datasets import ClassLabel, Dataset, Features, Image, Value

from tests.support.datasets.pictures import encode

FEATURES = Features(
    {
        "image": Image(),
        "query": Value("string"),
        "label": [Value("string")],
        "human_or_machine": ClassLabel(names=["human", "machine"]),
    }
)
ROWS = [
    ("How many food items are shown in the bar graph?", "14", 0),
    ("Is the value of the favorable view above 50?", "Yes", 0),
    ("What is the share of Italy?", "57.5", 1),
    ("Which year recorded the highest share?", "2016", 1),
]


def build(folder: Path) -> Path:
    (folder / "data").mkdir(exist_ok=True)
    for split in ("train", "val", "test"):
        table = [
            {"image": encode(i), "query": query, "label": [label], "human_or_machine": origin}
            for i, (query, label, origin) in enumerate(ROWS)
        ]
        Dataset.from_list(table, features=FEATURES).to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")
    return folder
