"""Runs: a workload on a cluster, computed by its own process and recorded."""
