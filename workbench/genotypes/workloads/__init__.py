"""Genotype workloads, and their extensions to forms, files and pictures."""
