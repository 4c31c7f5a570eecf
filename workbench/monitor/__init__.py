"""Watching a cluster: what happens as frozen values, collected on the scheduler, recorded and replayed.

`Feed` (in `feed`) gives batches of events from any Dask client, `Recorder` (in `record`) keeps them.
"""
