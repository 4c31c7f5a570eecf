"""Genotypes in two bits each, lazily from files; knows NumPy, CuPy, Dask, Zarr and linalg, and nothing above them."""
