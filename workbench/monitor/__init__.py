"""Monitoring of a cluster: events as frozen values, collected on the scheduler, recorded and replayed.

`Feed` (in `feed`) gives batches of events from any Dask client, `Recorder` (in `record`) saves them.
"""
