"""Writes the shipped snapshot, assets/literature/snapshot.sqlite: the articles and figures of `literature_vqa`; and the
facts that they tell, envs/literature_vqa/facts.jsonl.

    python benchmarks/write_literature.py [FILE]

With FILE, the snapshot alone is written there. The same version of OpenCV gives the same bytes. Prints the number of
records and the size as one JSON object.
"""

import json
import sys
from pathlib import Path

import msgspec
from literature_figures import draw_figures
from literature_world import find_support, write_articles

import viewbox
from viewbox.assets import SNAPSHOT

NOTE = (
    "Written for viewbox, not recorded: every article, disease, drug and device is invented, and every picture drawn. "
    "PMIDs have nine digits, which no real one has. Nothing here says anything about medicine."
)
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from examples.snapshot import SnapshotWriter  # noqa: E402

RECORDED = "2025-12-31"  # articles of its last five years are recent


def write_snapshot(path: Path) -> dict[str, int]:
    """Write the snapshot; returns how much is in it."""
    articles = write_articles()
    figures = 0
    with SnapshotWriter(
        path, note=NOTE, license="CC0-1.0", made_by="benchmarks/write_literature.py", recorded=RECORDED
    ) as writer:
        for written in articles:
            writer.add_article(written.article)
        for found, content in draw_figures():
            writer.add_image(found, content)
            figures += 1
    return {"articles": len(articles), "figures": figures, "bytes": path.stat().st_size}


if __name__ == "__main__":
    package = Path(viewbox.__file__).parent
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else package / "assets" / "literature" / SNAPSHOT
    file.parent.mkdir(parents=True, exist_ok=True)
    if len(sys.argv) == 1:
        facts = msgspec.json.Encoder().encode_lines(list(find_support()))
        (package / "envs" / "literature_vqa" / "facts.jsonl").write_bytes(facts)
    print(json.dumps(write_snapshot(file)))
