"""qiaojin/PubMedQA, pqa_labeled: an abstract without its conclusion, and yes, no or maybe; one split, as Parquet."""

from pathlib import Path

from datasets import Dataset, Features, Value

TEXTS = ["contexts", "labels", "meshes", "reasoning_required_pred", "reasoning_free_pred"]
FEATURES = Features(
    {
        "pubid": Value("int32"),
        "question": Value("string"),
        "context": {name: [Value("string")] for name in TEXTS},
        "long_answer": Value("string"),
        "final_decision": Value("string"),
    }
)


def build(folder: Path) -> Path:
    rows = [
        {
            "pubid": 21645374 + i,
            "question": f"Do mitochondria play a role in remodelling leaves {i}?",
            "context": {
                "contexts": ["Cells die in a regulated way.", "The dynamics were imaged in vivo."],
                "labels": ["BACKGROUND", "RESULTS"],
                "meshes": ["Alismataceae", "Apoptosis"],
                "reasoning_required_pred": ["y", "e", "s"],
                "reasoning_free_pred": ["y", "e", "s"],
            },
            "long_answer": "The results depict them.",
            "final_decision": ("yes", "no", "maybe")[i % 3],
        }
        for i in range(12)
    ]
    (folder / "pqa_labeled").mkdir(exist_ok=True)
    Dataset.from_list(rows, features=FEATURES).to_parquet(folder / "pqa_labeled" / "train-00000-of-00001.parquet")
    return folder
