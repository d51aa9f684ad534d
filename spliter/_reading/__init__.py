"""Read the blocks of a partition at their location.

``source`` is what a backend implements, ``local_blocks`` reads it: block by block, ahead of the loop
(``read_ahead``, ``pace``), in ``batches``, by ``columns``, concatenated, or with the records that the
blocks name (``lookup``). ``kinds``, ``rows`` and ``concatenate`` know arrays, frames, sparse
matrices, tables and lists.
"""
