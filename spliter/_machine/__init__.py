"""What this machine has: the size of its processor's cache, and a compiler for its processor."""
