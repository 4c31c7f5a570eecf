"""Pick hardware, get the Dask cluster that matches it, run a workload, watch it live."""

__version__ = "0.1.0"
