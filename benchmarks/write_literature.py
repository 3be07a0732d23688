"""Writes the shipped snapshot, assets/literature/snapshot.sqlite: the articles and figures of `literature_vqa`; and the
facts that they tell, envs/literature_vqa/facts.jsonl.

    python benchmarks/write_literature.py [FILE]
    python benchmarks/write_literature.py FOLDER DISEASES DEVICES      # such as build/literature 600 2400

With FILE, the snapshot alone is written there. With numbers, another world is written into FOLDER (snapshot.sqlite and
facts.jsonl, without figures), with so many names that a small model does not learn them by heart. The same version of
OpenCV gives the same bytes. Prints the number of records and the size as one JSON object.
"""

import json
import sys
from pathlib import Path

import literature_world
import msgspec
from literature_figures import draw_figures
from literature_world import write_articles

import viewbox
from viewbox.assets import SNAPSHOT

NOTE = (
    "Written for viewbox, not recorded: every article, disease, drug and device is invented, and every picture drawn. "
    "PMIDs have nine digits, which no real one has. Nothing here says anything about medicine."
)
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from examples.snapshot import SnapshotWriter  # noqa: E402

OTHER_SEED = 21
RECORDED = "2025-12-31"  # articles of its last five years are recent


def write_snapshot(path: Path, *, with_figures: bool = True) -> dict[str, int]:
    """Write the snapshot; returns how much is in it."""
    articles = write_articles()
    figures = 0
    with SnapshotWriter(
        path, note=NOTE, license="CC0-1.0", made_by="benchmarks/write_literature.py", recorded=RECORDED
    ) as writer:
        for written in articles:
            writer.add_article(written.article)
        for found, content in draw_figures() if with_figures else ():
            writer.add_image(found, content)
            figures += 1
    return {"articles": len(articles), "figures": figures, "bytes": path.stat().st_size}


def main() -> None:
    package = Path(viewbox.__file__).parent
    counts = [int(word) for word in sys.argv[2:]]
    if counts:
        literature_world.enlarge(OTHER_SEED, *counts)
    folder = Path(sys.argv[1]) if counts else package / "assets" / "literature"
    file = Path(sys.argv[1]) if len(sys.argv) == 2 else folder / SNAPSHOT
    file.parent.mkdir(parents=True, exist_ok=True)
    if len(sys.argv) != 2:
        facts = msgspec.json.Encoder().encode_lines(list(literature_world.find_support()))
        (folder if counts else package / "envs" / "literature_vqa").joinpath("facts.jsonl").write_bytes(facts)
    print(json.dumps(write_snapshot(file, with_figures=not counts)))


if __name__ == "__main__":
    main()
