"""What a policy would try in `software_adviser`: tricks earn less than an honest recommendation, guessing little."""

import json
from collections import Counter

import numpy as np
import pytest

from tests.support.tables import each
from viewbox import make
from viewbox.core.messages import write_call
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.envs.software_adviser.demonstrations import QUESTIONS, write_query, write_question
from viewbox.envs.software_adviser.request import REASONS

ENV = make("software_adviser", split="test", boundary=False)
TASKS = ENV.tasks[:80]
NAMES = list(ENV.software)
END = json.dumps({"explanation": "I stop here."})


def find(category, several=False):
    return next(task for task in ENV.tasks[:300] if task.reference["category"] == category
                and (not several or len(task.reference["suitable"]) > 2))  # fmt: skip


CLEAR, VAGUE, NOTHING, BROKEN = (
    find("answerable", True), find("ambiguous"), find("no_task_match"), find("invalid_files"),
)  # fmt: skip


def choose(*names, accuracy=100, **fields):
    return {"choices": [{"name": name, "accuracy": accuracy, **fields} for name in names]}


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


def look_and_say(task, *answers):
    return play(task, *ENV.oracle(task), *(json.dumps(answer) for answer in answers))


def ask(text):
    return json.dumps({"conversation": {"question": text}})


def change(task, **fields):
    return {"choices": [{**choice, **fields} for choice in get_gold(task)]}


# (name, task, answer after the oracle's looks, at most, why)
ANSWERS = [
    ("a name that nobody has", CLEAR, choose("UltraImage Pro"), 0.0, "hallucinated"),
    ("a name that nobody has beside the right ones", CLEAR, choose("UltraImage Pro", *get_names(CLEAR)[:2]), 0.1,
     "hallucinated"),
    ("the right name in a sentence", CLEAR, choose(f"I recommend {get_names(CLEAR)[0]}"), 0.0, "no name"),
    ("all right names in one", CLEAR, choose(", ".join(get_names(CLEAR))), 0.0, "no name"),
    ("the right name of another task", CLEAR, choose(*get_names(VAGUE)[:1]), 0.1, "not returned, not suitable"),
    ("what the search returned and does not fit", CLEAR, choose(*list_unsuitable(CLEAR)[:3], accuracy=0), 0.0,
     "unsuitable"),
    ("the worst first", CLEAR, choose(*list_unsuitable(CLEAR)[:2], get_names(CLEAR)[0]), 0.8, "ranking"),
    ("all accuracies 0", CLEAR, change(CLEAR, accuracy=0), 0.85, "they are 100"),
    ("all accuracies 50", CLEAR, change(CLEAR, accuracy=50), 0.95, "they are 100"),
    ("accuracies 100 for what does not fit", CLEAR, choose(get_names(CLEAR)[0], *list_unsuitable(CLEAR)[:2]), 0.85,
     "they do not"),
    ("invented demo links", CLEAR, change(CLEAR, demo_link="https://demo.example.com"), 0.95, "no such page"),
    ("the repository as demo link", CLEAR, change(CLEAR, demo_link=ENV.software[get_names(CLEAR)[0]].repository),
     0.96, "no demo"),
    ("a reason and no choice where there is one", CLEAR, {"reason": "no_suitable_tool"}, 0.0, "it can be answered"),
    ("an explanation alone", CLEAR, {"explanation": "Fiji, napari and ITK-SNAP would be good choices."}, 0.0,
     "no choice"),
    ("the name in the explanation", CLEAR, {"explanation": " ".join(get_names(CLEAR))}, 0.0, "no choice"),
    ("a question and a recommendation in its options", CLEAR,
     {"conversation": {"question": "Which?", "options": get_names(CLEAR)}}, 0.0, "no choice"),
    ("complete without a choice", CLEAR, {"conversation": {"status": "complete"}, "explanation": "done"}, 0.0,
     "no choice"),
    ("one of three", CLEAR, choose(get_names(CLEAR)[0]), 0.85, "the list is short"),
    ("a choice where nothing fits", NOTHING, choose(*list_unsuitable(NOTHING)[:1], accuracy=0), 0.0, "nothing fits"),
    ("a choice and the right reason", NOTHING, {**choose(*list_unsuitable(NOTHING)[:1]), "reason": "no_task_match"},
     0.0, "both"),
    ("another reason", NOTHING, {"reason": "no_suitable_tool"}, 0.0, "the wrong one"),
    ("all reasons in the explanation", NOTHING, {"explanation": ", ".join(REASONS)}, 0.0, "none is given"),
    ("a choice for a broken file", BROKEN, choose("Fiji"), 0.0, "nothing can be opened"),
    ("no_suitable_tool for a broken file", BROKEN, {"reason": "no_suitable_tool"}, 0.0, "the wrong one"),
]  # fmt: skip


@each(("name", "task", "answer", "most", "why"), ANSWERS)
def test_a_trick_with_the_answer_earns_less_than_an_honest_one(name, task, answer, most, why):
    honest = play(task, *ENV.oracle(task), ENV.write_answer(task))
    assert honest.scores.total == pytest.approx(1.0)
    episode = look_and_say(task, answer, *[json.loads(END)] * 3)
    assert episode.scores.total <= most + 1e-9
    assert ENV.score(episode) == episode.scores  # from the record alone


GOOD = ENV.write_answer(CLEAR)
SEARCH = next(reply for reply in ENV.oracle(CLEAR) if "search_tools" in reply)
FACTS = write_question(next(iter(ENV.get_request(VAGUE).hidden)))
AFTER = [reply for reply in ENV.oracle(VAGUE) if "search" in reply]
# (name, task, replies, at most, why)
REPLIES = [
    ("from memory", CLEAR, [GOOD], 0.1, "no search returned it"),
    ("a search for nothing", CLEAR, [write_call("search_tools", {"query": " "}), GOOD], 0.1, "it failed"),
    ("a search that finds others", CLEAR, [write_call("search_tools", {"query": "PACS server"}), GOOD], 0.1,
     "not returned"),
    ("names in a call of another tool", CLEAR, [write_call("repo_info_batch", {"urls": [
        ENV.software[name].repository for name in get_names(CLEAR)]}), GOOD], 0.1, "no search"),
    ("a needless question", CLEAR, [ask("Anything else?"), *ENV.oracle(CLEAR), GOOD], 0.86, "it was clear"),
    ("questions only", CLEAR, [ask("Which format?")] * 4, 0.0, "no recommendation"),
    ("two questions", VAGUE, [FACTS, FACTS, *AFTER, ENV.write_answer(VAGUE)], 0.0, "the second ends it"),
    ("no question", VAGUE, [*AFTER, ENV.write_answer(VAGUE)], 0.86, "a fact was missing"),
    ("a question for everything in general", VAGUE, [ask("Tell me all."), *AFTER, ENV.write_answer(VAGUE)], 0.86,
     "not told"),
    ("a question for something else", VAGUE, [ask("May I?"), *AFTER, ENV.write_answer(VAGUE)], 0.86, "not told"),
    ("a reason without a search", NOTHING, [ENV.write_answer(NOTHING)], 0.81, "nobody looked"),
    ("a reason after a question", NOTHING, [ask("Why?"), *ENV.oracle(NOTHING), ENV.write_answer(NOTHING)], 0.86,
     "needless"),
    ("three invalid answers first", CLEAR, [json.dumps(choose("a", "a"))] * 3 + [*ENV.oracle(CLEAR), GOOD], 0.99,
     "format"),
    ("four invalid answers", CLEAR, [json.dumps(choose("a", "a"))] * 4, 0.0, "three retries"),
    ("the same rank for all", CLEAR, [*ENV.oracle(CLEAR), *[json.dumps(change(CLEAR, rank=1))] * 4], 0.0, "refused"),
    ("twenty choices", CLEAR, [*ENV.oracle(CLEAR), *[json.dumps(choose(*NAMES[:20]))] * 4], 0.0, "refused"),
    ("the whole catalogue", CLEAR, [*ENV.oracle(CLEAR), *[json.dumps(choose(*NAMES))] * 4], 0.0, "refused"),
    ("one name three times", CLEAR, [*ENV.oracle(CLEAR), *[json.dumps(choose(*get_names(CLEAR)[:1] * 3))] * 4], 0.0,
     "refused"),
    ("one name in three writings", CLEAR, [*ENV.oracle(CLEAR), *[json.dumps(choose(
        get_names(CLEAR)[0], get_names(CLEAR)[0].upper(), f" {get_names(CLEAR)[0]} "))] * 4], 0.0, "refused"),
    ("calls without end", CLEAR, [SEARCH * 5] * 10, 0.0, "over quota"),
    ("calls without end where nothing fits", NOTHING, [SEARCH * 5] * 10, 0.0, "an explanation is no reason"),
]  # fmt: skip


@each(("name", "task", "replies", "most", "why"), REPLIES)
def test_a_trick_with_the_replies_earns_less_than_an_honest_episode(name, task, replies, most, why):
    episode = ENV.play(task, ScriptedPolicy([*replies, *[END] * 12]))
    assert episode.scores.total <= most + 1e-9


def test_there_are_more_than_thirty_rows_and_every_row_says_why():
    assert len(ANSWERS) + len(REPLIES) > 40
    assert all(row[-1] for row in (*ANSWERS, *REPLIES))


# ---------------------------------------------------------------------- whole policies


def search_words(task):
    return write_call("search_tools", {"query": task.prompt["words"]})


def make_random(task, rng):
    """Searches for the user's words and then asks, gives a reason, or picks among what was found."""
    state = int(rng.integers(3))
    request = ENV.get_request(task)
    exclude = (*request.exclude, *request.withheld)
    names = ENV.retriever.search(task.prompt["words"], top_k=12, exclude=exclude, formats=request.known_formats)
    picked = [names[i] for i in rng.permutation(len(names))[: task.prompt["choices"]]]
    said = choose(*picked, accuracy=int(rng.integers(101))) if picked else json.loads(END)
    if state == 0:
        return [search_words(task), json.dumps({"reason": str(rng.choice(REASONS))})]
    if state == 1:
        return [write_question(str(rng.choice(list(QUESTIONS)))), search_words(task), json.dumps(said)]
    return [search_words(task), json.dumps(said)]


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
            return search_words(task)
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
    assert scores["first hit"] > 0.1, scores  # the heuristic does find something
