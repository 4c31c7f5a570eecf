"""Workloads of genotypes, and what the forms, files and pictures of this package take beside."""
