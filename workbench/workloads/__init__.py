"""Workloads: plain functions of plain Dask code, and the registry that makes forms, checks and cells of them."""

from workbench.workloads.registry import Template, template, templates
from workbench.workloads.values import BadParameterError, Check, Needs, Parameters

__all__ = ["BadParameterError", "Check", "Needs", "Parameters", "Template", "template", "templates"]
