"""What an author's code may return in place of a plain number, and what is none."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import torch

HALVES = {
    "numpy.float16": np.float16(0.5), "numpy.float32": np.float32(0.5), "numpy.float64": np.float64(0.5),
    "numpy.longdouble": np.longdouble(0.5), "array without dimensions": np.array(0.5), "tensor": torch.tensor(0.5),
    "bfloat16": torch.tensor(0.5, dtype=torch.bfloat16), "Fraction": Fraction(1, 2), "Decimal": Decimal("0.5"),
    "tensor with a gradient": torch.tensor(0.5, requires_grad=True),
}  # fmt: skip
ONES = {
    "numpy.bool_": np.True_, "numpy.int64": np.int64(1), "array of a bool": np.array(True),
    "tensor of a bool": torch.tensor(True), "tensor of an integer": torch.tensor(1),
}  # fmt: skip
ALONE = {  # in an array
    "array": np.array([0.5]), "array of two dimensions": np.array([[0.5]]), "tensor": torch.tensor([0.5]),
    "bfloat16": torch.tensor([[0.5]], dtype=torch.bfloat16), "parameter": torch.nn.Parameter(torch.tensor([0.5])),
}  # fmt: skip
NO_NUMBERS = {
    "text": "0.5", "numpy.str_": np.str_("0.5"), "array of a text": np.array("0.5"), "complex": 0.5 + 0j,
    "numpy.complex64": np.complex64(0.5), "numpy.clongdouble": np.clongdouble(0.5), "list": [0.5],
    "tensor of a complex": torch.tensor(0.5 + 0j), "array of two": np.array([0.5, 0.5]), "array of none": np.array([]),
    "tensor of two": torch.tensor([0.5, 0.5]), "mapping": {"score": 0.5}, "masked": np.ma.masked,
    "tensor without values": torch.empty((), device="meta"), "Decimal that signals": Decimal("sNaN"),
    "fraction of many digits": Fraction(10**400),
}  # fmt: skip
NOT_FINITE = {
    "numpy.nan": np.float32("nan"), "nan of torch": torch.tensor(float("nan")), "numpy.inf": np.float16("inf"),
    "inf of torch": torch.tensor([float("inf")]), "Decimal": Decimal("NaN"),
}  # fmt: skip
