"""A specialist that guesses, for runs that measure whether a policy learns which of its tools to trust.

    specialists:
      classify_b: {kind: function, function: "viewbox.envs.chest_xray.decoy:guess_findings"}

Its results have the form of the classifier's with `top_k: 1`. They depend on the pixels, so that asking twice brings
nothing new, and on nothing that the film shows.
"""

import hashlib

import numpy as np

from ...tools.arguments import Picture
from ...tools.results import ToolOutput
from .radiographs import LABELS


def guess_findings(image: Picture) -> ToolOutput:
    """The most probable finding on a picture, from a classifier."""
    digest = hashlib.blake2b(np.ascontiguousarray(image.to_gray()).tobytes(), digest_size=8).digest()
    rng = np.random.default_rng(int.from_bytes(digest))
    number = int(rng.integers(len(LABELS) + 1))
    shown = number < len(LABELS)
    label = LABELS[number] if shown else LABELS[int(rng.integers(len(LABELS)))]
    share = rng.uniform(0.9, 1.0) if shown else rng.uniform(0.0, 0.3)
    return ToolOutput(
        f"probabilities (the highest; {len(LABELS) - 1} labels left out)", {label: round(float(share), 4)}
    )
