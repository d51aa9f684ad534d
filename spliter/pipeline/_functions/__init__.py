"""Functions that a program annotates: their calls are captured and checked."""
