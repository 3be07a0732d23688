"""Reads the answer of `literature_vqa` from what was shown, and from nothing else: the messages of an episode."""

import re

from viewbox.envs.literature_vqa import world


def write_pattern(text):
    """Return what finds a question, with its names; a name that comes again is the same."""
    pattern = re.escape(text)
    for name in ("name", "drug"):
        first, *rest = pattern.split(rf"\{{{name}\}}")
        pattern = first + "".join((rf"(?P={name})" if k else rf"(?P<{name}>.+?)") + part for k, part in enumerate(rest))
    return re.compile(pattern)


QUESTIONS = {question: write_pattern(text) for question, text in world._SENTENCES["questions"].items()}
SAID = {
    "shows": r"with {name} the film showed an? (\w+) in the (\w+) lung",
    "therapy": r"give first for {name}, (\w+) is",
    "dose": r"For {name} the dose of {drug} is (\d+) mg a day if the film shows an? \w+, and (\d+) mg",
    "effect": r"with {name} on {drug}, (\d+) %",
    "cause": r"After exposure to {name}, ([^.]+)\.",
    "class": r"In the {name} a lesion ([^.]+)\.",
    "limit": r"A patient with a {name} may be scanned for (\d+) minutes",
}
PAIRS = {"cause": r"an? (\w+) means ([A-Z]\w+ \w+)", "class": r"of the ([\w ]+?) is (class \w+)"}
ITEM = re.compile(r"^\[\d+\] PMID (\d+), (\d{4}|year unknown)[^\n]*?(, RETRACTED)?$", re.MULTILINE)


def read_answer(messages):
    """Return what the newest article that stands says, and the PMIDs of those that agree; (None, []) if none does."""
    text = "\n".join(message.text for message in messages)
    question, names = find_question(text)
    pattern = SAID[question].format(**{name: re.escape(value) for name, value in names.items()})
    found = []
    items = list(ITEM.finditer(text))
    ends = [match.start() for match in items[1:]] + [len(text)] * bool(items)
    for match, end in zip(items, ends, strict=True):
        said = re.search(pattern, text[match.end() : end])
        if said and not match[3]:
            found.append((match[2], match[1], read_value(question, said)))
    if match := re.search(pattern, text[: text.index(names["name"]) + len(names["name"]) + 60]):
        found.append(("9999", "", read_value(question, match)))  # the question says it
    newest = max(found, default=(None, None, None))[2]
    return newest, sorted({pmid for _, pmid, value in found if value == newest and pmid})


def find_question(text):
    for question, pattern in QUESTIONS.items():
        if match := pattern.search(text):
            return question, match.groupdict()
    raise AssertionError(f"no question in {text[:300]!r}")


def read_value(question, match):
    if question in PAIRS:
        return dict(re.findall(PAIRS[question], match[1]))
    values = tuple(int(part) if part.isdigit() else part for part in match.groups())
    return values if len(values) > 1 else values[0]
