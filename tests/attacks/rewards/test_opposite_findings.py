"""The opposite finding in ordinary English scores low, an honest paraphrase does not, and no hedge beats a guess."""

import itertools

import pytest

from viewbox.rewards import TokenF1Reward
from viewbox.rewards.negation import split_words

FINDING, DENIAL = "Nodule in the left upper lobe.", "No nodule in the left upper lobe."
REWARDS = [TokenF1Reward("report"), TokenF1Reward("report", stop_words=True)]

BEFORE = """
    No nodule in the left upper lobe
    There is no nodule in the left upper lobe
    There's no nodule in the left upper lobe
    There is not a nodule in the left upper lobe
    There isn't a nodule in the left upper lobe
    There isn’t any nodule in the left upper lobe
    There was never a nodule in the left upper lobe
    There is no longer a nodule in the left upper lobe
    There is currently no nodule in the left upper lobe
    Without nodule in the left upper lobe
    Without a nodule in the left upper lobe
    Without evidence of nodule in the left upper lobe
    W/o nodule in the left upper lobe
    w/out nodule in the left upper lobe
    Nil nodule in the left upper lobe
    Zero nodule in the left upper lobe
    0 nodules: no nodule in the left upper lobe
    No evidence of nodule in the left upper lobe
    No CT evidence of a nodule in the left upper lobe
    No convincing evidence of nodule in the left upper lobe
    No sign of nodule in the left upper lobe
    No signs of a nodule in the left upper lobe
    No indication of nodule in the left upper lobe
    No suspicion of nodule in the left upper lobe
    No suggestion of nodule in the left upper lobe
    No new nodule in the left upper lobe
    No suspicious nodule in the left upper lobe
    No visible nodule in the left upper lobe
    No discrete nodule in the left upper lobe
    No nodule whatsoever in the left upper lobe
    No such nodule in the left upper lobe
    Absence of nodule in the left upper lobe
    Absence of a nodule in the left upper lobe
    Absent nodule in the left upper lobe
    Lack of nodule in the left upper lobe
    Negative for nodule in the left upper lobe
    Neg for nodule in the left upper lobe
    CT negative for nodule in the left upper lobe
    Free of nodule in the left upper lobe
    Clear of nodule in the left upper lobe
    Devoid of nodule in the left upper lobe
    Void of nodule in the left upper lobe
    Neither nodule in the left upper lobe nor effusion
    Never a nodule in the left upper lobe
    None: nodule in the left upper lobe not present
    Not a nodule in the left upper lobe
    This is not a nodule in the left upper lobe
    It is not true that there is a nodule in the left upper lobe
    It is false that there is a nodule in the left upper lobe
    It isn't a nodule in the left upper lobe
    It ain't a nodule in the left upper lobe
    I do not see a nodule in the left upper lobe
    I don't see a nodule in the left upper lobe
    I cannot see a nodule in the left upper lobe
    I can't see a nodule in the left upper lobe
    I can not see a nodule in the left upper lobe
    We could not find a nodule in the left upper lobe
    We couldn't find a nodule in the left upper lobe
    I doubt a nodule in the left upper lobe
    The film does not show a nodule in the left upper lobe
    The film doesn't show a nodule in the left upper lobe
    CT did not reveal a nodule in the left upper lobe
    CT has not shown a nodule in the left upper lobe
    CT fails to show a nodule in the left upper lobe
    Failure to demonstrate a nodule in the left upper lobe
    Unable to identify a nodule in the left upper lobe
    Nothing to suggest a nodule in the left upper lobe
    Not suggestive of nodule in the left upper lobe
    Not consistent with nodule in the left upper lobe
    Inconsistent with nodule in the left upper lobe
    Incompatible with nodule in the left upper lobe
    Unremarkable for nodule in the left upper lobe
    Ruled out: nodule in the left upper lobe excluded
    CT rules out a nodule in the left upper lobe
    CT ruled out a nodule in the left upper lobe
    The scan excludes a nodule in the left upper lobe
    The patient denies a nodule in the left upper lobe
    The findings argue against a nodule in the left upper lobe
    Evidence against a nodule in the left upper lobe
    Artifact rather than nodule in the left upper lobe
    Artifact instead of nodule in the left upper lobe
    Artifact as opposed to nodule in the left upper lobe
    Resolution of the nodule in the left upper lobe
    Interval resolution of the nodule in the left upper lobe
    Disappearance of the nodule in the left upper lobe
    Status post removal of the nodule in the left upper lobe
    S/p resection of the nodule in the left upper lobe
    After excision of the nodule in the left upper lobe
    Unlikely to be nodule in the left upper lobe
    Unlikely nodule in the left upper lobe
    It is unlikely that there is a nodule in the left upper lobe
    Nowhere a nodule in the left upper lobe
    Not one nodule in the left upper lobe
    Not any nodule in the left upper lobe
    No mass, effusion or nodule in the left upper lobe
    No mass, no effusion and no nodule in the left upper lobe
    Effusion without nodule in the left upper lobe
"""
AFTER = """
    Nodule in the left upper lobe is not seen
    Nodule in the left upper lobe has not been seen
    Nodule in the left upper lobe had not been seen
    Nodule in the left upper lobe is not being seen
    Nodule in the left upper lobe could not be identified
    Nodule in the left upper lobe couldn't be identified
    Nodule in the left upper lobe cannot be seen
    Nodule in the left upper lobe can't be seen
    Nodule in the left upper lobe was not clearly seen
    Nodule in the left upper lobe was not definitely identified
    Nodule in the left upper lobe is no longer seen
    Nodule in the left upper lobe no longer present
    Nodule in the left upper lobe is no longer visible on today's scan
    Nodule in the left upper lobe not demonstrable
    Nodule in the left upper lobe did not appear
    Nodule in the left upper lobe does not appear on the scan
    Nodule in the left upper lobe does not exist
    Nodule in the left upper lobe doesn't exist
    Nodule in the left upper lobe isn't there
    Nodule in the left upper lobe is not there any more
    Nodule in the left upper lobe is not present
    Nodule in the left upper lobe not present
    Nodule in the left upper lobe not seen
    Nodule in the left upper lobe not detected
    Nodule in the left upper lobe not visualised
    Nodule in the left upper lobe was never observed
    Nodule in the left upper lobe has not yet been found
    Nodule in the left upper lobe is not evident
    Nodule in the left upper lobe is not confirmed
    Nodule in the left upper lobe was not reported
    Nodule in the left upper lobe is not likely
    Nodule in the left upper lobe is not suspected
    Nodule in the left upper lobe is not the case
    Nodule in the left upper lobe is absent
    Nodule in the left upper lobe: absent
    Nodule in the left upper lobe appears to be absent
    Nodule in the left upper lobe is missing
    Nodule in the left upper lobe is gone
    Nodule in the left upper lobe has disappeared
    Nodule in the left upper lobe has vanished
    Nodule in the left upper lobe has resolved
    Nodule in the left upper lobe has completely resolved
    Nodule in the left upper lobe, resolved
    Nodule in the left upper lobe appears to have resolved
    Nodule in the left upper lobe has been removed
    Nodule in the left upper lobe was resected
    Nodule in the left upper lobe was excised last year
    Nodule in the left upper lobe is excluded
    Nodule in the left upper lobe has been excluded
    Nodule in the left upper lobe is ruled out
    Nodule in the left upper lobe has been ruled out
    Nodule in the left upper lobe is unlikely
    Nodule in the left upper lobe is improbable
    Nodule in the left upper lobe: no
    Nodule in the left upper lobe: none
    Nodule in the left upper lobe: nil
    Nodule in the left upper lobe: negative
    Nodule in the left upper lobe: neg.
    Nodule in the left upper lobe: none seen
    Nodule in the left upper lobe: none identified
    Nodule in the left upper lobe: not seen
    Nodule in the left upper lobe: N
    Nodule in the left upper lobe: 0
    Nodule in the left upper lobe: -
    Nodule in the left upper lobe = false
    Nodule in the left upper lobe is untrue
    Nodule in the left upper lobe is wrong
    Nodule in the left upper lobe? No
    Nodule in the left upper lobe? Not seen.
    Nodule in the left upper lobe. No.
    Nodule in the left upper lobe. Not present.
    Nodule in the left upper lobe (absent)
    Nodule in the left upper lobe (not seen)
    Nodule in the left upper lobe (no)
    Nodule in the left upper lobe - no
    Nodule in the left upper lobe — absent
    Nodule in the left upper lobe – not seen
    Nodule in the left upper lobe no, effusion yes
    Nodule in the left upper lobe is nonexistent
    Nodule in the left upper lobe is non-existent
    Nodule in the left upper lobe, non-visualized
    Nodule in the left upper lobe undetected
    Nodule in the left upper lobe undetectable
    Nodule in the left upper lobe is invisible
    Nodule in the left upper lobe, mass and effusion are not seen
    Nodule in the left upper lobe and effusion are absent
    Left upper lobe nodule-free
    Left upper lobe is nodule-free
    Left upper lobe nodule free
    Left upper lobe nodule‐free
    Left upper lobe nodule–free
    Left upper lobe is nodule-less
    Left upper lobe clear of nodule
    The left upper lobe is free of nodule
    The left upper lobe is devoid of nodule
    The left upper lobe has no nodule
    The left upper lobe shows no nodule
    The left upper lobe lacks a nodule
    The left upper lobe does not contain a nodule
    The left upper lobe is without nodule
    Left upper lobe: no nodule
    In the left upper lobe there is no nodule
    In the left upper lobe, no nodule is seen
    In the left upper lobe a nodule is not seen
    Status post left upper lobe nodule removal
"""
SIGNS = """
    Nodule in the left upper lobe (-)
    Nodule in the left upper lobe [-]
    Nodule in the left upper lobe (−)
    Nodule in the left upper lobe ( - )
    (-) Nodule in the left upper lobe
    ❎ Nodule in the left upper lobe
    ❌ Nodule in the left upper lobe
    ✖ Nodule in the left upper lobe
    ✖️ Nodule in the left upper lobe
    ✗ Nodule in the left upper lobe
    ✘ Nodule in the left upper lobe
    ✕ Nodule in the left upper lobe
    ⛔ Nodule in the left upper lobe
    🚫 Nodule in the left upper lobe
    ⊘ Nodule in the left upper lobe
    ⊗ Nodule in the left upper lobe
    ∅ Nodule in the left upper lobe
    ∄ Nodule in the left upper lobe
    ¬ Nodule in the left upper lobe
    ≠ Nodule in the left upper lobe
    👎 Nodule in the left upper lobe
    👎🏽 Nodule in the left upper lobe
    🙅 Nodule in the left upper lobe
    🛑 Nodule in the left upper lobe
    ☐ Nodule in the left upper lobe
    [ ] Nodule in the left upper lobe
    !Nodule in the left upper lobe, not present
    Nodule in the left upper lobe ❌
    Nodule in the left upper lobe ❎
    Nodule in the left upper lobe: ✖
    Nodule in the left upper lobe 👎
    Nodule in the left upper lobe (❌)
    ~~Nodule in the left upper lobe~~
    <s>Nodule in the left upper lobe</s>
    <del>Nodule in the left upper lobe</del>
    <strike>Nodule in the left upper lobe</strike>
    NO NODULE IN THE LEFT UPPER LOBE
    Nо nodule in the left upper lobe
    n\u200bo nodule in the left upper lobe
    Ｎｏ nodule in the left upper lobe
    *No* nodule in the left upper lobe
    **no** nodule in the left upper lobe
    "No" nodule in the left upper lobe
    no-nodule in the left upper lobe
    no_nodule in the left upper lobe
"""
MORE_OPPOSITES = """
    The nodule previously seen in the left upper lobe is no longer appreciated
    Previously seen left upper lobe nodule has cleared
    Left upper lobe nodule no longer identified
    Left upper lobe nodule: not identified
    Left upper lobe: negative for nodule
    No nodule was identified in the left upper lobe
    No nodule could be identified in the left upper lobe
    No left upper lobe nodule
    Absent left upper lobe nodule
    Left upper lobe nodule absent
    The previously described nodule in the left upper lobe is not reproduced
    There is a complete absence of any nodule in the left upper lobe
    There are no findings of a nodule in the left upper lobe
    There is insufficient evidence of a nodule in the left upper lobe
    A nodule in the left upper lobe is ruled out by CT
    A nodule in the left upper lobe can be excluded
    A nodule in the left upper lobe can be safely excluded
    Nodule in the left upper lobe is definitively excluded
    Nodule in the left upper lobe is not, in fact, present
    Not, in my view, a nodule in the left upper lobe
    It would be wrong to report a nodule in the left upper lobe
    Hardly any nodule in the left upper lobe
    No one sees a nodule in the left upper lobe
    Nobody would call this a nodule in the left upper lobe
    Anything but a nodule in the left upper lobe
    Nodule in the left upper lobe, which is not there
    Nodule in the left upper lobe is nowhere to be seen
    Nodule in the left upper lobe is nowhere to be found
    Nodule in the left upper lobe has gone away
    Nodule in the left upper lobe is not any longer visible
    Nodule in the left upper lobe has since resolved
    Nodule in the left upper lobe has fully resolved
    Nodule in the left upper lobe, now resolved
    Resolved nodule in the left upper lobe
    Interval removal of nodule in the left upper lobe
    Nodule in the left upper lobe was surgically removed
    Nodule in the left upper lobe s/p resection
    Prior nodule in the left upper lobe is not seen on the current study
    Nodule in the left upper lobe not seen on CT
    Nodule in the left upper lobe is not clearly or definitely seen
    Nodule in the left upper lobe has not, to date, been seen
    Nodule in the left upper lobe hasn't been seen
    Nodule in the left upper lobe wasn't seen
    Nodule in the left upper lobe weren't seen
    Nodule in the left upper lobe won't be seen
    Nodule in the left upper lobe isnt seen
    Nodule in the left upper lobe cant be seen
    Nodule in the left upper lobe is imperceptible
    Nodule in the left upper lobe is inapparent
    Nodule in the left upper lobe is nonexistant
    Nodule in the left upper lobe is refuted
    Nodule in the left upper lobe is disproved
    Nodule in the left upper lobe -ve
    Nodule in the left upper lobe: neg
    Nodule in the left upper lobe: nope
    Nodule in the left upper lobe: nah
    Nodule in the left upper lobe: not.
    Nodule in the left upper lobe: never
    Nodule in the left upper lobe: n/a
    Nodule in the left upper lobe: not applicable
    Nodule in the left upper lobe: FALSE
    Nodule in the left upper lobe=0
    Nodule in the left upper lobe = no
    Nodule in the left upper lobe → no
    Nodule in the left upper lobe => absent
    Nodule in the left upper lobe | no
    Nodule in the left upper lobe / no
    Nodule in the left upper lobe...no
    Nodule in the left upper lobe!? No!
    Nodule in the left upper lobe NOT
    Nodule in the left upper lobe -- no
    Nodule in the left upper lobe --- absent
    Nodule in the left upper lobe: 🚫
    Nodule in the left upper lobe 🆖
    Nodule in the left upper lobe ⛒
    Nodule in the left upper lobe 🗙
    Nodule in the left upper lobe 🗷
    Nodule in the left upper lobe ✖︎
    Nodule in the left upper lobe ⨯
    Nodule in the left upper lobe ❌❌❌
    ❌❌ Nodule in the left upper lobe
    🚷 Nodule in the left upper lobe
    📵 Nodule in the left upper lobe
    ⊝ Nodule in the left upper lobe
    ⊖ Nodule in the left upper lobe
    ➖ Nodule in the left upper lobe
    ⛔️ Nodule in the left upper lobe
    🙅‍♂️ Nodule in the left upper lobe
    🚳 Nodule in the left upper lobe
    (no) Nodule in the left upper lobe
    [no] Nodule in the left upper lobe
    {no} Nodule in the left upper lobe
    no: Nodule in the left upper lobe
    No - nodule in the left upper lobe not seen
    No "nodule" in the left upper lobe
    No (suspicious) nodule in the left upper lobe
    No (new) nodule in the left upper lobe
    No, no, no nodule in the left upper lobe
    Not not not nodule in the left upper lobe
    no/nodule in the left upper lobe
    no_nodule_in_the_left_upper_lobe
    Nodule-absent left upper lobe
    Nodule-negative left upper lobe
    left upper lobe is nodule-negative
    Left upper lobe (nodule-free)
    Left upper lobe free from nodule
    Left upper lobe spared of nodule
    No cavity or nodule or mass in the left upper lobe
    Neither a mass nor a nodule is seen in the left upper lobe
    Nor is a nodule seen in the left upper lobe
    Nor is there a nodule in the left upper lobe
    Never was a nodule seen in the left upper lobe
    Under no circumstances a nodule in the left upper lobe
    By no means a nodule in the left upper lobe
    In no way a nodule in the left upper lobe
    At no point was a nodule seen in the left upper lobe
    On no image is there a nodule in the left upper lobe
    A nodule in the left upper lobe is doubtful
    Doubtful nodule in the left upper lobe
    It is doubtful that there is a nodule in the left upper lobe
    It is not the case that there is a nodule in the left upper lobe
    It cannot be said that there is a nodule in the left upper lobe
    We were unable to find a nodule in the left upper lobe
    We failed to find a nodule in the left upper lobe
    CT was unable to reveal a nodule in the left upper lobe
    Ruled him out for nodule in the left upper lobe
    The scan lacks any nodule in the left upper lobe
    The scan is lacking a nodule in the left upper lobe
    Scan with no nodule in the left upper lobe
    Normal study with absence of nodule in the left upper lobe
    Not seen: nodule in the left upper lobe
    Absent: nodule in the left upper lobe
    Excluded: nodule in the left upper lobe
    Not present: nodule in the left upper lobe
    None of the images shows a nodule in the left upper lobe
    <strike>Nodule in the left upper lobe</strike>
    ~Nodule in the left upper lobe~
    No nodule at all, in the left upper lobe
    Nodule? Not in the left upper lobe
    Nodule in the left upper lobe? Negative.
    Nodule in the left upper lobe? Absent!
    Is there a nodule in the left upper lobe? There is not.
    Is there a nodule in the left upper lobe? There isn't.
    Nodule in the left upper lobe? Certainly not.
    Nodule in the left upper lobe? Definitely not seen.
    If there were a nodule in the left upper lobe it is not seen
    Nodule (which was expected in the left upper lobe) is not seen
    Aplasia instead of nodule in the left upper lobe
    Nodule in the left upper lobe has been drained and resolved
    A nodule in the left upper lobe is not demonstrated, identified or seen
    No nodules in the left upper lobe
    There are zero nodules in the left upper lobe
    0 nodules in the left upper lobe
"""
STILL_THERE = """
    Nodule in the left upper lobe, without interval change
    Nodule in the left upper lobe without significant change
    Nodule in the left upper lobe is not significantly changed
    Nodule in the left upper lobe is no different
    Nodule in the left upper lobe, not previously seen
    Nodule in the left upper lobe was not seen before
    New nodule in the left upper lobe, not seen on the prior study
    Nodule in the left upper lobe shows no enhancement
    Nodule in the left upper lobe with no calcification
    Nodule in the left upper lobe, no cavitation
    Nodule in the left upper lobe. No effusion. No pneumothorax.
    No pneumothorax. No effusion. Nodule in the left upper lobe.
    No pneumothorax or effusion. Nodule in the left upper lobe.
    No pneumothorax, however nodule in the left upper lobe
    No pneumothorax though nodule in the left upper lobe
    No pneumothorax except nodule in the left upper lobe
    No abnormality apart from nodule in the left upper lobe
    No abnormality other than nodule in the left upper lobe
    Nothing but nodule in the left upper lobe
    Normal except for nodule in the left upper lobe
    Effusion has resolved. Nodule in the left upper lobe.
    Effusion has resolved, but nodule in the left upper lobe persists
    Effusion absent; nodule in the left upper lobe
    Nodule in the left upper lobe, effusion absent
    Nodule in the left upper lobe; effusion not seen
    Nodule in the left upper lobe is not unlikely
    Nodule in the left upper lobe is not doubtful
    Nodule in the left upper lobe cannot be denied
    Nodule in the left upper lobe cannot be ignored
    Nodule in the left upper lobe cannot be missed
    Nodule in the left upper lobe is not missing
    Nodule in the left upper lobe cannot be completely excluded
    We cannot exclude nodule in the left upper lobe
    Unable to exclude nodule in the left upper lobe
    Nodule in the left upper lobe is not benign
    Nodule in the left upper lobe may not be benign
    Nodule in the left upper lobe not biopsied
    Nodule in the left upper lobe, neither calcified nor cavitated
    Not one but two: nodule in the left upper lobe
    Nodule in the left upper lobe never biopsied
    There is no question of a nodule in the left upper lobe
    No denying nodule in the left upper lobe
    Nodule in the left upper lobe did not disappear
    Nodule in the left upper lobe not yet resolved
    Nodule in the left upper lobe (not calcified)
    Nodule in the left upper lobe - no effusion
    Nodule in the left upper lobe – effusion absent
    Nodule in the left upper lobe: yes, effusion: no
    Effusion: no, nodule in the left upper lobe: yes
    ✔ Nodule in the left upper lobe ✘ effusion
    Nodule in the left upper lobe ✅ effusion ❌
    Non-calcified nodule in the left upper lobe
    Noncalcified nodule in the left upper lobe
    Fat-free nodule in the left upper lobe
    Nodule in the left upper lobe, disease-free elsewhere
    Painless nodule in the left upper lobe
    Nodule in the left upper lobe on a motion-free scan
    Nodule in the left upper lobe, margins free
    A nodule is seen in the left upper lobe
    There is a nodule in the left upper lobe
    Nodule in the left upper lobe, no effusion
    No effusion. Nodule in the left upper lobe.
    No effusion, but a nodule in the left upper lobe
    No effusion; nodule in the left upper lobe
    There is no effusion, there is a nodule in the left upper lobe
    No effusion, and a nodule is seen in the left upper lobe
    Yes, nodule in the left upper lobe
    No, nodule in the left upper lobe
    Nodule in the left upper lobe without effusion
    Nodule in the left upper lobe, not calcified
    Nodule in the left upper lobe is not malignant
    Nodule in the left upper lobe has not grown
    Nodule in the left upper lobe has not changed
    Nodule in the left upper lobe cannot be excluded
    Nodule in the left upper lobe cannot be entirely excluded
    Nodule in the left upper lobe is not excluded
    Nodule in the left upper lobe can't be ruled out
    Nodule in the left upper lobe has not been ruled out
    Nodule in the left upper lobe is not absent
    Nodule in the left upper lobe has not resolved
    Nodule in the left upper lobe did not resolve
    Nodule in the left upper lobe failed to resolve
    Nodule in the left upper lobe has partially resolved
    Nodule in the left upper lobe should be excluded
    Nodule in the left upper lobe must be ruled out
    Nodule in the left upper lobe is not to be missed
    Does not exclude a nodule in the left upper lobe
    Cannot rule out a nodule in the left upper lobe
    Not without nodule in the left upper lobe
    Not free of nodule in the left upper lobe
    The left upper lobe is not nodule-free
    No change in the nodule in the left upper lobe
    No significant change in nodule in the left upper lobe
    No interval change in nodule in the left upper lobe
    No increase in nodule in the left upper lobe
    No evidence of growth of nodule in the left upper lobe
    No doubt nodule in the left upper lobe
    Without doubt nodule in the left upper lobe
    Without change, nodule in the left upper lobe
    Not only nodule in the left upper lobe
    Not just nodule in the left upper lobe
    Not necessarily malignant: nodule in the left upper lobe
    Not certain whether the nodule in the left upper lobe is malignant
    Nodule in the left upper lobe no larger than 5 mm
    Nodule in the left upper lobe with or without calcification
    Unchanged nodule in the left upper lobe
    Nodule in the left upper lobe after resection
    Resection of nodule in the left upper lobe is recommended
    High resolution: nodule in the left upper lobe
    Gram negative nodule in the left upper lobe
    Free fluid; nodule in the left upper lobe
    False lumen; nodule in the left upper lobe
    ✅ Nodule in the left upper lobe
    Nodule (no calcification) in the left upper lobe
    Nodule in the left upper lobe because of no treatment
    The heart is not enlarged, and there is a nodule in the left upper lobe
"""


def list_lines(text):
    return [line.strip() for line in text.strip().splitlines()]


def score(report, gold):
    return [reward({"report": report}, {"report": gold}) for reward in REWARDS]


OPPOSITES = [line for text in (BEFORE, AFTER, SIGNS, MORE_OPPOSITES) for line in list_lines(text)]


@pytest.mark.parametrize("report", OPPOSITES)
def test_the_opposite_finding_scores_low(report):
    assert max(score(report, FINDING)) <= 1 / 3


@pytest.mark.parametrize("report", list_lines(BEFORE) + list_lines(AFTER))
def test_another_way_to_deny_keeps_its_score(report):
    bare, ignoring = score(report, DENIAL)
    assert bare >= 0.4
    assert ignoring >= 0.5


@pytest.mark.parametrize("report", list_lines(STILL_THERE))
def test_a_negation_that_denies_something_else_leaves_the_finding(report):
    bare, ignoring = score(report, FINDING)
    assert bare >= 0.5
    assert ignoring >= 0.6
    assert max(score(report, DENIAL)) <= 1 / 3


def test_the_tables_are_as_large_as_promised():
    assert len(OPPOSITES) >= 350
    assert len(list_lines(STILL_THERE)) >= 100


WORDS = ["tumour", "mass", "no", "not", "without", ",", ".", "and", "-free", "❌", "(-)"]
MORE = ["tumour", "the", "not", "isn't", "there is", "seen", "cannot", "excluded", ".", ",", "none", "0", "~~tumour~~"]
LONG = [FINDING, "nodule", "lobe", "the", "no", "not", "without", ",", ".", "and", "-free", "❌", "is", "seen"]
GOLDS = [
    (["tumour", "no tumour"], WORDS, 4),
    (["tumour", "no tumour"], MORE, 3),
    (["tumour", "no tumour"], ["tumour", "no", "not", ".", ",", "and", "❌"], 5),
    (["tumour", "without tumour"], WORDS, 3),
    (["tumour", "tumour is absent"], MORE, 3),
    (["tumour", "no evidence of tumour"], [*WORDS, "evidence"], 3),
    (["tumour is seen", "tumour is not seen"], MORE, 3),
    ([FINDING, DENIAL], LONG, 3),
    ([FINDING, "No nodule."], LONG, 3),
    ([FINDING, "A nodule in the left upper lobe is not seen."], LONG, 3),
    (["Nodule. No effusion.", "No nodule. Effusion."], ["nodule", "effusion", "no", ".", ",", "and", "not"], 4),
]


@pytest.mark.parametrize("reward", REWARDS, ids=["all words", "stop words"])
@pytest.mark.parametrize(("golds", "words", "most"), GOLDS, ids=lambda value: str(value)[:40])
def test_no_hedge_has_a_higher_mean_than_the_best_guess(reward, golds, words, most):
    references = [{"report": gold} for gold in golds]

    def compute_mean(report):
        return sum(reward({"report": report}, reference) for reference in references) / len(references)

    guess = max(map(compute_mean, golds))
    for count in range(1, most + 1):
        for chosen in itertools.product(words, repeat=count):
            assert compute_mean(" ".join(chosen)) <= guess + 1e-9, chosen


@pytest.mark.parametrize(
    "unit",
    [
        "n't seen ", "not ", "no, ", "nodule-free ", "nodule absent ", "nodule. No. ", "not seen and is ", "ruled out ",
        "rule him out ", "there is no ", "free of ", "no a a a a ", "nodule (not seen) ", "resolved not ", "(-) ", "a ",
        "w/o ", "~~a", "<s>a", "[ ", "- ", "\n", "nо ", "x-", "left, ", "no new ", "is, and ", "!", "a" + "\u0336",
    ],
)  # fmt: skip
@pytest.mark.timeout(20)
def test_the_time_is_linear(unit):
    split_words("no " + unit * (60_000 // len(unit)))
