"""Score predictions of neighbours against the truth, at the location of the blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter import InvalidArgumentError, Partition
from spliter.backend import count_rows
from spliter_apps._differences import Names
from spliter_apps._labels import check_one_kind
from spliter_apps._row_values import as_weights
from spliter_apps.neighbors.inspection import concatenate_targets, stack
from spliter_apps.neighbors.tasks import BatchResult, concatenate_results

Tally = Callable[[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any] | None], Any]
"""Takes truth, prediction and weights of some rows; returns a partial score to merge."""


def tally_results(partition: Partition, results: Sequence[BatchResult], tally: Tally) -> Any:
    """Score predictions against the targets next to the queries; the body of a task."""
    (predicted,) = concatenate_results(results)
    indexes, blocks = zip(*partition.items(), strict=True)
    return tally_blocks(predicted, indexes, [block[1:] for block in blocks], tally)


def tally_rows(partition: Partition, tally: Tally) -> Any:
    """Score blocks of predictions against the targets aligned with them; the body of a task."""
    indexes, blocks = zip(*partition.items(), strict=True)
    predicted = stack([block[0] for block in blocks], None)
    return tally_blocks(predicted, indexes, [block[1:] for block in blocks], tally)


def tally_blocks(
    predicted: Any, indexes: Sequence[Any], blocks: Sequence[Any], tally: Tally
) -> tuple[Names, Any]:
    """Return the names of the outputs, and a partial score from blocks of truth and weights."""
    numbered = [(f"block {index}", block) for index, block in zip(indexes, blocks, strict=True)]
    truth, names = concatenate_targets([(where, block[0]) for where, block in numbered])
    check_one_kind([truth, predicted])
    if (truth.shape[1:] or (1,)) != (predicted.shape[1:] or (1,)):
        raise InvalidArgumentError("y must have the same number of outputs as during fit")
    weights = [
        as_weights(f"sample_weight, {where}", of_block[0], count_rows(of_truth))
        for where, (of_truth, *of_block) in numbered
        if of_block
    ]
    return names, tally(truth, predicted, np.concatenate(weights) if weights else None)
