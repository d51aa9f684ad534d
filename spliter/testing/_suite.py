"""The conformance suite as one class."""

from __future__ import annotations

from spliter.testing._checks_of_materialized import MaterializedChecks
from spliter.testing._checks_of_partitions import PartitionChecks
from spliter.testing._checks_of_rows import RowChecks
from spliter.testing._checks_of_schedules import ScheduleChecks
from spliter.testing._checks_of_splits import SplitChecks
from spliter.testing._checks_of_tasks import TaskChecks


class BackendTests(
    PartitionChecks, SplitChecks, TaskChecks, MaterializedChecks, RowChecks, ScheduleChecks
):
    """The conformance suite as pytest tests: subclass it and implement the hooks.

    Required: ``backend`` (the name), ``n_locations`` and ``distribute``. Optional:
    ``distribute_grid`` (collections with blocks along several axes), ``distribute_shared`` (blocks
    at several locations, for ``steal=True``), ``collect`` (wait for futures), ``values_of`` (a
    collection as an array), ``where_it_runs``, and ``incoming_transfers`` with its positive control
    ``move_something``. Tests that need a missing hook are skipped and say so. The class attributes
    ``locations_are_elsewhere``, ``examples``, ``max_pickle_bytes_per_block`` and ``timeout`` may be
    set as well.

    State (a connection to a cluster) comes from fixtures, as in any pytest class.

    Examples
    --------
    A test module for a backend whose collections are lists and whose only location is
    this process:

    >>> from spliter.testing import BackendTests
    >>> class TestMyEngine(BackendTests):
    ...     backend = "local"
    ...     locations_are_elsewhere = False
    ...     n_locations = 1
    ...
    ...     def distribute(self, blocks, placement):
    ...         return list(blocks)

    pytest runs all of its ``test_`` methods. One of them by hand:

    >>> TestMyEngine().test_several_passes()
    """
