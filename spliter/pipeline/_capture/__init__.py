"""Lazy values, and how calls on them are captured."""
