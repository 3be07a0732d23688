"""What the referring doctor says to a question back: the facts in the fields that it asks about, and nothing else.

A sentence of the facts belongs to fields, and a question asks about some. A side is that of the pain: the doctor has
not seen the film, so a question for the side of a finding has no answer.
"""

import re
from collections.abc import Mapping

from ...utils.values import fold_text
from ..consultation import find_facts, split_facts

MAX_CHARS = 500  # of a question that are read
FIELDS: Mapping[str, str] = {
    "complaint": r"complain\w*|symptoms?|indication|reason|why|brings?|brought|present(ed|ing|ation)?|came"
    r"|referred|referral|prompt(ed|s)|fever\w*|cough\w*|dyspn\w*|breath\w*",
    "smoking": r"smok\w*|tobacco|nicotine|cigar\w*|pack.years?",
    "duration": r"how long|how many (days|weeks|months)|since|when|beg[aiu]n|started?|onset|duration|ago|acute|chronic"
    r"|sudden\w*|quickly|lasted|length of time|days?|weeks?|months?",
    "age": r"age|aged|old|older|elderly|young|born|birth|lived|over \d+|under \d+",
    "history": r"history|background|conditions?|ill|illness\w*|diseases?|operations?|operated|(?<!before )surger\w*"
    r"|cancers?|malignan\w*|tumou?rs?|comorbid\w*|asthma|copd|diabetes|tuberculosis|heart failure",
}
GENERAL = r"about (the|this|your) patient|clinical (information|context|picture)|tell me more"
SIDE = r"sides?|sided|half|left|right|where|laterality|locat\w*|hemithorax|lungs?"
PAIN = r"pain\w*|hurts?|hurting|aches?|aching|sore|tender\w*|feels?|discomfort|troubl\w*|bother\w*|symptomatic"
FILM = (
    r"films?|images?|pictures?|x.?rays?|radiographs?|findings?|opacit\w*|shadows?|lesions?|nodules?|effusions?|angle"
    r"|consolidations?|pneumothora\w*|abnormal\w*|see|seen|shown?|shows|zoom|views?|tools?|classifier|answer"
    r"|marker|letter"
)


def _has(pattern: str, text: str) -> bool:
    return re.search(rf"\b({pattern})\b", text) is not None


def find_fields(question: str, about: str = "") -> set[str]:
    """Return the fields that a question asks about; `about` is the question of the task, which "which side?" means.

    >>> find_fields("On which side is the pain, and since when?") == {"side", "duration"}
    True
    >>> find_fields("Is the finding left or right?"), find_fields("Left or right?", about="There is pain on one side.")
    (set(), {'side'})
    """
    text = fold_text(question[:MAX_CHARS])
    film, pain, place = _has(FILM, text), _has(PAIN, text), _has(SIDE, text)
    fields = {field for field, pattern in FIELDS.items() if _has(pattern, text)}
    if "smoking" in fields and _has(r"(smok\w*|tobacco) history|history of (smok\w*|tobacco)", text):
        fields -= {"history"}
    if "duration" in fields and not _has("why|reason|indication|brings?|brought|what", text):
        fields -= {"complaint"}  # "when did the symptoms start?"
    if "age" in fields and _has("born|birth", text):
        fields -= {"duration"}
    if film and not pain:
        fields -= {"duration", "history"}
    if place and (pain or (not film and not fields and _has(PAIN, fold_text(about)))):
        fields |= {"side"}
    if _has("(in|any|have|has|having) (any )?pain", text) and not fields:
        fields = {"side"}
    return fields or ({"age", "complaint"} if _has(GENERAL, text) else set())


def name_fields(sentence: str) -> set[str]:
    """Return the fields of a sentence of the facts.

    >>> sorted(name_fields("The cough began last week."))
    ['complaint', 'duration']
    """
    text = fold_text(sentence)
    if _has("sides?|left|right", text) and _has(PAIN, text):
        return {"side"}
    return {field for field, pattern in FIELDS.items() if _has(pattern, text)}


def reply(facts: str, question: str, about: str = "") -> str:
    """Return the sentences of the facts that a question asks for; empty if there are none.

    Sentences without a field, which only facts of your own have, are found by words in common.
    """
    sentences = split_facts(facts)
    asked = find_fields(question, about)
    said = [sentence for sentence in sentences if name_fields(sentence) & asked]
    if said or asked or _has(FILM, fold_text(question)):
        return " ".join(said)
    return find_facts("\n".join(sentence for sentence in sentences if not name_fields(sentence)), question)
