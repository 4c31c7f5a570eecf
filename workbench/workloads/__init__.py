"""Workloads: plain functions of plain Dask code, and the templates that turn them into forms, checks and cells.

Names are imported on first use: tasks find their functions in these modules on workers with Dask and
NumPy, but without the packages for forms.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.workloads.builtin import templates
    from workbench.workloads.lookup import template
    from workbench.workloads.registry import Template
    from workbench.workloads.values import BadParameterError, Check, Needs, Parameters

__all__ = ["BadParameterError", "Check", "Needs", "Parameters", "Template", "template", "templates"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = {"Template": "registry", "template": "lookup", "templates": "lookup"}.get(name, "values")
    return getattr(import_module(f"{__name__}.{home}"), name)
