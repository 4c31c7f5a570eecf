"""Clusters: a frozen spec, a detached host process that owns the cluster, and a record on disk that outlives both."""
