"""Small snapshots for tests."""

from PIL import Image

from examples.snapshot import SnapshotWriter
from tests.support.image_files import saved
from viewbox.tools.search.records import Article, FoundImage

ARTICLES = (
    Article("11", "Lung nodules on computed tomography", year=2023, types=("Review",), mesh=("Lung Neoplasms",)),
    Article("12", "A trial of aspirin", abstract="Aspirin after myocardial infarction.", year=2010),
    Article("13", "Chest radiographs in children", abstract="Pneumonia, pleural effusion.", year=2021),
    Article("14", "Pneumonia in adults", abstract="Antibiotics.", year=1999, types=("Randomized Controlled Trial",)),
    Article("15", "Undated pneumonia", abstract="Nothing else.", types=("Case Reports",), retracted=True),
)
FIGURES = (
    FoundImage(
        "f1", "A nodule in the right upper lobe", "Lung nodules, 2023", "https://example.org/11", "", "11", "CT",
        "chest",
    ),
    FoundImage("f2", "Consolidation", "Chest radiographs in children, 2021", "", "", "13", "X-ray", "chest"),
    FoundImage("f3", "A nodule of the thyroid", "Ultrasound, 2019", "", "", "16", "Ultrasound", "neck"),
)  # fmt: skip


def draw_png(shade=100, size=(16, 12)):
    """The bytes of a PNG."""
    return saved(Image.new("L", size, shade), "PNG")


def write_snapshot(path, articles=ARTICLES, figures=FIGURES, **words):
    """A finished snapshot of these records; every figure has a picture of its own."""
    words = {"note": "written for tests", "license": "CC0-1.0", "recorded": "2025-06-01", **words}
    with SnapshotWriter(path, **words) as writer:
        for article in articles:
            writer.add_article(article)
        for number, found in enumerate(figures):
            writer.add_image(found, draw_png(number))
    return path
