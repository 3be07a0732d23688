"""Small local datasets with the features of those on the hub: names, nesting, form of boxes, values of labels.

A function of `BUILDERS` writes the dataset of a preset into a folder as the hub stores it, and returns the path that
`viewbox data check PRESET --path …` takes. `docs/datasets/` names the source of each feature.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, Features, Image, Value
from PIL import Image as Pillow

from tests.support.data_kit import write_jsonl
from tests.support.image_files import saved

ROOT = Path(__file__).resolve().parents[2]
Row = dict[str, Any]


def draw(number: int, size: tuple[int, int] = (96, 64)) -> Pillow.Image:
    """A picture that is different for each number."""
    return Pillow.fromarray(np.random.default_rng(number).integers(0, 255, size[::-1], dtype=np.uint8))


def encode(number: int, form: str = "PNG") -> Row:
    """A picture as the library `datasets` stores it in Parquet."""
    return {"bytes": saved(draw(number).convert("RGB"), form), "path": None}


def write(path: Path, number: int, size: tuple[int, int] = (96, 64)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draw(number, size).save(path)


def texts(*names: str) -> Row:
    return {name: Value("string") for name in names}


def write_parquet(folder: Path, rows: list[Row], features: Row, name: str = "data/train-00000-of-00001") -> Path:
    path = folder / f"{name}.parquet"
    path.parent.mkdir(exist_ok=True)
    Dataset.from_list(rows, features=Features(features)).to_parquet(path)
    return folder


def vqa_rad(folder: Path) -> Path:
    """flaviagiammarino/vqa-rad: an image, a question, an answer; splits train and test, as Parquet."""
    pairs = [
        ("is there evidence of an aortic aneurysm?", "yes"), ("is the lung healthy?", "no"),
        ("what type of image is this?", "chest x-ray"), ("where is the mass located?", "right upper lobe"),
    ]  # fmt: skip
    rows = [{"image": encode(i, "JPEG"), "question": q, "answer": a} for i, (q, a) in enumerate(pairs)]
    for split, count in (("train", 4), ("test", 2)):
        features = {"image": Image(), **texts("question", "answer")}
        write_parquet(folder, rows[:count], features, f"data/{split}-00000-of-00001")
    return folder


def slake(folder: Path) -> Path:
    """BoKelvin/SLAKE: train.json, validation.json and test.json, lists of objects, beside the folder imgs."""
    keys = "question answer q_lang location modality answer_type base_type content_type".split()  # noqa: SIM905
    rows = [
        ("What modality is used to take this image?", "MRI", "en", "Abdomen", "MRI", "OPEN", "vqa", "Modality"),
        ("Does the picture contain liver?", "Yes", "en", "Abdomen", "CT", "CLOSED", "vqa", "Organ"),
        ("Which side of the lung is abnormal?", "Left", "en", "Lung", "X-Ray", "CLOSED", "vqa", "Abnormality"),
        ("图像的扫描平面是什么?", "横断面", "zh", "Abdomen", "MRI", "OPEN", "vqa", "Plane"),
        ("How to treat pneumonia?", "Medical therapy", "en", "Lung", "X-Ray", "OPEN", "kvqa", "KG"),
    ]
    number = 0
    for split, count in (("train", 5), ("validation", 2), ("test", 5)):
        table = []
        for row in rows[:count]:
            about = {"img_id": number, "img_name": f"xmlab{number}/source.jpg", "qid": number}
            write(folder / "imgs" / about["img_name"], number)
            table.append({**about, **dict(zip(keys, row, strict=True)), "triple": ["vhead", "_", "_"]})
            number += 1
        (folder / f"{split}.json").write_text(json.dumps(table, ensure_ascii=False))
    return folder


def gemex_thinkvg(folder: Path) -> Path:
    """BoKelvin/GEMeX-ThinkVG: an answer with its places is XML text in `response`, boxes at 336 x 336.

    The images are those of MIMIC-CXR-JPG, in the folder `images` here, below the paths that the dataset names.
    """
    sides = "[[30, 60, 150, 300], [180, 60, 300, 300]]"
    cases = [
        ("Is there pneumothorax?", "closed_ended", "No", "bilateral lungs", "[[36, 42, 168, 252]]"),
        ("What is seen at the hila?", "open_ended", "normal hilar contours", "hila", "[[116, 112, 227, 182]]"),
        ("Which is right? A: effusion B: mass", "single_choice", "A", "costophrenic angle", "[200, 250, 300, 336]"),
        ("Which are right? A: edema B: effusion", "multi_choice", "A, B", "both lungs", sides),
    ]
    rows = []
    for i in range(60):  # enough that a fiftieth can be cut off
        question, kind, answer, place, boxes = cases[i % 4]
        path = f"/p10/p1000{i:04}/s5000{i:04}/{i:08x}.jpg"
        write(folder / "images" / path.lstrip("/"), i, (60, 72))
        said = f"<answer>{answer}</answer><location><ref>{place}</ref><box>{boxes}</box></location>"
        response = f"<think>The film shows it.</think><response>{said}</response>"
        about = {"image_path": path, "question": question, "question_type": f"{kind}_questions"}
        rows.append({**about, "response": response})
    return write_parquet(folder, rows, texts("image_path", "question", "question_type", "response"))


def nova(folder: Path) -> Path:
    """c-i-ber/Nova: data/nova-v1.parquet beside the folder images; boxes as x, y, width, height, each by its source."""
    cases = [
        ("Axial T2 shows a cyst in the pineal region.", "Pineal cyst", [(96, 120, 48, 40)], [(90, 118, 60, 44)]),
        ("Axial FLAIR shows two cortical tubers.", "Tuberous sclerosis", [(40, 60, 30, 24), (200, 64, 36, 30)], []),
        ("Sagittal T1 shows a mass of the clivus.", "Chordoma", [(120, 130, 60, 54)], [(118, 128, 66, 60)]),
    ]
    rows, sides = [], ("x", "y", "width", "height")
    for i, (caption, diagnosis, gold, rater) in enumerate(cases):
        name = f"case{i:04}_001.png"
        write(folder / "images" / name, i, (480, 480))
        sources = [("gold", box) for box in gold] + [("rater1", box) for box in rater]
        boxes = [{**dict(zip(sides, map(float, box), strict=True)), "source": source} for source, box in sources]
        about = {"filename": name, "case_id": f"case{i:04}", "scan_id": "001", "image_path": f"images/{name}"}
        meta = {"clinical_history": "Headache.", "final_diagnosis": diagnosis}
        rows.append({**about, "caption_text": caption, "meta": meta, "bboxes": boxes})
    features = texts("filename", "case_id", "scan_id", "caption_text", "image_path")
    features |= {"meta": texts("clinical_history", "final_diagnosis")}
    features |= {"bboxes": [dict.fromkeys(sides, Value("float64")) | texts("source")]}
    return write_parquet(folder, rows, features, "data/nova-v1")


def pubmedqa(folder: Path) -> Path:
    """qiaojin/PubMedQA, pqa_labeled: an abstract without its conclusion, and yes, no or maybe; one split."""
    context = {
        "contexts": ["Cells die in a regulated way.", "The dynamics were imaged in vivo."],
        "labels": ["BACKGROUND", "RESULTS"], "meshes": ["Alismataceae", "Apoptosis"],
        "reasoning_required_pred": ["y", "e", "s"], "reasoning_free_pred": ["y", "e", "s"],
    }  # fmt: skip
    fixed, rows = {"context": context, "long_answer": "The results depict them."}, []
    for i in range(12):
        asked = {"question": f"Do mitochondria play a role in remodelling leaves {i}?", **fixed}
        rows.append({"pubid": 21645374 + i, **asked, "final_decision": ("yes", "no", "maybe")[i % 3]})
    features = {"pubid": Value("int32"), "context": {name: [Value("string")] for name in context}}
    features |= texts("question", "long_answer", "final_decision")
    return write_parquet(folder, rows, features, "pqa_labeled/train-00000-of-00001")


def agentclinic_nejm(folder: Path) -> Path:
    """agentclinic_nejm_extended.jsonl: a patient, examinations, and five diagnoses of which one is right."""
    names = ["Contact dermatitis", "Exogenous ochronosis", "Solar lentigines", "Lichen planus", "Drug eruption"]
    rows = [
        {
            "image_url": f"https://csvc.nejm.org/ContentServer/images?id=IC2024{i:04}&width=1500&height=4000",
            "question": "A woman of 55 presented with darkening of her skin. What is the most likely diagnosis?",
            "patient_info": "You are a 55-year-old woman. Your skin has darkened for a year. You used a cream daily.",
            "physical_exams": "1. Dermoscopy: pinpoint macules. 2. Skin biopsy: banana-shaped bodies in the dermis.",
            "answers": [{"text": text, "correct": place == i % 5} for place, text in enumerate(names)],
        }
        for i in range(10)
    ]
    return write_jsonl(folder / "agentclinic_nejm_extended.jsonl", rows)


def vstar(folder: Path) -> Path:
    """craigwu/vstar_bench: test_questions.jsonl beside a folder of photographs for each category."""
    rows = []
    for i in range(10):
        category = ("direct_attributes", "relative_position")[i % 2]
        image = f"{category}/sa_{i}.jpg"
        write(folder / image, i, (400, 300))
        options = ["rubber", "cotton", "kevlar", "leather"] if i % 2 == 0 else ["left", "right"]
        lines = [f"({letter}) {option}" for letter, option in zip("ABCD", options, strict=False)]
        end = "Answer with the option's letter from the given choices directly."
        text = "\n".join(["What is the material of the glove?", *lines, end])
        label = "ABCD"[i % len(options)]
        rows.append({"image": image, "text": text, "category": category, "label": label, "question_id": str(i)})
    write_jsonl(folder / "test_questions.jsonl", rows)
    return folder


def chartqa(folder: Path) -> Path:
    """HuggingFaceM4/ChartQA: an image, a question, a list of one answer, and who wrote it; as Parquet."""
    cases = [
        ("How many food items are shown in the bar graph?", "14", 0),
        ("Is the value of the favorable view above 50?", "Yes", 0),
        ("What is the share of Italy?", "57.5", 1), ("Which year recorded the highest share?", "2016", 1),
    ]  # fmt: skip
    keys = ("image", "query", "label", "human_or_machine")
    values = (Image(), Value("string"), [Value("string")], ClassLabel(names=["human", "machine"]))
    rows = [(encode(i), query, [label], origin) for i, (query, label, origin) in enumerate(cases)]
    table = [dict(zip(keys, row, strict=True)) for row in rows]
    for split in ("train", "val", "test"):
        write_parquet(folder, table, dict(zip(keys, values, strict=True)), f"data/{split}-00000-of-00001")
    return folder


def chestagentbench(folder: Path) -> Path:
    """wanglab/chest-agent-bench: metadata.jsonl beside the folder figures; the options stand inside the question."""
    options = "A) Pneumothorax B) Effusion C) Mass D) Fibrosis E) Edema F) Cardiomegaly"
    cases = [  # (the question, the letter, categories, number of images)
        ("Which finding does the posteroanterior radiograph show?", "B", "detection,classification", 1),
        ("Which of these explains the change between the two radiographs?", "E", "comparison,diagnosis", 2),
        ("Where is the opacity, and what is the most likely diagnosis?", "C", "localization,diagnosis", 3),
        ("Which finding is the largest?", "A", "characterization", 1),
    ]
    rows = []
    for number, (question, answer, categories, count) in enumerate(cases):
        case = str(10000 + number)
        images = [f"figures/{case}/figure_{place + 1}.jpg" for place in range(count)]
        for place, image in enumerate(images):
            write(folder / image, 10 * number + place, (120, 100))
        about = {"full_question_id": f"{case}_{number}", "question_id": str(number), "case_id": case}
        about |= {"explanation": "As the discussion of the case says.", "sections": "history,image_finding"}
        about |= {"type": "single choice", "image_source_urls": [f"https://www.eurorad.org/{one}" for one in images]}
        asked = {"question": f"{question} {options}", "answer": answer, "categories": categories, "images": images}
        rows.append({**about, **asked})
    write_jsonl(folder / "metadata.jsonl", rows)
    return folder


def rexvqa(folder: Path) -> Path:
    """rajpurkarlab/ReXVQA: metadata/*.json, objects by id, beside the images of ReXGradient-160K in deid_png.

    The program on the dataset's page writes one object a line; it is run in the folder.
    """
    cases = [  # (task, question, options, the letter, number of images)
        ("presence_assessment", "Is a pleural effusion present?", ("No", "Left", "Right", "Both sides"), "C", 2),
        ("location_assessment", "Where is the opacity?", ("Apex", "Hilum", "Left base", "Right base"), "D", 1),
        ("negation_assessment", "Which is absent?", ("Edema", "Nodule", "Device", "Fracture"), "A", 1),
        ("differential_diagnosis", "What is most likely?", ("Pneumonia", "Mass", "Atelectasis", "Edema"), "B", 2),
    ]
    (folder / "metadata").mkdir(exist_ok=True)
    for first, split in enumerate(("train", "valid", "test")):
        table = {}
        for number, (task, question, options, answer, count) in enumerate(cases):
            study = f"GRDN{first}{number}"
            images = [f"../deid_png/{study}/studies/1/{place}.png" for place in range(count)]
            for place, image in enumerate(images):
                write(folder / "metadata" / image, 100 * first + 10 * number + place, (110, 120))
            about = {"study_id": study, "task_name": task, "category": "Pleural", "question": question}
            about |= {"options": [f"{letter}. {text}" for letter, text in zip("ABCD", options, strict=True)]}
            right = {"correct_answer": answer, "correct_answer_explanation": "As the report says."}
            table[f"{split}_{number}"] = {**about, **right, "ImagePath": images}
        (folder / "metadata" / f"{split}_vqa_data.json").write_text(json.dumps(table))
    page = ROOT / "docs" / "datasets" / "rexvqa.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    exec(compile(code.replace('"data/ReXVQA"', repr(str(folder))), str(page), "exec"), {})
    return folder


BUILDERS = {
    function.__name__: function
    for function in (vqa_rad, slake, gemex_thinkvg, nova, pubmedqa, agentclinic_nejm, vstar, chartqa, chestagentbench)
} | {"rexvqa": rexvqa, "pubmedqa_search": pubmedqa}  # the second without its abstracts, which its config leaves out


def build(name: str, folder: Path) -> Path:
    """Writes the dataset of a preset into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return BUILDERS[name](folder)
