"""What a policy would try in `software_adviser`: tricks earn less than an honest recommendation, guessing little."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.software import choose, find_task
from tests.support.tables import each
from viewbox import make
from viewbox.core.messages import write_call
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.envs.software_adviser.demonstrations import write_query, write_question
from viewbox.envs.software_adviser.phrases import QUESTIONS
from viewbox.envs.software_adviser.reasons import describe_tool, rate_why
from viewbox.envs.software_adviser.request import REASONS, SUITABLE
from viewbox.envs.software_adviser.scenes import SCENES
from viewbox.envs.software_adviser.tools import write_tool

ENV = make("software_adviser", split="test", boundary=False, follow_ups=0.0)
TASKS = ENV.tasks[:50]
NAMES = list(ENV.software)
END = json.dumps({"explanation": "I stop here."})


CLEAR, VAGUE, NOTHING, BROKEN = (
    find_task(ENV, "answerable", True), find_task(ENV, "ambiguous"), find_task(ENV, "no_task_match"),
    find_task(ENV, "invalid_files"),
)  # fmt: skip


def get_gold(task):
    return [dict(choice) for choice in json.loads(ENV.write_answer(task))["choices"]]


def get_names(task):
    return [choice["name"] for choice in get_gold(task)]


def list_unsuitable(task):
    """Names that the oracle's first search returns and that do not fit."""
    query = write_query(ENV.get_request(task))
    names = ENV.retriever.search(query, top_k=12, exclude=ENV.get_request(task).withheld)
    return [name for name in names if name not in task.reference.get("suitable", ())]


def play(task, *replies):
    return ENV.play(task, ScriptedPolicy(replies))


def ask(text):
    return json.dumps({"conversation": {"question": text, "context": "Tools differ in this."}})


def change(task, **fields):
    return {"choices": [{**choice, **fields} for choice in get_gold(task)]}


OTHERS, FIRST, RIGHT = list_unsuitable(CLEAR), get_names(CLEAR)[0], get_names(CLEAR)
REPOSITORY = ENV.software[FIRST].repository


@each("task", [CLEAR, VAGUE, NOTHING, BROKEN])
def test_the_honest_answers_score_one_from_the_record_alone(task):
    episode = play(task, *ENV.oracle(task), ENV.write_answer(task))
    assert episode.scores.total == pytest.approx(1.0)
    assert ENV.score(episode) == episode.scores


@each("task, answer, most", [  # an answer after the oracle's looks
    *((CLEAR, answer, 0.0) for answer in (
        # names that nobody has, and names that are none
        choose("UltraImage Pro"), choose(f"I recommend {FIRST}"), choose(", ".join(RIGHT)),
        choose(*OTHERS[:3], accuracy=0),  # returned, and unsuitable
        # no choice
        {"reason": "no_suitable_tool"}, {"explanation": "Fiji, napari and ITK-SNAP would be good choices."},
        {"explanation": " ".join(RIGHT)}, {"conversation": {"question": "Which?", "options": RIGHT}},
        {"conversation": {"status": "complete"}, "explanation": "done"})),
    (CLEAR, choose("UltraImage Pro", *RIGHT[:2]), 0.1), (CLEAR, choose(*get_names(VAGUE)[:1]), 0.1),
    # ranking, accuracies that are wrong, links that are no demos, a short list
    (CLEAR, choose(*OTHERS[:2], FIRST), 0.8), (CLEAR, change(CLEAR, accuracy=0), 0.9),
        (CLEAR, change(CLEAR, accuracy=50), 0.95),
    (CLEAR, choose(FIRST, *OTHERS[:2]), 0.85), (CLEAR, change(CLEAR, demo_link="https://demo.example.com"), 0.95),
    (CLEAR, change(CLEAR, demo_link=REPOSITORY), 0.96), (CLEAR, choose(FIRST), 0.85),
    *((NOTHING, answer, 0.0) for answer in (
        choose(*list_unsuitable(NOTHING)[:1], accuracy=0),
            {**choose(*list_unsuitable(NOTHING)[:1]), "reason": "no_task_match"},
        {"reason": "no_suitable_tool"}, {"explanation": ", ".join(REASONS)})),
    *((BROKEN, answer, 0.0) for answer in (choose("Fiji"), {"reason": "no_suitable_tool"})),
])  # fmt: skip
def test_a_trick_with_the_answer_earns_less_than_an_honest_one(task, answer, most):
    episode = play(task, *ENV.oracle(task), json.dumps(answer), *[END] * 3)
    assert episode.scores.total <= most + 1e-9
    assert ENV.score(episode) == episode.scores  # from the record alone


GOOD = ENV.write_answer(CLEAR)
SEARCH = next(reply for reply in ENV.oracle(CLEAR) if "search_tools" in reply)
FACTS = write_question(next(iter(ENV.get_request(VAGUE).hidden)))
AFTER = [*(reply for reply in ENV.oracle(VAGUE) if "search" in reply), ENV.write_answer(VAGUE)]


def search(words):
    return write_call("search_tools", {"query": words})


@each(("task", "replies", "most"), [
    # nothing that was returned: from memory, after a search for nothing or for others, by another tool
    *((CLEAR, [*looks, GOOD], 0.1) for looks in ([], [search(" ")], [search("PACS server")],
        [write_call("repo_info_batch", {"urls": [ENV.software[name].repository for name in RIGHT]})])),
    # a needless question, only questions, two of them; none where a fact was missing, and some that ask for another
    (CLEAR, [ask("Anything else?"), *ENV.oracle(CLEAR), GOOD], 0.86), (CLEAR, [ask("Which format?")] * 4, 0.0),
    (VAGUE, [FACTS, FACTS, *AFTER], 0.0),
    *((VAGUE, [*asked, *AFTER], 0.86) for asked in ([], [ask("Tell me all.")], [ask("May I?")])),
    # no search at all, and one that is refused
    (NOTHING, [ENV.write_answer(NOTHING)], 0.81),
    (NOTHING, [write_call("search_tools", {"query": "forgery", "top_k": 99}), ENV.write_answer(NOTHING)], 0.81),
    (NOTHING, [ask("Why?"), *ENV.oracle(NOTHING), ENV.write_answer(NOTHING)], 0.91),
    # invalid answers: three are forgiven, and these are refused
    (CLEAR, [json.dumps(choose("a", "a"))] * 3 + [*ENV.oracle(CLEAR), GOOD], 0.99),
    (CLEAR, [json.dumps(choose("a", "a"))] * 4, 0.0),
    *((CLEAR, [*ENV.oracle(CLEAR), *[json.dumps(answer)] * 4], 0.0) for answer in (change(CLEAR, rank=1),
        choose(*NAMES[:20]), choose(*NAMES), choose(*[FIRST] * 3), choose(FIRST, FIRST.upper(), f" {FIRST} "))),
    *((task, [SEARCH * 5] * 10, 0.0) for task in (CLEAR, NOTHING)),  # over quota
])  # fmt: skip
def test_a_trick_with_the_replies_earns_less_than_an_honest_episode(task, replies, most):
    assert play(task, *replies, *[END] * 12).scores.total <= most + 1e-9


# ---- whole policies
def make_random(task, rng):
    """Searches for the user's words and then asks, gives a reason, or picks among what was found."""
    state = int(rng.integers(3))
    request = ENV.get_request(task)
    exclude = (*request.exclude, *request.withheld)
    names = ENV.retriever.search(task.prompt["words"], top_k=12, exclude=exclude, formats=request.known_formats)
    picked = [names[i] for i in rng.permutation(len(names))[: task.prompt["choices"]]]
    said = choose(*picked, accuracy=int(rng.integers(101))) if picked else json.loads(END)
    if state == 0:
        return [search(task.prompt["words"]), json.dumps({"reason": str(rng.choice(REASONS))})]
    if state == 1:
        return [write_question(str(rng.choice(list(QUESTIONS)))), search(task.prompt["words"]), json.dumps(said)]
    return [search(task.prompt["words"]), json.dumps(said)]


def first_hit(messages):
    """An answer with the names of the last search, as many as are allowed."""
    found = [line for message in messages if message.role == "tool" for line in message.text.splitlines()]
    names = [line.split("] ", 1)[1].split(": ", 1)[0] for line in found if line.startswith("[")]
    return json.dumps(choose(*names[:3], accuracy=85)) if names else END


def play_heuristic(task, *, asks=False, names=None):
    def policy(messages):
        said = sum(message.role == "assistant" for message in messages)
        if asks and said == 0:
            return ask("What do you want to do with the images, in which format and dimensions are they?")
        if said == int(asks):
            return search(task.prompt["words"])
        return first_hit(messages) if names is None else json.dumps(choose(*names, accuracy=85))

    return ENV.play(task, policy)


def score(episodes):
    return float(np.mean([episode.scores.total for episode in episodes]))


def test_guessing_in_the_right_form_scores_below_a_fifth():
    rng = np.random.default_rng(0)
    replies = {task.id: make_random(task, rng) for task in TASKS}
    assert score(play(task, *replies[task.id], END, END, END) for task in TASKS) < 0.2


def test_the_best_scripted_heuristic_scores_below_three_fifths():
    """The first hits of the search; the software that is right most often; a question before everything else."""
    often = Counter(name for task in TASKS for name in task.reference.get("suitable", ()))
    commonest = [name for name, _ in often.most_common(3)]
    scores = {
        "first hit": score(play_heuristic(task) for task in TASKS),
        "most frequent": score(play_heuristic(task, names=commonest) for task in TASKS),
        "always ask": score(play_heuristic(task, asks=True) for task in TASKS),
    }
    assert max(scores.values()) < 0.6, scores
    assert scores["first hit"] > 0.05, scores  # it does find something where the words tell it


# ---- reasons: a row is a software, what is said of it, the least and the most that it may earn
LUNGS = {"said": "I want to segment the lungs of this CT scan", "task": "segmentation", "modality": "CT",
         "format": "DICOM", "structure": "lung"}  # fmt: skip
WHYS = [json.loads(line) for line in Path(__file__).with_name("software_adviser_reasons.jsonl").open()]


@each(("name", "why", "least", "most"), WHYS)
def test_a_reason_earns_what_it_says_of_the_request_and_nothing_if_the_catalogue_denies_it(name, why, least, most):
    tool = ENV.software[name]
    own = {"<the catalogue's line>": write_tool(tool), "<the catalogue's features>": tool.features}
    said = own.get(why, why) if isinstance(why, str) else why
    assert least - 1e-9 <= rate_why(said, describe_tool(tool, LUNGS["task"]), LUNGS) <= most + 1e-9


# ---- without the picture, without reasons, without a search, without an answer
def guess_blind(task):
    """What an adviser does that knows the catalogue, the words and the file, and sees nothing: it names the software
    that serves most of what could be seen, and says what it knows of it."""
    request, rate = ENV.get_request(task), ENV._generator.rate
    left = []
    for scene in SCENES:
        seen = replace(request, modality=scene.modality, structure=scene.structure, variant=scene.variant)
        left.append({name for name, points in rate(seen).items() if points >= SUITABLE})
    names = []
    for _ in range(task.prompt["choices"]):
        counts = Counter(name for some in left for name in sorted(some))
        names += [name for name, _ in counts.most_common(1)]
        left = [some for some in left if not some.intersection(names)]
    why = f"It is made for {request.task} and reads {request.format} files, as you have them."
    asks = [write_question(kind) for kind in request.hidden]
    said = json.dumps(choose(*dict.fromkeys(names), accuracy=95, why=why))
    return [*asks, search(" ".join(names)), said]


def test_where_the_picture_decides_nobody_earns_half_of_it_without_a_look_and_reasons_are_a_share():
    tasks = [task for task in TASKS if len(ENV.get_request(task).pictured) == 2 and "suitable" in task.reference]
    assert len(tasks) > len(TASKS) / 3
    assert score(play(task, *guess_blind(task), END) for task in tasks) < 0.5
    mute = [json.dumps({"choices": [{**one, "why": None} for one in get_gold(task)]}) for task in TASKS[:40]
            if "suitable" in task.reference]  # fmt: skip
    told = [task for task in TASKS[:40] if "suitable" in task.reference]
    pairs = zip(told, mute, strict=True)
    assert score(play(task, *ENV.oracle(task), answer) for task, answer in pairs) == pytest.approx(0.85)
    assert score(play(task, *[""] * 12) for task in TASKS[:10]) == 0.0


@each(("query", "least", "most"), [("zzz", 0.0, 0.81), ("image software", 0.0, 0.81), ("forgery", 1.0, 1.0)])
def test_a_refusal_is_paid_for_a_search_on_topic(query, least, most):
    total = play(NOTHING, search(query), ENV.write_answer(NOTHING)).scores.total
    assert least <= total <= most + 1e-9


# ---- after the answer
TALK = make("software_adviser", split="test", boundary=False, follow_ups=1.0, unanswerable=0.0, ambiguous=0.0)
AGAIN = next(task for task in TALK.tasks[:60] if len(task.reference["follow_up"]["suitable"]) > 3)
*BEFORE, ANSWER_ONE, LOOK = TALK.oracle(AGAIN)[:3]
LAST = TALK.write_answer(AGAIN)


@each(("replies", "most"), [
    ([*TALK.oracle(AGAIN), ANSWER_ONE], 0.5),  # the same again
    ([*BEFORE, END, *TALK.oracle(AGAIN)[2:], LAST], 0.5),  # nothing first, to exclude nothing
    ([*BEFORE, END, LOOK, ANSWER_ONE], 0.5), ([*BEFORE, ANSWER_ONE, END], 0.5),
    ([*BEFORE, ANSWER_ONE, json.dumps({"reason": "no_suitable_tool", "explanation": "There are no others."})], 0.5),
    ([*BEFORE, ANSWER_ONE, *[""] * 12], 0.5),
    ([*BEFORE, json.dumps(choose("Nothing")), *TALK.oracle(AGAIN)[2:], LAST], 0.55),
])  # fmt: skip
def test_a_trick_with_what_comes_after_the_answer_earns_half_at_most(replies, most):
    gold = TALK.play(AGAIN, ScriptedPolicy([*TALK.oracle(AGAIN), LAST]))
    assert gold.scores.total == pytest.approx(1.0)
    assert TALK.play(AGAIN, ScriptedPolicy([*replies, END, END])).scores.total <= most + 1e-9
