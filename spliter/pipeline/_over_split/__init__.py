"""Pipelines over a Split: the body runs once at the client, each pass is one task per partition.

The client knows kinds, dtypes and widths of the rows only. The calls of a pass are sent to the
partitions, which run them on each block by the planner and the evaluator of one process; results
with rows stay there::

    x - x.mean(axis=0)      pass 1   each partition   mean: sum and count of its rows
                            client                    merged
                            pass 2   each partition   subtract, with the merged mean
"""
