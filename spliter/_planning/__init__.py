"""Decide before anything runs: which blocks form a partition, how rows are numbered, when to copy.

Pure functions of integers, sizes and measured seconds, which know no engine and read no block: the
same input gives the same plan. ``grid`` numbers blocks and rows, ``planner`` and ``schedule`` cut
blocks into partitions, ``auto`` does so by what a pass took, ``reuse`` decides whether to copy
them, ``take`` finds the partition of each row.
"""
