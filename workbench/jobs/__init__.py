"""Processes with a record on disk: owners of clusters, runners of runs and conductors of comparisons.

Each has a folder of its own, in which it and those who ask for it leave signs for each other, and from which anybody
tells whether it lives: by its process where that is here, by its signs of life where that is on another machine.
"""
