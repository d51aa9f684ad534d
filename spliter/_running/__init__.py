"""Run functions on partitions, and combine or return what they made.

``per_block`` and ``template`` apply a function to each block and check the results, ``team`` runs
the partitions of a location in one task, ``results`` reduces and gathers futures of any engine, and
``progress`` waits for them as they finish.
"""
