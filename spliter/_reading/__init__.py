"""Read the blocks of a partition at their location.

``source`` is what a backend implements. Its blocks are read one after the other, ahead of the loop
(``read_ahead``, ``pace``), in ``batches``, by ``columns``, concatenated, or with the records that
they name (``lookup``). ``kinds``, ``rows`` and ``concatenate`` know arrays, frames, sparse
matrices, tables and lists.
"""
