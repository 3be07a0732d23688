"""Trains a policy from a YAML config, as `viewbox train CONFIG [key.path=value ...]` does: `python train.py CONFIG`.

On several GPUs: `accelerate launch train.py CONFIG`.
"""

import sys

from viewbox.training.command import main

if __name__ == "__main__":
    sys.exit(main())
