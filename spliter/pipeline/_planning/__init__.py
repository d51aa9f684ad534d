"""Group captured calls into stages. Pure functions."""
