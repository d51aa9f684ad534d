"""Annotations of scikit-image: functions that work pixel by pixel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from spliter.pipeline._calls.split_types import Rows

_CONVERSIONS: Final = (
    *("rgb2hsv", "hsv2rgb", "rgb2lab", "lab2rgb", "rgb2xyz", "xyz2rgb", "xyz2lab", "lab2xyz"),
    *("rgb2yuv", "yuv2rgb", "rgb2ycbcr", "ycbcr2rgb", "rgb2luv", "luv2rgb"),
    *("rgb2hed", "hed2rgb", "lab2lch", "lch2lab"),
)
"""Functions of ``skimage.color``; the argument has the name of what is converted."""

FUNCTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "skimage.color.rgb2gray": {"rgb": Rows(), "returns": Rows()},
    **{
        f"skimage.color.{name}": {
            name.partition("2")[0]: Rows(),
            "returns": Rows(like=name.partition("2")[0], dtype=np.floating),
        }
        for name in _CONVERSIONS
    },
}
"""Functions by their full names."""
