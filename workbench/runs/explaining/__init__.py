"""Diagnosis of a run: the shares of its time, and suggestions to save some of it."""
