"""Run planned stages on batches, by threads, and collect results, errors and warnings."""
