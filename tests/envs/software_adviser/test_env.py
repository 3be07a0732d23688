"""`software_adviser`: exact golds, a user who is asked, tools with quotas, what is scored, answers that are refused."""

import json
import re

import pytest
from msgspec.structs import replace

from tests.support.replies import list_results, play, play_gold
from tests.support.software import choose, find_task, search_of
from tests.support.tables import each
from viewbox import make
from viewbox.core.messages import write_call
from viewbox.envs.software_adviser.answer import OVER_QUOTA, find_problem, normalize_answer
from viewbox.envs.software_adviser.demonstrations import write_question
from viewbox.envs.software_adviser.request import REASONS
from viewbox.envs.software_adviser.rewards import ABSTAIN, GOES_ON, RECOMMEND, SAYS
from viewbox.envs.software_adviser.wishes import has_fact
from viewbox.errors import ConfigError
from viewbox.rewards.explain import explain_score
from viewbox.rollouts.ask import open_session

ENV = make("software_adviser", follow_ups=0.0)
END = json.dumps({"explanation": "I stop here."})


# ---- the right answers
@pytest.mark.slow
def test_a_task_is_the_same_every_time_and_nothing_hidden_reaches_the_model():
    assert sum(RECOMMEND.values()) == pytest.approx(1.0) == sum(ABSTAIN.values())
    again = make("software_adviser", follow_ups=0.0)
    assert again.tasks[3] == ENV.tasks[3]
    assert (again.images(again.tasks[3])[0].pixels == ENV.images(ENV.tasks[3])[0].pixels).all()
    for task in ENV.tasks[:60]:
        request = ENV.get_request(task)
        said = "".join(message.text for message in ENV.reset(task, seed=0).messages)
        assert not any(re.search(rf"(?<!\w){re.escape(fact)}(?!\w)", said) for fact in request.hidden.values())
        assert not set(request.withheld).intersection(re.split(r"[ .;,:]+", said)) - {"stitching"}  # a task, too
        assert "suitable" not in said.replace("no_suitable_tool", "")


# ---- the user
@pytest.mark.slow
def test_the_question_that_was_needed_has_a_share_and_tells_the_hidden_fact():
    task = find_task(ENV, "ambiguous")
    [(kind, fact)] = ENV.get_request(task).hidden.items()
    rest = (*ENV.oracle(task)[1:], ENV.write_answer(task))
    episode = play(ENV, task, write_question(kind), search_of(ENV, task), ENV.write_answer(task))
    assert episode.turns[2].content.startswith(SAYS)
    assert fact in episode.turns[2].content
    assert episode.scores.components["recommend.question"] == 1.0
    assert episode.scores.components["asked_if_ambiguous"] == 1.0
    silent = play(ENV, task, *rest)
    assert silent.scores.components["asked_if_ambiguous"] == 0.0
    other = play(ENV, task, json.dumps({"conversation": {"question": "How old are you?", "context": "?"}}), *rest)
    assert other.turns[2].content == SAYS + "I do not know."
    patient = play(make("software_adviser", follow_ups=0.0, max_questions=2), task, *[write_question(kind)] * 2, *rest)
    lost = pytest.approx(1 - RECOMMEND["question"])
    assert silent.scores.total == other.scores.total == patient.scores.total == lost
    twice = play(ENV, task, *[write_question(kind)] * 2)
    assert (twice.end_reason, twice.scores.total) == ("answered", 0.0)
    assert twice.answer["conversation"]["status"] == "needs_clarification"


@each("category", ["answerable", "no_task_match", "invalid_files"])
def test_a_question_that_was_not_needed_costs_its_share(category):
    task = find_task(ENV, category)
    episode = play(ENV, task, write_question("task"), *ENV.oracle(task), ENV.write_answer(task))
    shares = RECOMMEND if category == "answerable" else ABSTAIN
    assert episode.scores.total == pytest.approx(1 - shares["question"])
    assert episode.scores.components["asked_if_clear"] == 1.0


@pytest.mark.slow
def test_the_user_goes_on_after_an_answer_and_what_was_named_is_out_and_the_new_wish_counts():
    env = make("software_adviser", split="test", follow_ups=1.0, unanswerable=0)
    kinds = set()
    for task in env.tasks[:40]:
        after, episode = task.reference["follow_up"], play_gold(env, task)
        assert episode.scores.total == pytest.approx(1.0), (task.id, episode.scores)
        assert env.score(episode) == episode.scores
        explained = explain_score(env.reward, episode.answer, episode.task.reference, episode).components
        assert any(one.why.endswith("facts hidden: 0") for one in explained if one.name.startswith("follow_up"))
        assert any(turn.content == GOES_ON + after["words"] for turn in episode.turns)
        named = [{one["name"] for one in said["choices"]} for said in (*episode.answer["before"], episode.answer)]
        assert named[0]
        assert not named[0] & named[1]
        assert named[1] <= set(after["suitable"])
        assert (episode.answer["reason"] == "no_suitable_tool") == (not named[1])
        first, then = env.get_request(task), env.get_request(task).follow_up
        kinds |= {*then.constraints} - {*first.constraints} or {"format" if then.format != first.format else "others"}
        search = env.hidden_arguments(episode.task, "search_tools")["context"]
        assert named[0] <= set(search.exclude)
        assert search.formats == (then.format,)
    assert {"no GPU", "free license", "format"} <= kinds


def test_a_person_goes_on_with_wishes_of_their_own_and_hears_of_other_software():
    def advise(messages):
        if messages[-1].role == "user":
            return write_call("search_tools", {"query": "segmentation of the lung in CT"})
        names = re.findall(r"^\[\d+\] ([^:]+):", messages[-1].text, re.MULTILINE)[:3]
        return json.dumps({"choices": [{"name": name, "accuracy": 90} for name in names]})

    named = []
    with open_session(make("software_adviser"), advise) as session:
        for words in (
            "Segment the lungs of this CT.",
            "alternatives",
            "no GPU",
            "free licenses only",
            "and for NIfTI?",
        ):
            answer = session.ask(words)
            named.append([ENV.software[choice["name"]] for choice in answer.value["choices"]])
            assert len(named[-1]) == 3
            assert "before" not in answer.value
        again = session.ask(f"Tell me of {named[0][0].name} again.").value["choices"]
    assert len({tool.name for tools in named for tool in tools}) == 15
    assert again[0]["name"] == named[0][0].name  # a person may name it again
    for tool in (tool for tools in named[2:] for tool in tools):
        assert tool.gpu in ("no", "optional")
    assert all(has_fact(tool, "license", "free") for tools in named[3:] for tool in tools)
    assert all("NIfTI" in tool.formats for tool in named[4])


@each(
    ("said", "left_out"),
    [("My boss wants alternatives.", True), ("And for participants?", True), ("ANTs and FAST, please", False)],
)
def test_software_is_named_again_by_its_name_alone_and_not_by_a_word_that_holds_it(said, left_out):
    answers = [{"choices": [{"name": "ANTs"}, {"name": "FAST"}]}]
    task = replace(ENV.make_task("Register brains."), prompt={"words": "?", "answers": answers, "later": [said]})
    excluded = {"ANTs", "FAST"}.intersection(ENV.hidden_arguments(task, "search_tools")["context"].exclude)
    assert len(excluded) == (2 if left_out else 0)
    own = play(ENV, ENV.make_task(said), write_question("task"), END)  # nothing is known to be right, hidden or clear
    assert own.scores.total is None
    assert not any(value is not None for value in own.scores.components.values())


# ---- tools, quotas, injected arguments
def test_what_the_user_excludes_is_never_found_and_it_or_a_hallucinated_name_earns_nothing():
    def score(task, choices):
        return play(ENV, task, *ENV.oracle(task), json.dumps({"choices": choices})).scores.total

    task = next(task for task in ENV.tasks[:300] if task.reference["excluded"] and "suitable" in task.reference)
    unwanted, gold = task.reference["excluded"][0], json.loads(ENV.write_answer(task))["choices"][:2]
    search = write_call("search_tools", {"query": unwanted})
    episode = play(ENV, task, search, *ENV.oracle(task)[1:], ENV.write_answer(task))
    assert unwanted not in list_results(episode)[0].facts["names"]
    choice = {"name": unwanted, "accuracy": 0}
    for choices in ([choice], [{**one, "rank": None} for one in gold] + [choice]):
        assert score(task, choices) == 0.0
    task, invented = find_task(ENV, "answerable"), {"name": "ImageMaster 3000", "accuracy": 100}
    first = json.loads(ENV.write_answer(task))["choices"][0]
    assert score(task, [invented]) == 0.0
    assert score(task, [{**first, "rank": None}, invented]) <= RECOMMEND["first"] + 1e-9
    from_memory = play(ENV, task, ENV.write_answer(task))
    assert from_memory.scores.total == pytest.approx(RECOMMEND["first"])


@pytest.mark.slow
def test_over_quota_there_is_an_answer_without_choices_and_after_the_last_of_twenty_calls_it_counts():
    task = find_task(ENV, "answerable")
    episode = play(ENV, task, *[search_of(ENV, task) * 5] * 10)
    assert sum(result.success for result in list_results(episode)) == 1
    assert "used up" in list_results(episode)[-1].error
    assert (episode.answer["choices"], episode.answer["explanation"]) == ((), OVER_QUOTA)
    assert "over_quota" in episode.flags
    assert episode.scores.total == 0.0
    env = make("software_adviser", max_calls={"search_alternative": 100}, ambiguous=0)
    task, again = find_task(env, "answerable"), write_call("search_alternative", {"query": "viewer"}) * 12
    episode = play(env, task, search_of(env, task), again, again, *env.oracle(task)[1:], env.write_answer(task))
    assert sum(result.success for result in list_results(episode)) <= 20
    assert any("Tool budget used up (20 calls)" in (result.error or "") for result in list_results(episode))
    assert episode.end_reason == "answered"


@pytest.mark.slow
def test_top_k_and_the_number_of_choices_are_set_for_each_task():
    env = make("software_adviser", top_k=[5, 7], num_choices=[1, 2, 3], unanswerable=0, ambiguous=0)
    for seed, task in enumerate(env.tasks[:6]):
        assert f"Recommend at most {1 + seed % 3}." in env.user_message(task)
        episode = play(env, task, search_of(env, task), env.write_answer(task))
        assert len(list_results(episode)[0].facts["names"]) == (5, 7)[seed % 2]
        too_many = json.dumps({"choices": [{"name": str(n), "accuracy": 1} for n in range(2 + seed % 3)]})
        assert "allowed: at most" in play(env, task, too_many, END).turns[2].content


@pytest.mark.slow
def test_the_format_of_the_file_is_used_in_a_search_unless_it_is_hidden():
    env = make("software_adviser", ambiguous=1, unanswerable=0, hides=["format"], levels=["expert"])
    for task in env.tasks[:3]:
        request = env.get_request(task)
        assert (request.status, request.level, tuple(request.hidden)) == ("ambiguous", "expert", ("format",))
        assert env.hidden_arguments(task, "search_tools")["context"].formats == ()
        assert request.format not in env.user_message(task)
    clear = find_task(ENV, "answerable")
    assert ENV.hidden_arguments(clear, "search_tools")["context"].formats == (ENV.get_request(clear).format,)


# ---- scores
def test_accuracies_are_compared_with_the_grades_and_demo_links_with_the_catalogue():
    def score(task, choices):
        return play(ENV, task, *ENV.oracle(task), json.dumps({"choices": choices})).scores

    task = find_task(ENV, "answerable")
    gold = json.loads(ENV.write_answer(task))["choices"]
    scores = [score(task, [{**choice, "accuracy": points} for choice in gold]) for points in (0, 50, 75, 100)]
    accuracies = [one.components["recommend.accuracy"] for one in scores]
    assert accuracies == sorted(accuracies)
    assert accuracies[0] == 0.0
    clear = (task for task in ENV.tasks[:300] if task.reference["category"] == "answerable")
    task = next(task for task in clear if len(task.reference["suitable"]) == 1)
    gold = json.loads(ENV.write_answer(task))["choices"][0]
    first = list_results(play(ENV, task, search_of(ENV, task), END))[0].facts["names"]
    others = [name for name in first if name != gold["name"]][:2]  # all accuracies 100, and these do not fit
    padded = score(task, [gold, *({"name": name, "rank": n, "accuracy": 100} for n, name in enumerate(others, 2))])
    assert padded.components["recommend.accuracy"] < 0.9
    assert padded.total < 1.0
    task = next(task for task in ENV.tasks[:300] if any(name in task.reference.get("demos", ())
                for name in (choice["name"] for choice in json.loads(ENV.write_answer(task))["choices"])))  # fmt: skip
    gold = json.loads(ENV.write_answer(task))["choices"]
    for link in ("https://demo.example/try", None):  # invented, or missing
        assert score(task, [{**choice, "demo_link": link} for choice in gold]).components["recommend.demo"] < 1.0


@each("reason", list(REASONS))
def test_an_unanswerable_request_takes_its_reason_and_a_look(reason):
    task = find_task(ENV, reason)
    assert play_gold(ENV, task).scores.total == pytest.approx(1.0)
    for other in (None, *REASONS):
        if other != reason:
            said = json.dumps({"choices": [], "reason": other, "explanation": "Nothing fits."})
            assert play(ENV, task, *ENV.oracle(task), said).scores.total == 0.0
    if reason in ("no_task_match", "invalid_files"):  # a file that is no image needs no search
        lost = ABSTAIN["looked"] if reason == "no_task_match" else 0
        assert play(ENV, task, ENV.write_answer(task)).scores.total == pytest.approx(1 - lost)


# ---- demonstrations
@pytest.mark.slow
def test_demonstrations_have_habits():
    env = make("software_adviser", ambiguous=0.5, unanswerable=0)
    for task in env.tasks[:8]:
        hidden = bool(env.get_request(task).hidden)
        plain = [env.demonstration(task, seed) for seed in range(2)]
        assert all(one == [*env.oracle(task), env.write_answer(task)] for one in plain)
        assert ("question" in env.demonstration(task, 0, guess=1.0, ask=1.0)[0]) == (not hidden)
    with pytest.raises(ConfigError, match="did you mean 'guess'"):
        env.demonstration(task, 0, gues=0.5)


# ---- settings
@each(
    ("settings", "problem"),
    [
        ({"ambiguous": 0.7, "unanswerable": 0.7}, "ambiguous \\+ unanswerable = 1.4; allowed: at most 1"),
        ({"ambiguous": 1.5}, "ambiguous = 1.5"),
        ({"num_choices": [0]}, "num_choices"),
        ({"top_k": []}, "top_k"),
        ({"hides": ["modality"]}, "modality"),
        ({"reasons": ["too_expensive"]}, "too_expensive"),
        ({"levels": ["child"]}, "child"),
        ({"catalogue": "nowhere.jsonl"}, "nowhere.jsonl"),
        ({"shown": ["price"]}, "price"),
    ],
)
def test_a_wrong_setting_is_named(settings, problem):
    with pytest.raises(ConfigError, match=problem):
        _ = make("software_adviser", **settings).tasks[0]


def test_a_catalogue_of_ones_own_is_searched_and_asked_about(tmp_path):
    tools = [one.model_copy(update={"sources": ()}) for one in ENV.software.values() if "MR" in one.modalities]
    own = tmp_path / "mine.jsonl"
    own.write_text("".join(f"{one.model_dump_json()}\n" for one in tools))
    env = make("software_adviser", catalogue=str(own), top_k=[20], unanswerable=0, ambiguous=0)
    assert set(env.software) == {one.name for one in tools}
    for task in env.tasks[:10]:
        assert set(task.reference["suitable"]) <= set(env.software)
        assert play_gold(env, task).scores.total == pytest.approx(1.0)


@pytest.mark.slow
def test_results_name_the_facts_that_are_picked_and_a_number_names_software_if_a_config_says_so():
    env = make("software_adviser", shown=["formats"], top_k=[3], boundary=False, ambiguous=0)
    task = find_task(env, "answerable")
    [result] = list_results(play(env, task, search_of(env, task), END))
    lines = [json.loads(line) for line in result.text.splitlines()]
    assert [line["name"] for line in lines] == list(result.facts["names"])
    assert all(set(line) == {"name", "formats"} for line in lines)
    env = make("software_adviser", by_number=True, shown=[], boundary=False, ambiguous=0)
    task = find_task(env, "answerable")
    gold = json.loads(env.write_answer(task))["choices"][0]

    def choose(env, name):
        return play(env, task, search_of(env, task), json.dumps({"choices": [{**gold, "name": name}]}))

    for number in range(1, 13):
        episode = choose(env, str(number))
        names = list_results(episode)[0].facts["names"]
        assert list_results(episode)[0].text.splitlines()[number - 1].startswith(f"{number}. ")
        assert episode.answer["choices"][0]["name"] == names[number - 1]
        assert (episode.scores.total > 0) == (names[number - 1] in task.reference["suitable"])
    assert play(env, task, *env.oracle(task), env.write_answer(task)).scores.total == pytest.approx(1.0)
    assert choose(env, "13").scores.total == choose(ENV, "1").scores.total == 0.0
    demonstrated = [json.loads(env.demonstration(task, seed)[-1]) for seed in range(3)]
    assert all(choice["name"].isdigit() for answer in demonstrated for choice in answer["choices"])


THREE = make("software_adviser", num_choices=[3], ambiguous=0)


@each("said", [None, "complete", "needs_clarification"])
def test_choices_make_it_complete_and_a_question_needs_clarification_whatever_it_says(said):
    asked = {"conversation": {"status": said, "question": "Which format?"}}
    assert normalize_answer(asked)["conversation"]["status"] == "needs_clarification"
    both = normalize_answer({**asked, **choose("Fiji"), "reason": "no_task_match"})
    assert both["conversation"] == {"status": "complete", "question": None, "context": None, "options": []}
    assert both["reason"] is None
    without = normalize_answer({"conversation": {"status": said}, "reason": "no_task_match"})
    assert (without["conversation"]["status"], without["reason"]) == ("complete", "no_task_match")


@pytest.mark.slow
def test_choices_come_in_the_order_of_their_ranks_or_as_listed_and_a_regular_answer_stays_as_it_is():
    ranked = {"choices": [{"name": "b", "rank": 2, "accuracy": 1}, {"name": "a", "rank": 1, "accuracy": 2}]}
    assert [(one["name"], one["rank"]) for one in normalize_answer(ranked)["choices"]] == [("a", 1), ("b", 2)]
    assert [(one["name"], one["rank"]) for one in normalize_answer(choose("b", "a"))["choices"]] == [("b", 1), ("a", 2)]
    for task in THREE.tasks[:10]:
        once = THREE.perfect_answer(task)
        assert normalize_answer(once) == once
        assert THREE.read_answer(json.dumps(once), task) == once


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (choose("a", "b", "c", "d"), "4 are given; allowed: at most 3"),
        (choose("a", "b", rank=1), "the ranks are 1, 1; allowed: 1 to 2, each once"),
        ({"choices": [{"name": "a", "accuracy": 1, "rank": 2}, {"name": "b", "accuracy": 1}]}, "allowed: 1 to 2"),
        (choose("Fiji", "fiji"), "'fiji' is named twice"),
        (choose(" "), "a name is empty"),
        ({}, "no choice, no question, no reason and no explanation"),
        ({"conversation": {"question": " "}, "choices": []}, "no choice, no question"),
        ({"conversation": {"question": "Which?"}}, "a question has no context"),
        ({"reason": "no_task_match"}, "explanation: it is empty"),
    ],
)
def test_what_contradicts_itself_is_refused_in_words(answer, problem):
    assert problem in find_problem(answer, 3)


@each(
    ("answer", "problem"),
    [
        (choose("a", rank=0), "rank"),
        ({"choices": [{"name": "a", "accuracy": 101}]}, "101"),
        ({"choices": [{"name": "a", "accuracy": "high"}]}, "high"),
        ({"choices": [{"name": "a"}]}, "accuracy"),
        ({"choices": ["Fiji"]}, "Fiji"),
        ({"reason": "too expensive"}, "too expensive"),
        ({"conversation": {"status": "done"}}, "done"),
    ],
)
def test_what_does_not_fit_the_schema_is_answered_with_what_is_wrong(answer, problem):
    task = THREE.tasks[0]
    episode = play(THREE, task, json.dumps(answer), *THREE.oracle(task), THREE.write_answer(task))
    nudge = episode.turns[2]
    assert nudge.nudge == "malformed"
    assert problem in nudge.content
    assert episode.end_reason == "answered"
    assert 0.9 < episode.scores.total < 1.0


def test_an_invalid_answer_is_retried_three_times_and_then_ends_the_episode_with_what_was_searched():
    task, bad = THREE.tasks[0], json.dumps(choose("a", "b", rank=1))
    search, *rest = *THREE.oracle(task), THREE.write_answer(task)
    for count, ends in ((3, "answered"), (4, "malformed")):
        episode = play(THREE, task, search, *[bad] * count, *rest)
        assert episode.end_reason == ends
        assert episode.num_turns >= 1 + count
    assert (episode.num_turns, episode.answer["choices"], episode.scores.total) == (5, (), 0.0)
    assert THREE.get_request(task).task in episode.answer["explanation"]
