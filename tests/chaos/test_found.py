"""What the chaos suite has found, each by itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("dataclay")

from spliter import BlockLostError
from spliter_backends.dataclay_cluster import EmbeddedDataClay
from spliter_backends.dataclay_collections import from_array


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedDataClay]:
    with EmbeddedDataClay(2) as running:
        running.client()
        yield running


@pytest.mark.backend("dataclay")
def test_collection_in_dataclay_whose_backend_is_gone(cluster: EmbeddedDataClay) -> None:
    """It was brought here without the blocks that were gone, or ended in an internal error."""
    x = from_array(np.arange(8), chunks=2)
    np.testing.assert_array_equal(x.compute(), np.arange(8))
    cluster.kill(1)
    dead = str(cluster.backend_ids[1])
    lost = tuple((at,) for at, place in enumerate(x.locations()) if place == dead)
    with pytest.raises(BlockLostError) as raised:
        x.compute()
    assert len(lost) == 2
    assert raised.value.blocks == lost
    x.delete()  # what is left
    with pytest.raises(BlockLostError):
        x.compute()
    cluster.add()
