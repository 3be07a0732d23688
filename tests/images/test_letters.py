"""Letters of the patient's sides on pictures of slices: which, where, and never in a value."""

import io

import nibabel as nib
import numpy as np

from viewbox.images.files import open_image
from viewbox.images.view import GLYPHS, View
from viewbox.tools import apply_tools, call_stateful

VALUE = 100


def open_volume(affine=(-1.0, -1.0, 1.0), dtype=np.int16, **codes):
    image = nib.Nifti1Image(np.full((60, 50, 40), VALUE, dtype), np.diag([*affine, 1.0]))
    image.header["cal_min"], image.header["cal_max"] = 0, 200
    content = bytearray(image.to_bytes())
    for name, code in codes.items():
        content[{"qform": 252, "sform": 254}[name]] = code  # of a little-endian NIfTI-1 header
    return open_image(bytes(content)).volume


def read_letter(picture, edge):
    """The letter drawn at the middle of an edge, by its white pixels; None if there is none."""
    height, width = picture.shape
    row, column = {
        "left": (height // 2, 3), "right": (height // 2, width - 4), "top": (4, width // 2),
        "bottom": (height - 5, width // 2),
    }[edge]  # fmt: skip
    part = picture[max(0, row - 6) : row + 7, max(0, column - 5) : column + 6] == 255
    if not part.any():
        return None
    rows, columns = np.nonzero(part)
    drawn = part[rows.min() : rows.min() + 7, columns.min() : columns.min() + 5]
    for name, lines in GLYPHS.items():
        glyph = np.array([[line >> (4 - bit) & 1 for bit in range(5)] for line in lines], bool)
        if glyph.shape == drawn.shape and (glyph == drawn).all():
            return name
    return "?"


def read_letters(view):
    picture = np.asarray(view.render())
    return "".join(str(read_letter(picture, edge)) for edge in ("left", "top"))


def test_a_slice_names_the_sides_at_its_left_and_its_top_and_they_follow_the_view():
    for affine in [(-1, -1, 1), (1, 1, 1), (1, -1, -1)]:
        for plane, letters in [("axial", "RA"), ("coronal", "RH"), ("sagittal", "AH")]:
            view = View.of(open_volume(affine).get_middle_slice(plane))
            assert read_letters(view) == letters
            assert read_letters(view.zoom(2)) == letters
    for steps, letters in [
        (["flip_horizontal"], "LA"), (["flip_vertical"], "RP"), (["rotate"], "PR"), (["rotate", "rotate"], "LP"),
        (["rotate", "flip_horizontal"], "AR"), (["flip_horizontal", "flip_horizontal"], "RA"),
    ]:  # fmt: skip
        view = View.of(open_volume().get_middle_slice())
        for step in steps:
            view = getattr(view, step)()
        assert read_letters(view) == letters


def test_one_affine_suffices_and_without_any_there_are_no_letters():
    for code in ["sform", "qform"]:
        other = {"sform": "qform", "qform": "sform"}[code]
        assert open_volume(**{code: 1, other: 0}).sides == "RLAP"
        unknown = open_volume(sform=0, qform=0)
        assert unknown.sides is None
        assert (np.asarray(View.of(unknown.get_middle_slice()).render()) == 128).all()
    content = io.BytesIO()
    View.of(np.full((60, 60), VALUE, np.uint8)).render().save(content, "PNG")
    assert (open_image(content.getvalue()).pixels == VALUE).all()


def test_no_letter_enters_a_value_and_tools_that_draw_keep_them():
    for dtype in [np.uint8, np.int16, np.float32]:
        view = View.of(open_volume(dtype=dtype).get_middle_slice())
        assert (np.asarray(view.to_ref().open()) == 255).any()
        assert (view.get_values() == VALUE).all()
        assert (view.to_uint8() == view.to_uint8()[0, 0]).all()
        assert (view.zoom(2, (0.0, 0.5)).get_values() == VALUE).all()
        facts = call_stateful("get_intensity_stats", view, {})[1].facts
        assert facts["min"] == facts["max"] == facts["mean"]
        steps = apply_tools(view, [("zoom", {"factor": 2}), ("equalize_histogram", {}), ("undo", {}), ("undo", {})])
        assert (steps[-1][0].get_values() == VALUE).all()
    for call in [("annotate_region", {"box": [0.4, 0.4, 0.6, 0.6]}), ("zoom", {"factor": 2})]:
        picture = np.asarray(call_stateful(call[0], View.of(open_volume().get_middle_slice()), call[1])[1].image.open())
        assert read_letter(picture if picture.ndim == 2 else picture[..., 1], "left") == "R"
