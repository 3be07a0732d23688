"""The English words by which `negation.py` finds denials.

They cover the kinds of trigger phrases of NegEx (Chapman et al. 2001, 2013): before and after a finding, false
triggers, and ends of a scope.
"""


def _to_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Words that deny, by the way they do.
FORWARD = _to_set(  # what follows; and what stands before, if nothing follows or a word of SEEN does
    """
    no not nor none neither never nothing nobody nowhere without cannot cant dont isnt wasnt arent doesnt didnt werent
    hasnt havent hadnt couldnt wouldnt wont aint nil zero nay nah nope sans lack lacks lacked lacking deny denies denied
    denying exclude excludes excluding absence
    """
)
BOTH_WAYS = _to_set(  # what stands before, and what follows
    """
    absent negative neg unlikely improbable doubtful missing gone refuted disproved disproven unseen undetected
    undetectable unidentified invisible unobserved nonvisualized nonvisualised nonvisible nonexistent nonexistant
    unconfirmed imperceptible inapparent
    """
)
ENDED = _to_set(
    "excluded resolved resolve resolves removed resected excised disappeared disappear vanished dissolved cleared"
)
REMOVAL = _to_set("removal resection excision evacuation resolution disappearance clearance clearing nonvisualization")
FREE = _to_set("-free -less free")
ENDING = _to_set("free false untrue incorrect wrong n")  # at its end: "stone free", "tumour: false"; not free fluid
PAIRS = {  # what follows, only in front of these
    **dict.fromkeys(("free", "clear", "devoid", "void", "bare", "empty"), ("of", "from")),
    **dict.fromkeys(("fail", "fails", "failed", "failing", "failure", "unable"), ("to",)),
    **dict.fromkeys(("false", "untrue", "incorrect", "wrong"), ("that", "to")),
    **dict.fromkeys(("hardly", "scarcely"), ("any",)),
    **dict.fromkeys(("inconsistent", "incompatible"), ("with",)),
    "anything": ("but",),
    "insufficient": ("evidence",),
    "spared": ("of",),
    "rather": ("than",),
    "instead": ("of",),
    "opposed": ("to",),
    "unremarkable": ("for",),
}
EMPTY = _to_set("free clear devoid void bare empty")  # of PAIRS: the place before is denied with the finding
BEHIND = {  # what follows, only behind these
    "against": _to_set("argue argues arguing speak speaks speaking evidence"),
    "doubt": _to_set("i we"),
    "out": _to_set("rule rules ruled ruling"),
}
CUES = FORWARD | BOTH_WAYS | ENDED | REMOVAL | FREE | ENDING | PAIRS.keys() | BEHIND.keys() | {"non", "0"}
NEGATIONS = FORWARD | BOTH_WAYS | _to_set("excluded non free false out except exclusion rule ruled")  # no stop words

SHORT = _to_set("no none nil never nope nay nah negative")  # answers: "No, it is a tumour", "tumour: no, nodule: yes"
BEFORE_ASIDES = FORWARD - SHORT  # "not, in fact, a tumour"
OF_NOUNS = _to_set("no nil without absence lack lacks zero sans")  # "no visible tumour" reaches forward only
ALWAYS_OF = _to_set("resolution disappearance clearance clearing nonvisualization")  # of REMOVAL: "resolution of"

# What comes between a negation and its verb, or after it at the end of a sentence ("not seen any more").
FILLER = _to_set(
    """
    a an the any be been being is are was were has have had to able longer yet ever even also well now today anymore
    more here there at all currently again still it so far present time either whatsoever appear seem found rule rules
    ruled or which who
    """
)
# "The tumour is not seen": it denies what stands before.
SEEN = _to_set(
    """
    seen present identified visible visualized visualised evident detected demonstrated found noted observed apparent
    appreciated shown there demonstrable detectable identifiable discernible discerned perceptible perceived palpable
    recognized recognised recognizable recognisable noticed noticeable located depicted displayed delineated imaged
    documented reported described diagnosed revealed disclosed encountered confirmed established proven verified
    reproduced applicable     existing existent appear appears exist exists occur recur case true
    """
)
LIKELY = _to_set("likely probable suspected suggested supported")  # as SEEN, unless it is "not likely malignant"
PLACED = _to_set("in on at within from by over along near")  # "does not appear on the left"
ARTICLES = _to_set("a an any the this these there it")
VERBS = _to_set(  # of a clause
    """
    is are was were has have had remains remain shows show persists cannot cant isnt wasnt arent werent doesnt didnt
    dont hasnt havent couldnt
    """
)
# Negations that deny no finding: "no change in", "not only", "no larger than", "not certain whether".
NOT_DENIED = _to_set("impossible only just merely simply solely necessarily doubt question difficulty further")
CHANGE = _to_set(
    "change changes increase decrease growth progression enlargement difference improvement worsening reduction"
)
QUALIFIERS = _to_set(
    """
    significant interval definite suspicious appreciable substantial gross obvious real marked relevant overall new
    evidence of evident a the any
    """
)
UNCERTAIN = _to_set("certain sure clear known evident")  # before "if" and "whether"
COMPARED = _to_set("more less longer larger smaller greater bigger wider fewer thicker better worse")  # before "than"
MODAL = _to_set("should must may might would need needs will recommend recommended")  # "should be excluded"
SEEMING = _to_set("appear appears appeared seem seems seemed considered felt thought believed found")  # … to be
PARTLY = _to_set("partially partly nearly almost incompletely largely mostly")  # "resolved"
OTHER_SENSE = _to_set("gram false")  # "gram negative"
# "PET negative nodule": of BOTH_WAYS, behind a test it denies the test alone, in front of these one word.
TESTS = _to_set(
    """
    pet fdg hiv hbv hcv hpv afb er pr her2 smear culture cultures sputum cytology biopsy serology antigen antibody
    dimer troponin
    """
)
NEGATIVE_THINGS = _to_set("margin margins pressure predictive contrast cultures smear smears")
NEVER_SEEN = _to_set(
    "absent missing unseen undetected unidentified unobserved undiagnosed"
)  # behind EARLIER: now there
IMPOSSIBLE = _to_set("impossible difficult hard tough challenging insufficient inadequate")  # … to exclude
POSSIBLE = _to_set("possible way enough reason")  # … to exclude, if denied
SAYING = _to_set("say said state conclude true that think believe certain sure case")  # "cannot say there is no mass"
# "No calcification in the nodule" leaves the nodule there, and so does an attribute "of the nodule".
LESIONS = _to_set(
    """
    nodule nodules mass masses lesion lesions tumor tumors tumour tumours cyst cysts opacity opacities consolidation
    infiltrate fracture fractures effusion collection abscess aneurysm polyp polyps stone stones thrombus hematoma
    haematoma graft stent catheter implant
    """
)
WITHIN = _to_set("in within inside around surrounding")
KNOWN = _to_set("the this that these those known its")
ATTRIBUTES = _to_set(
    """
    calcification calcifications cavitation enhancement features feature necrosis malignancy invasion extension rupture
    compression displacement spiculation washout
    """
)
EARLIER = _to_set("before previously previous prior earlier")  # "not previously seen": it is there now
AFTER = _to_set("after following since")
AFTERWARDS = _to_set("post after following since interval p complete")  # "status post removal of"
UNITS = _to_set("mm cm m hu ml cc l g kg mg degrees percent to or and")

# A place in front of what it has not: "left lung: no nodule", "the liver shows no mass"; not "the mass has no …".
HAVING = _to_set("have contain show demonstrate reveal exhibit harbor harbour")
PLACES = _to_set(
    """
    left right both bilateral upper lower middle mid central peripheral anterior posterior medial lateral superior
    inferior proximal distal apical basal base bases apex apices lobe lobes zone zones field fields segment region area
    side quadrant lung lungs chest thorax hemithorax pleura pleural space spaces cavity mediastinum hilum hila heart
    pericardium abdomen pelvis liver spleen pancreas kidney kidneys adrenal adrenals gallbladder bladder bowel colon
    stomach esophagus aorta artery arteries vein veins brain hemisphere ventricle ventricles spine vertebra vertebrae
    bone bones rib ribs skull neck thyroid breast breasts prostate uterus ovary ovaries knee hip shoulder ankle wrist
    elbow foot hand arm leg joint skin orbit orbits sinus sinuses
    """
)

# A scope ends before these.
CONTRAST = _to_set(
    """
    but however although though yet except whereas while instead nevertheless rather because apart aside besides
    """
)
CLOSING = frozenset(".;!?()")
AROUND_PLACES = PLACES | FILLER | PLACED | ARTICLES | VERBS | _to_set(", of and or with does do did contains")
BARE = CUES | SEEN | FILLER | {","}  # a sentence of these alone denies the one before
PSEUDO_STARTS = NOT_DENIED | CHANGE | QUALIFIERS | UNCERTAIN | COMPARED
SPECIAL = PSEUDO_STARTS | FILLER | SEEN | LIKELY | PLACED | {"", ","}  # what a word of FORWARD denies depends on these
