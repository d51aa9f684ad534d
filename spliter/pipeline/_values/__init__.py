"""Lazy values: their operators and functions are captured, and uses evaluate them."""
