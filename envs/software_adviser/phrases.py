"""How users speak of tasks, kinds of pictures, limits and files: laymen and experts, in train and in test.

The two splits share no sentence frame (`generator.py`) and no layman's phrase. Experts use the field's own terms, which
are the same in both.
"""

from collections.abc import Mapping
from typing import Literal, get_args

from ...utils.frozen import FrozenDict

Split = Literal["train", "test"]
Level = Literal["layman", "expert"]
Constraint = Literal["permissive license", "no GPU", "demo"]
HiddenKind = Literal["task", "dimensions", "format"]
CONSTRAINTS: tuple[Constraint, ...] = get_args(Constraint)
HIDDEN_KINDS: tuple[HiddenKind, ...] = get_args(HiddenKind)
Phrases = Mapping[str, Mapping[Split, tuple[str, ...]]]
Foreign = Mapping[Split, tuple[tuple[str, str], ...]]


def _read(table: str) -> Phrases:
    """Lines of `key | train; train | test; test` as phrases by key and split."""
    rows = [[part.strip() for part in line.split("|")] for line in table.strip().splitlines()]
    return FrozenDict(
        {key: FrozenDict(train=tuple(train.split("; ")), test=tuple(test.split("; "))) for key, train, test in rows}
    )


# what follows "I want to"
TASKS: Phrases = _read("""
    acquisition | steer the microscope from my computer; have the device take pictures by itself | control camera and stage
    annotation | draw labels on it by hand; mark and name things myself | write notes onto regions together with colleagues
    classification | sort the pictures into groups; have the computer say which type each one is | tell which category it belongs to
    data management | keep my many pictures in order; store and search a large collection | organize an archive of images
    de-identification | take the patient's name off it; remove all that says who the patient is | make it anonymous before sharing
    deconvolution | undo the blur of the optics; sharpen it by removing the lens blur | take out the haze that the optics add
    denoising | get rid of the grain; clean up the noise | make a speckled image smooth without losing detail
    depth estimation | know how far away things are; get distances from the camera | estimate how deep the scene is
    detection | find where certain things are; mark every spot that matters | have a program point at the objects in it
    DICOM networking | send scans between the machines of the hospital; fetch studies from the hospital's archive | let my computer talk to the scanner and the archive
    file reading | load the file into my own program; get at the pixels from a script | open such files in my code
    format conversion | save it as another kind of file; turn it into a file that others can open | export it to a different file type
    measurement | measure sizes and amounts in it; get numbers out of it | work out how big and how bright things are
    pose estimation | find the joints and body parts; see how an animal holds its limbs | get the posture of the body
    quality control | check whether the pictures are good enough; find bad scans before I use them | spot images that went wrong
    radiomics | describe a lesion's texture by numbers; compute hundreds of texture values of a tumor | extract a long table of shape and texture values
    reconstruction | turn the raw measurements into a picture; build the image from what the machine recorded | compute the picture from the scanner's data
    registration | lay two pictures over each other so that they match; line up one scan with another | bring images of two sessions into the same position
    segmentation | draw the outlines of the structures by computer; cut out the parts I am interested in | separate each object from the background
    simulation | make artificial pictures of this sort; create fake but realistic images | imitate what the machine would record
    stain normalization | make the dye colors look the same on all slides; even out the stain colors | correct color differences from staining
    stitching | join overlapping tiles into one big picture; glue many shots together | make a panorama of neighboring fields
    super-resolution | make a small picture bigger and crisper; get more detail than the picture has | increase the resolution afterwards
    tracking | follow things as they move; see where each one goes over time | trace the path of each object from frame to frame
    treatment planning | plan a radiation treatment on it; work out the dose for radiotherapy | prepare the beams for a tumor treatment
    visualization | just look at it on my screen; show it in a nice way | open it and browse around
""")  # noqa: E501

# what follows "I have"
MODALITIES: Phrases = _read("""
    CT | a CT scan; pictures from a CT machine | a computed tomography
    MR | an MRI scan; pictures from an MRI machine | images of a magnetic resonance exam
    X-ray | an X-ray picture; an X-ray film | a radiograph
    ultrasound | an ultrasound picture; pictures of an ultrasound probe | a sonogram
    PET | a PET scan; pictures from a PET camera | a positron emission scan
    SPECT | a SPECT scan; pictures from a gamma camera | a single-photon emission scan
    fluorescence | microscope pictures of glowing cells; cells with a fluorescent dye | fluorescently tagged cells from a confocal microscope
    bright field | ordinary bright-field microscope pictures; cells under plain light | pictures of a light microscope without any dye
    phase contrast | phase contrast pictures of living cells; unstained cells from a phase microscope | phase pictures of see-through cells
    electron | pictures of an electron microscope; an electron micrograph | micrographs taken with an electron beam
    histology | a stained tissue slide; a histology slide of a biopsy | a scanned tissue section from pathology
    OCT | an OCT scan of the eye; an OCT picture | an optical coherence tomography of a retina
    fundus | a photo of the back of the eye; a fundus picture | a retinal photograph
    endoscopy | pictures from an endoscope; an endoscopy of the bowel | frames of a scope's camera
    photo | ordinary camera pictures; photos of a normal camera | everyday photographs
    photoacoustic | a photoacoustic picture; pictures made with laser light and sound | an optoacoustic scan
""")  # noqa: E501

# tasks and kinds of pictures that no software of a catalogue is for
FOREIGN_TASKS: Foreign = FrozenDict(
    train=(
        ("read the handwriting on the label", "handwriting recognition"),
        ("find out in which town it was taken", "geolocation"),
        ("turn it into a piece of music", "sonification"),
        ("write the invoice for it", "billing code assignment"),
        ("guess how old the person is", "age estimation"),
    ),
    test=(
        ("find out whether somebody has faked it", "forgery detection"),
        ("translate the words in it into English", "machine translation of captions"),
        ("know how much the machine has cost", "equipment cost estimation"),
        ("read the bar code on the box", "barcode decoding"),
    ),
)
FOREIGN_MODALITIES: Foreign = FrozenDict(
    train=(
        ("a sonar recording of the sea floor", "side-scan sonar"),
        ("a radar map of the weather", "weather radar"),
        ("pictures from a ground radar", "ground-penetrating radar"),
    ),
    test=(
        ("a seismic section of the ground", "seismic reflection"),
        ("a radar picture from a satellite", "synthetic aperture radar"),
        ("a lidar scan of a forest", "airborne lidar"),
    ),
)
BROKEN_FILES: Mapping[Split, tuple[str, ...]] = FrozenDict(
    train=("an empty file, 0 bytes", "damaged: its header cannot be read", "a text document (docx)"),
    test=("cut off in the middle: no pixel data", "a table (xlsx), no image", "an archive whose password is lost"),
)

# sentences, by constraint, level and split
CONSTRAINT_WORDS: Mapping[Constraint, Mapping[Level, Mapping[Split, tuple[str, ...]]]] = FrozenDict(
    {
        "permissive license": {
            "layman": {
                "train": ("Our company must be free to build it into a product.",),
                "test": ("We want to sell something that contains it, without giving away our own code.",),
            },
            "expert": {
                "train": ("Permissive license only (MIT, BSD, Apache).",),
                "test": ("No copyleft and no restriction to non-commercial use, please.",),
            },
        },
        "no GPU": {
            "layman": {
                "train": (
                    "My computer has no graphics card.",
                    "It has to run on an old laptop.",
                ),
                "test": ("There is no graphics card in my PC.",),
            },
            "expert": {
                "train": ("CPU only.", "No GPU available."),
                "test": ("Our cluster is without GPUs.",),
            },
        },
        "demo": {
            "layman": {
                "train": ("I want to try it online before I install anything.",),
                "test": ("There should be a page where I can try it out first.",),
            },
            "expert": {
                "train": ("It needs an online demo.",),
                "test": ("A hosted demo or notebook must exist.",),
            },
        },
    }
)
EXCLUSION_WORDS: Mapping[Level, Mapping[Split, tuple[str, ...]]] = FrozenDict(
    {
        "layman": {"train": ("Please not {names}, I did not like that.",), "test": ("I have had enough of {names}.",)},
        "expert": {"train": ("Not {names}.", "Exclude {names}."), "test": ("Anything other than {names}.",)},
    }
)
