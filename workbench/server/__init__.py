"""The Jupyter server extension: REST, the live stream and Dask's own dashboard, under `<base_url>workbench/api/`."""
