"""The GPUs of this machine, read value by value: a refused call affects no other value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from workbench.hardware.sampling import NoGpusError, is_simulated, text_of, visible
from workbench.hardware.sources import Missing, Sources, UnreadableError, nvml_call, nvml_opened, text
from workbench.hardware.values import Cuda, Gpu, GpuProcess, GpuSlice, NvLinks, Pcie

T = TypeVar("T")

_CPU_WORDS = 128  # of 64 bits: the most CPUs that Linux can be built for
_NODE_WORDS = 16
_BITS = 64  # of a word
_MAX_LINKS = 36  # NVML_NVLINK_MAX_LINKS
_SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH
_NODE_SCOPE = 0  # NVML_AFFINITY_SCOPE_NODE


class Found(NamedTuple):
    """NVML's values: GPUs, driver, and for each pair of GPUs the level of their common ancestor."""

    gpus: tuple[Gpu, ...] = ()
    cuda: Cuda = Cuda()
    ancestors: Mapping[tuple[int, int], int | None] = {}


def read(sources: Sources, missing: Missing) -> Found:
    """Read all values of NVML; without a driver, only the reason."""
    selection = sources.environ.get("CUDA_VISIBLE_DEVICES")
    if selection is None:
        missing["cuda.visible_devices"] = "CUDA_VISIBLE_DEVICES isn't set: every GPU is visible."
    try:
        with nvml_opened(sources) as library:
            cuda = _cuda(library, selection, missing)
            try:
                devices = tuple(_devices(sources, library, missing))
            except UnreadableError as err:
                missing["gpus"] = str(err)
                return Found(cuda=cuda)
            addresses = {device.address: device.index for device in devices if device.address}
            gpus = tuple(device.read(addresses) for device in devices)
            return Found(_visible(library, gpus, selection), cuda, _ancestors(devices, missing))
    except UnreadableError as err:
        missing.update({name: str(err) for name in ("gpus", "cuda.driver_version", "cuda.version")})
        return Found(cuda=Cuda(visible_devices=selection))


def _visible(library: Any, gpus: tuple[Gpu, ...], selection: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs with `visible` set by CUDA_VISIBLE_DEVICES."""
    if selection is None:
        return gpus
    try:
        named = {uuid for uuid, _ in visible(library, selection)}
    except NoGpusError:
        named = set()
    return tuple(_with_visibility(gpu, named) for gpu in gpus)


def _with_visibility(gpu: Gpu, named: set[str]) -> Gpu:
    whole = gpu.uuid in named
    slices = tuple(each.model_copy(update={"visible": whole or each.uuid in named}) for each in gpu.slices)
    return gpu.model_copy(update={"visible": whole or any(each.visible for each in slices), "slices": slices})


def _cuda(library: Any, selection: str | None, missing: Missing) -> Cuda:
    driver = missing.ask("cuda.driver_version", nvml_call, library, "nvmlSystemGetDriverVersion")
    version = missing.ask("cuda.version", nvml_call, library, "nvmlSystemGetCudaDriverVersion")
    return Cuda(
        driver_version=None if driver is None else text_of(driver),
        version=None if version is None else f"{version // 1000}.{version % 1000 // 10}",
        visible_devices=selection,
    )


def _devices(sources: Sources, library: Any, missing: Missing) -> Iterator[_Device]:
    count = nvml_call(library, "nvmlDeviceGetCount")
    if not count:
        raise UnreadableError("The NVIDIA driver lists no GPU.")
    for index in range(count):
        yield _Device(sources, library, index, missing)


def _ancestors(devices: tuple[_Device, ...], missing: Missing) -> dict[tuple[int, int], int | None]:
    return {
        (one.index, other.index): missing.ask(f"topology.{one.index}.{other.index}", one.ancestor, other)
        for one in devices
        for other in devices
        if one is not other
    }


class _Device:
    """One GPU while NVML is open."""

    def __init__(self, sources: Sources, library: Any, index: int, missing: Missing) -> None:
        self.index = index
        self._sources, self._library, self._missing = sources, library, missing
        self.address = self._ask("pci_address", "nvmlDeviceGetPciInfo", convert=_address)

    def read(self, addresses: Mapping[str, int]) -> Gpu:
        """Read every value. `addresses` are the indices of all GPUs by PCI address, to name the peers."""
        memory = self._ask("memory_total", "nvmlDeviceGetMemoryInfo", also=("memory_free", "memory_used"))
        mig = self._ask("mig", "nvmlDeviceGetMigMode", convert=lambda modes: bool(modes[0]))
        return Gpu(
            index=self.index,
            name=self._ask("name", "nvmlDeviceGetName", convert=text_of),
            uuid=self._ask("uuid", "nvmlDeviceGetUUID", convert=text_of),
            memory_total=None if memory is None else memory.total,
            memory_free=None if memory is None else memory.free,
            memory_used=None if memory is None else memory.used,
            utilisation=self._ask("utilisation", "nvmlDeviceGetUtilizationRates", convert=lambda rates: rates.gpu),
            compute_capability=self._ask(
                "compute_capability", "nvmlDeviceGetCudaComputeCapability", convert=lambda pair: f"{pair[0]}.{pair[1]}"
            ),
            mig=mig,
            slices=tuple(self._slices()) if mig else (),
            pcie=self._pcie(),
            pci_address=self.address,
            nvlinks=self._missing.ask(f"{self._place}.nvlinks", self._nvlinks, addresses),
            numa_node=self._missing.ask(f"{self._place}.numa_node", self._numa_node),
            cpu_affinity=self._missing.ask(f"{self._place}.cpu_affinity", self._cpu_affinity),
            power_limit=self._ask("power_limit", "nvmlDeviceGetEnforcedPowerLimit", convert=lambda mw: mw / 1000),
            processes=self._missing.ask(f"{self._place}.processes", self._processes),
            simulated=is_simulated(),
        )

    def ancestor(self, other: _Device) -> int:
        """Return the level of two GPUs' common ancestor."""
        return int(self._call("nvmlDeviceGetTopologyCommonAncestor", other._handle))

    @property
    def _place(self) -> str:
        return f"gpus.{self.index}"

    def _ask(
        self,
        name: str,
        function: str,
        part: Any = None,
        *,
        convert: Callable[[Any], T] = lambda answer: answer,
        also: tuple[str, ...] = (),
    ) -> T | None:
        """Return a value of the GPU, or of one of its slices; if it is refused, store the reason for `also`, too."""

        def read() -> T:
            return convert(nvml_call(self._library, function, self._handle if part is None else part))

        answer = self._missing.ask(f"{self._place}.{name}", read)
        if answer is None:
            self._missing.update({f"{self._place}.{each}": self._missing[f"{self._place}.{name}"] for each in also})
        return answer

    def _call(self, function: str, *arguments: Any) -> Any:
        return nvml_call(self._library, function, self._handle, *arguments)

    @cached_property
    def _handle(self) -> Any:
        return nvml_call(self._library, "nvmlDeviceGetHandleByIndex", self.index)

    def _slices(self) -> Iterator[GpuSlice]:
        for number in range(self._ask("slices", "nvmlDeviceGetMaxMigDeviceCount") or 0):
            try:
                handle = self._call("nvmlDeviceGetMigDeviceHandleByIndex", number)
            except UnreadableError:
                continue  # an unused slot for a slice
            yield self._slice(handle, f"slices.{number}")

    def _slice(self, handle: Any, place: str) -> GpuSlice:
        names = (f"{place}.memory_total", f"{place}.memory_free")
        memory = self._ask(names[0], "nvmlDeviceGetMemoryInfo", handle, also=names[1:])
        return GpuSlice(
            uuid=self._ask(f"{place}.uuid", "nvmlDeviceGetUUID", handle, convert=text_of),
            name=self._ask(f"{place}.name", "nvmlDeviceGetName", handle, convert=text_of),
            memory_total=None if memory is None else memory.total,
            memory_free=None if memory is None else memory.free,
        )

    def _pcie(self) -> Pcie:
        return Pcie(
            generation=self._ask("pcie.generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
            width=self._ask("pcie.width", "nvmlDeviceGetCurrPcieLinkWidth"),
            max_generation=self._ask("pcie.max_generation", "nvmlDeviceGetMaxPcieLinkGeneration"),
            max_width=self._ask("pcie.max_width", "nvmlDeviceGetMaxPcieLinkWidth"),
        )

    def _nvlinks(self, addresses: Mapping[str, int]) -> tuple[NvLinks, ...]:
        ends = Counter(self._end(link, addresses) for link in self._active_links())
        return tuple(
            NvLinks.model_validate({"to": to, "peer": None if peer < 0 else peer, "count": count})
            for (to, peer), count in sorted(ends.items())
        )

    def _active_links(self) -> list[int]:
        active, refusals = [], []
        for link in range(_MAX_LINKS):
            try:
                if self._call("nvmlDeviceGetNvLinkState", link):
                    active.append(link)
            except UnreadableError as err:
                refusals.append(err)
        if len(refusals) == _MAX_LINKS:
            raise refusals[0]
        return active

    def _end(self, link: int, addresses: Mapping[str, int]) -> tuple[str, int]:
        """Return the kind and the index of a link's remote end; -1 if that isn't a GPU of this machine."""
        remote = nvml_call(self._library, "nvmlDeviceGetNvLinkRemotePciInfo", self._handle, link, fallback=None)
        peer = None if remote is None else addresses.get(_address(remote))
        if peer is not None:
            return "gpu", peer
        kind = nvml_call(self._library, "nvmlDeviceGetNvLinkRemoteDeviceType", self._handle, link, fallback=None)
        return ("switch" if kind == _SWITCH else "other"), -1

    def _numa_node(self) -> int:
        # Not nvmlDeviceGetNumaNodeId: that is the node of the GPU's own memory on chips such as Grace Hopper.
        try:
            node = int(text(self._sources.sys / "bus" / "pci" / "devices" / str(self.address) / "numa_node"))
        except (UnreadableError, ValueError):
            node = -1  # as Linux writes it if the firmware names none
        if node >= 0:
            return node
        nodes = cpus_in(self._call("nvmlDeviceGetMemoryAffinity", _NODE_WORDS, _NODE_SCOPE))
        if not nodes:
            raise UnreadableError("Neither Linux nor NVML names a NUMA node near it.")
        return nodes[0]

    def _cpu_affinity(self) -> str:
        cpus = cpus_in(self._call("nvmlDeviceGetCpuAffinity", _CPU_WORDS))
        if not cpus:
            raise UnreadableError("NVML names no CPU near it.")
        return cpu_list(cpus)

    def _processes(self) -> tuple[GpuProcess, ...]:
        found = self._call("nvmlDeviceGetComputeRunningProcesses_v3")
        return tuple(GpuProcess(pid=each.pid, memory=each.usedGpuMemory) for each in found)


def _address(info: Any) -> str:
    """Return the PCI address as Linux writes it: NVML gives eight digits of domain and capital letters."""
    domain, _, rest = text_of(info.busId).partition(":")
    return f"{int(domain, 16):04x}:{rest.lower()}"


def cpus_in(words: Sequence[int]) -> list[int]:
    """Return the CPUs or NUMA nodes in a driver's mask of 64-bit words, in order."""
    return [
        place * _BITS + bit for place, word in enumerate(words) if word for bit in range(_BITS) if int(word) >> bit & 1
    ]


def cpu_list(cpus: Iterable[int]) -> str:
    """Format a list of CPUs as Linux does: [0, 1, 2, 8] is '0-2,8'."""
    runs = []
    for _, group in groupby(enumerate(sorted(cpus)), key=lambda pair: pair[1] - pair[0]):
        run = [cpu for _, cpu in group]
        runs.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join(runs)
