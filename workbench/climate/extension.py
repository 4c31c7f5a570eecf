"""Extension of this package."""

from __future__ import annotations

from workbench.climate.eofs import EOFS
from workbench.workloads.extensions import Extension

EXTENSION = Extension("Climate", workloads=(EOFS,))
