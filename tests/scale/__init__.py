"""What SplIter does to memory: data larger than it, and nothing left behind."""
