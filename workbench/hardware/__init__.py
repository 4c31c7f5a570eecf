"""What this machine has, and which profiles it can serve. Reads when called, never when imported."""

from workbench.hardware.reading import inventory as inventory
from workbench.hardware.sources import Sources as Sources
from workbench.hardware.ucx import ucx_transports as ucx_transports
from workbench.hardware.values import (
    Cpu as Cpu,
)
from workbench.hardware.values import (
    Gpu as Gpu,
)
from workbench.hardware.values import (
    GpuSlice as GpuSlice,
)
from workbench.hardware.values import (
    Inventory as Inventory,
)
from workbench.hardware.values import (
    Memory as Memory,
)
from workbench.hardware.values import (
    NetworkCard as NetworkCard,
)
from workbench.hardware.values import (
    Topology as Topology,
)
from workbench.hardware.values import (
    Ucx as Ucx,
)
from workbench.hardware.values import (
    UcxTransport as UcxTransport,
)
from workbench.hardware.values import (
    UcxTransports as UcxTransports,
)
