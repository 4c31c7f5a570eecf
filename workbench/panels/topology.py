"""What lies between GPUs and network cards, in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import panel as pn

from workbench.errors import MissingError
from workbench.figures.topology import topology_html
from workbench.panels.loading import load_once
from workbench.session import Session

if TYPE_CHECKING:
    from workbench.hardware import Inventory


def topology(inventory: Inventory | None = None) -> pn.pane.HTML:
    """Table of what lies between the GPUs and network cards of this machine, or of `inventory`.

    Raises MissingError where there is no GPU.
    """
    found = Session().hardware() if inventory is None else inventory
    if found.topology is None:
        raise MissingError(f"There is no topology to show. {found.missing.get('topology', '')}".strip())
    load_once()
    return pn.pane.HTML(topology_html(found.topology, simulated=found.simulated))
