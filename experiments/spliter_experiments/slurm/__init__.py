"""Runs of the evaluation as SLURM jobs: render scripts, submit, watch, collect, cancel."""
