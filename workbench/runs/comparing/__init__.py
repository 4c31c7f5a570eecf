"""Comparison of the same work on several kinds of hardware: measured in turn, checked, and put in a table."""
