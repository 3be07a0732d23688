"""The sentences of the invented articles, and of the questions about them."""

from collections.abc import Iterable, Mapping
from typing import Any

from .world import Fact, Question

ARTICLES = {"effusion": "an effusion", "pneumothorax": "a pneumothorax", "consolidation": "a consolidation",
            "nodule": "a nodule"}  # fmt: skip

TITLES: Mapping[Question, tuple[str, ...]] = {
    "shows": (
        "The chest film in {name}",
        "{name} on the frontal film: case series",
        "Radiographic finding of {name}",
    ),
    "therapy": ("Guideline for first-line treatment of {name}", "Which drug first in {name}? A guideline"),
    "dose": ("Dose of {drug} in {name}: a guideline", "{drug} for {name}: recommended daily dose"),
    "effect": ("{drug} in {name}: a randomized trial", "Relapse of {name} on {drug} versus placebo (n ≥ 24)"),
    "cause": ("Lung disease after exposure to {name}", "Exposure to {name}: which film means which disease"),
    "class": ("The {name} of solid abdominal lesions", "{name}: classes of a solid lesion by organ"),
    "limit": ("Scanning patients with a {name}: a guideline", "Safe scan time with a {name}"),
}
BACKGROUNDS = (
    "Much about {name} is unknown.",
    "{name} was described by its discoverers in a single town.",
    "Interest in {name} has grown in recent years.",
    "Registers list {name} in eleven countries.",
    "Costs that go with {name} are rarely counted (≈ 4 % of a budget).",
    "Teaching about {name} differs between schools.",
)
WORK = (
    "We followed {count} people for two years.",
    "Records of {count} people from nine hospitals were read by two observers (κ = 0.81).",
    "A panel of experts weighed the data of {count} people.",
    "Data of {count} people were collected by the centers of a network.",
)
GENERAL = (
    ("Noise in drawn chest films", "Noise follows the exposure. We drew films at four doses and counted photons."),
    ("Window widths for drawn slices", "A narrow window shows faint lesions. We compared widths of 30 to 400 HU."),
    ("Reading films on two screens", ""),
    ("Rings that are no lesions", "A ring with a core as bright as its organ is no lesion. Readers confuse both."),
    ("How to cite a retracted article", "RETRACTED articles are cited for years. Do not cite them as evidence."),
    ("Naïve observers and the λ of a scanner", "β-errors of naïve observers fell from 12 % to 7 % (p < 0.05)."),
    ("Letters of lead on films", "The letter L lies beside the patient's left shoulder, on the right of the picture."),
    ("A history of imagined radiology", "The field began with a drawing. This essay has no data."),
    ("Guidelines replace each other", "The newest guideline counts. Older ones are kept for historians."),
    ("Abstracts without numbers", ""),
    ("Ordinateurs et radiologie fictive: où en sommes-nous?", "Étude sans données. Aucune conclusion n'est tirée."),
    ("Sleep of observers", "Observers slept 7.2 hours. Reading was unchanged."),
)  # fmt: skip
QUESTIONS: Mapping[Question, str] = {
    "shows": "The patient may have {name}. Does this film show the finding of {name}, on its side? Answer yes or no.",
    "therapy": "The patient has {name}. Which drug does the literature recommend first?",
    "dose": "The patient has {name} and gets {drug}. How many mg a day are recommended? The dose depends on this film.",
    "effect": "The patient has {name}. What share of patients on {drug} relapsed within a year, in percent?",
    "cause": "The patient was exposed to {name}. Which disease does this film mean?",
    "class": "This slice shows one solid lesion. Which class has it in the {name}?",
    "limit": "The patient has a {name}. For how many minutes at most may the patient be scanned?",
}
WORDS: Mapping[Question, str] = {  # that a search for the answer adds to the name
    "shows": "frontal film finding lung",
    "therapy": "drug recommended first guideline",
    "dose": "{drug} mg a day dose",
    "effect": "{drug} relapsed within a year",
    "cause": "film means disease exposure",
    "class": "class of a lesion by organ",
    "limit": "scanned minutes at most",
}
MISSING: Mapping[Question, str] = {
    "shows": "what films show in it",
    "therapy": "which drug should come first",
    "dose": "which dose is right",
    "effect": "how many patients relapse on a drug",
    "cause": "which film means which disease",
    "class": "how its classes are assigned",
    "limit": "how long a scan may take",
}


def ask(fact: Fact) -> str:
    """Return the question about a fact."""
    return QUESTIONS[fact.question].format(name=fact.topic.name, drug=fact.drug)


def write_query(fact: Fact) -> str:
    """Words that find the articles about a fact."""
    return f"{fact.topic.name} {WORDS[fact.question].format(drug=fact.drug)}"


def write_missing(fact: Fact) -> str:
    """Return the sentence of a review about a fact that nobody has reported."""
    return f"No study of {fact.topic.name} has reported {MISSING[fact.question]}."


def state(fact: Fact, value: Any, count: int) -> str:
    """Return the sentence that states a value of a fact."""
    name = fact.topic.name
    match fact.question:
        case "shows":
            return f"In all {count} people with {name} the film showed {ARTICLES[value[0]]} in the {value[1]} lung."
        case "therapy":
            return f"As the drug to give first for {name}, {value} is recommended."
        case "dose":
            return (
                f"For {name} the dose of {fact.drug} is {value[0]} mg a day if the film shows {ARTICLES[fact.sign]}, "
                f"and {value[1]} mg a day if it does not."
            )
        case "effect":
            return f"Of those with {name} on {fact.drug}, {value} % relapsed within a year."
        case "cause":
            return f"After exposure to {name}, {_list(f'{ARTICLES[sign]} means {one}' for sign, one in value.items())}."
        case "class":
            return f"In the {name} a lesion {_list(f'of the {organ} is {one}' for organ, one in value.items())}."
    return f"A patient with a {name} may be scanned for {value} minutes at most."


def _list(parts: Iterable[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)}, and {last}"
