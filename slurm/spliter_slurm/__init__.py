"""Run the paper's experiments as SLURM jobs: group runs into jobs and render their scripts."""
