"""Jupyter server extension: live stream, pages, files and Dask's own dashboard, below `<base_url>workbench/api/`."""
