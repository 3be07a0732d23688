"""AgentClinic's agentclinic_nejm_extended.jsonl: a patient, examinations, and five diagnoses of which one is right."""

import json
from pathlib import Path

DIAGNOSES = ["Contact dermatitis", "Exogenous ochronosis", "Solar lentigines", "Lichen planus", "Drug eruption"]


def build(folder: Path) -> Path:
    path = folder / "agentclinic_nejm_extended.jsonl"
    rows = [
        {
            "image_url": f"https://csvc.nejm.org/ContentServer/images?id=IC2024{i:04}&width=1500&height=4000",
            "question": "A woman of 55 presented with darkening of her skin. What is the most likely diagnosis?",
            "patient_info": "You are a 55-year-old woman. Your skin has darkened for a year. You used a cream daily.",
            "physical_exams": "1. Dermoscopy: pinpoint macules. 2. Skin biopsy: banana-shaped bodies in the dermis.",
            "answers": [{"text": text, "correct": place == i % 5} for place, text in enumerate(DIAGNOSES)],
        }
        for i in range(10)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
