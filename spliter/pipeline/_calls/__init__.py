"""Captured calls, the values between them, what is known of these, and how they are cut."""
