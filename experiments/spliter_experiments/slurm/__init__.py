"""Run the paper's experiments as SLURM jobs: render scripts, submit, monitor, collect."""
