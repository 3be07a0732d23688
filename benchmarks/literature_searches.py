"""What became of each search of a policy in `literature_vqa`: shares of the stored episodes of a run.

    python benchmarks/literature_searches.py runs/literature_tiny-seed0/held_out/after

`held` means that the shown text of an article that supports the answer holds it: not that its PMID is among the facts.
One JSON object: shares of all episodes, and for topics that no article is about the share that is said to be unknown.
"""

import json
import re
import sys
from collections import Counter

from viewbox.records import Episode
from viewbox.rewards.evidence import _read_items
from viewbox.rollouts.store.reader import load


def sort(episode: Episode) -> str:
    reference = episode.task.reference
    said = str((episode.answer or {}).get("answer", ""))
    calls = [result for turn in episode.turns for result in turn.tool_results if "pmids" in result.facts]
    right = episode.scores is not None and episode.scores.components.get("answer") == 1.0
    if reference["category"] == "told":
        return "needs no search: " + ("searched" if calls else "answered" if right else "wrong")
    if not calls:
        return "no search"
    if not any(reference["about"] in str(result.arguments.get("query", "")) for result in calls):
        return "searched for another topic"
    if not reference["evidence"]:
        return "nothing stands, " + (
            "said so" if right else f"said {'a number' if said.isdigit() else 'another thing'}"
        )
    shown = _read_items(episode)
    words = [set(re.findall(r"\w+", shown.get(pmid, ""))) for pmid in reference["evidence"]]
    if not any(str(reference["answer"]) in some for some in words):
        return "did not hold the answer"
    return "held the answer, " + ("used" if right else "not used")


def main(folder: str) -> None:
    episodes = list(load(folder))
    shares = {name: count / len(episodes) for name, count in Counter(map(sort, episodes)).most_common()}
    absent = [one for one in episodes if one.task.metadata["status"] == "absent"]
    unknown = sum((one.answer or {}).get("answer") == "unknown" for one in absent)
    cited = [one for one in episodes if one.scores and one.scores.components.get("evidence") is not None]
    print(
        json.dumps(
            {
                "episodes": len(episodes),
                **{name: round(share, 3) for name, share in shares.items()},
                "absent": len(absent),
                "absent, said to be unknown": unknown,
                "evidence": round(sum(one.scores.components["evidence"] for one in cited) / max(1, len(cited)), 3),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
