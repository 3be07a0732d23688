"""Pictures for small datasets."""

import io
from pathlib import Path

import numpy as np
from PIL import Image


def draw(number: int, size: tuple[int, int] = (96, 64), mode: str = "L") -> Image.Image:
    """A picture that is different for each number."""
    pixels = np.random.default_rng(number).integers(0, 255, size[::-1], dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def encode(number: int, size: tuple[int, int] = (96, 64), form: str = "PNG") -> dict[str, bytes | str | None]:
    """A picture as the library `datasets` stores it in Parquet."""
    file = io.BytesIO()
    draw(number, size, "RGB").save(file, form)
    return {"bytes": file.getvalue(), "path": None}


def write(path: Path, number: int, size: tuple[int, int] = (96, 64)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draw(number, size).save(path)
