"""Processes with a record on disk: owners of clusters, runners of runs and conductors of comparisons.

Each has its own folder, through which it communicates with other processes. The folder also shows whether it is alive:
by its process on this machine, or by its signs of life from another one.
"""
