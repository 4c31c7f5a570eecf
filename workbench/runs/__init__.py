"""Runs: a workload on a cluster, computed by a process of its own and kept."""
