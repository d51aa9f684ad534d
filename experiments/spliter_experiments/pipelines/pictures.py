"""Filters of pictures, after the paper's: Nashville and Gotham, with scikit-image."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from spliter.pipeline import module
from spliter_experiments.pipelines.workload import OURS, PLAIN, Array, Program, Way, in_batches

LUMA: Final = np.array([0.2126, 0.7152, 0.0722])
"""Weights of red, green and blue in brightness."""

BLUE, CREAM = np.array([0x22, 0x2B, 0x6D]) / 255, np.array([0xF7, 0xDA, 0xAE]) / 255
"""Colours of the filters: #222b6d and #f7daae."""


def nashville(image: Array, color: Any, exposure: Any) -> Any:
    """Tint dark parts blue and bright parts cream, raise contrast and saturation; (h, w, 3)."""
    image = tone(image, BLUE, 0.5, dark=True)
    image = tone(image, CREAM, 0.4, dark=False)
    image = exposure.adjust_sigmoid(image, cutoff=0.5, gain=5)
    image = modulate(image, 1.0, 1.5, color)
    return exposure.adjust_gamma(image, 0.9)


def gotham(image: Array, color: Any, exposure: Any) -> Any:
    """Take most colour out, tint blue, and raise contrast twice; shape (h, w, 3)."""
    image = modulate(image, 1.2, 0.1, color)
    image = image * 0.8 + BLUE * 0.2
    image = exposure.adjust_gamma(image, 0.5)
    image = exposure.adjust_sigmoid(image, cutoff=0.5, gain=5)
    return exposure.adjust_sigmoid(image, cutoff=0.5, gain=5)


def tone(image: Array, tint: Array, strength: float, dark: bool) -> Any:
    """Blend with a colour, more where the image is bright, or where it is dark."""
    bright = np.sum(image * LUMA, axis=-1, keepdims=True)
    weight = strength * (1.0 - bright if dark else bright)
    return image * (1.0 - weight) + tint * weight


def modulate(image: Array, brightness: float, saturation: float, color: Any) -> Any:
    """Scale brightness and saturation."""
    hsv = color.rgb2hsv(image) * np.array([1.0, saturation, brightness])
    return color.hsv2rgb(np.clip(hsv, 0.0, 1.0))


def filtered(program: Program) -> dict[str, Way]:
    """Return a filter as it is, and as a pipeline of the same calls."""

    def plain(image: Array) -> Callable[[], Any]:
        from skimage import color, exposure

        return functools.partial(program, image, color, exposure)

    def ours(image: Array) -> Callable[[], Any]:
        color, exposure = module("skimage.color"), module("skimage.exposure")
        return in_batches(lambda image: program(image, color, exposure))(image)

    return {PLAIN: plain, OURS: ours}


def make_image(rows: int, seed: int) -> list[Array]:
    """Return scikit-learn's picture of China, its 427 lines of 640 pixels repeated with noise."""
    from sklearn.datasets import load_sample_image

    lines = np.arange(rows) % 427
    noise = np.random.default_rng(seed).uniform(0.0, 0.02, (rows, 640, 3))
    return [np.minimum(load_sample_image("china.jpg")[lines] / 255 + noise, 1.0)]
