"""Annotations of scikit-image: functions that work pixel by pixel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from spliter.pipeline._types import Rows

_CONVERSIONS: Final = {
    "rgb2hsv": "rgb",
    "hsv2rgb": "hsv",
    "rgb2lab": "rgb",
    "lab2rgb": "lab",
    "rgb2xyz": "rgb",
    "xyz2rgb": "xyz",
    "xyz2lab": "xyz",
    "lab2xyz": "lab",
    "rgb2gray": "rgb",
    "rgb2yuv": "rgb",
    "yuv2rgb": "yuv",
    "rgb2ycbcr": "rgb",
    "ycbcr2rgb": "ycbcr",
    "rgb2luv": "rgb",
    "luv2rgb": "luv",
    "rgb2hed": "rgb",
    "hed2rgb": "hed",
    "lab2lch": "lab",
    "lch2lab": "lch",
}
"""Functions of ``skimage.color`` and their arguments."""

FUNCTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    f"skimage.color.{name}": {argument: Rows(), "returns": Rows()}
    for name, argument in _CONVERSIONS.items()
}
"""Functions by their full names."""
