"""A module that ends Python when it is imported."""

raise SystemExit("so")
