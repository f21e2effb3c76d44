"""GPUs that a host should have and that nobody can watch: dead at the start, or gone since an earlier run.

What is expected comes, in this order, from `agent.expected_gpus`, from the inventory that the spool remembers and from the PCI bus.
A GPU whose UUID an earlier run has learnt keeps it. One that never told its UUID goes by host and PCI address
(`gn01/pci-0000:17:00.0`), or by host and position where no address is known (`gn01/gpu-7`), until it answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.nvml.installation import sees_all_gpus
from agent.nvml.pci_devices import PciGpu, driver_address, kernel_address, list_gpus
from fallow.clock import DAY_MS, format_ms
from fallow.gpu_names import at_address, at_position, is_stand_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from agent.rows import DeviceRow, EventRow
    from agent.supervise.known_gpus import KnownGpus

REMEMBERED_MS = 7 * DAY_MS
"""How long a GPU that neither driver nor bus shows any more is expected back: then it counts as taken out."""

MISSING = "missing"


@dataclass(frozen=True)
class MissingGpu:
    """One whose UUID nobody has learnt."""

    name: str
    reason: str
    source: str
    """Who says that it should be there: nvml, pci or setting."""
    address: str | None = None
    """As the kernel writes it."""
    index: int | None = None
    health: str = MISSING


class MissingGpus:
    """Compares what should be there with what answers."""

    def __init__(
        self, host: str, *, expected: int = 0, sys: str = "/sys", since_ms: Mapping[str, int] | None = None
    ) -> None:
        """`expected` is the setting, 0 for none; `since_ms` says since when GPUs were missing for an earlier run, by name."""
        self.host = host
        self.expected = expected
        self.since_ms = dict(since_ms or {})
        """Since when each GPU is missing, by UUID or name."""
        self.found: tuple[MissingGpu, ...] = ()
        """Those without a UUID."""
        self.sys = sys
        """Where the host's /sys lies."""
        self._whole_host = sees_all_gpus()
        self._bus: tuple[PciGpu, ...] = ()
        self._passed_on: frozenset[str] = frozenset()
        self._products: dict[tuple[str, ...], DeviceRow] = {}
        self._described: tuple[MissingGpu, ...] = ()
        self.look_at_bus()

    def look_at_bus(self) -> None:
        """Reads the PCI bus anew; in a container only where all of the host's GPUs were handed in."""
        shown = list_gpus(Path(self.sys)) if self._whole_host else ()
        self._bus = tuple(gpu for gpu in shown if gpu.is_hosts_own)
        self._passed_on = frozenset(gpu.address for gpu in shown if not gpu.is_hosts_own)

    def still_expected(
        self, gone: Sequence[str], known: KnownGpus, watched: Collection[str], others: int, now_ms: int
    ) -> frozenset[str]:
        """Of GPUs that the driver no longer lists, those that should be there; the rest were taken out.

        `others` is how many GPUs beside them are accounted for.
        """
        if self.expected:
            return frozenset(gone[: max(0, self.expected - others)])
        if not self._whole_host:
            return frozenset()
        shown = {gpu.address for gpu in self._bus}
        answering = {known.addresses[uuid] for uuid in watched if uuid in known.addresses}
        kept = []
        for uuid in gone:
            address = known.addresses.get(uuid)
            if address in answering or address in self._passed_on:
                continue  # another card sits in its place, or a virtual machine has it
            if address in shown or now_ms - self.since_ms.get(uuid, now_ms) < REMEMBERED_MS:
                kept.append(uuid)
        return frozenset(kept)

    def look(self, known: KnownGpus, unopened: Sequence[int], blocked: Collection[int]) -> None:
        """Finds the GPUs that are expected beside the known ones.

        `unopened` and `blocked` are positions of GPUs without a UUID that the driver lists: the first cannot be opened, the
        second do not return from a call.
        """
        accounted = [*known.uuids]
        addresses = {known.addresses[uuid] for uuid in accounted if uuid in known.addresses}
        free = [gpu.address for gpu in self._bus if gpu.address not in addresses]
        homeless = sum(uuid not in known.addresses for uuid in accounted)  # they sit at some of these addresses
        found = self._paired(free[homeless:], sorted({*unopened, *blocked}), blocked)
        if self.expected:
            wanted = max(0, self.expected - len(accounted))
            found = found[:wanted]
            taken = {each.index for each in found} | {known.indexes.get(uuid) for uuid in accounted}
            spare = [index for index in reversed(range(self.expected)) if index not in taken]
            reason = f"agent.expected_gpus is {self.expected}, and {len(accounted)} answer or are known"
            found += [
                MissingGpu(at_position(self.host, index), reason, "setting", index=index)
                for index in spare[: wanted - len(found)]
            ]
        self.found = tuple(found)

    def _paired(self, free: Sequence[str], positions: Sequence[int], blocked: Collection[int]) -> list[MissingGpu]:
        """Positions and addresses of the same GPUs, as far as it is plain which is which: both are in the bus's order."""
        listed = [
            MissingGpu(
                at_position(self.host, index),
                "the driver lists it and cannot open it",
                "nvml",
                index=index,
                health="wedged" if index in blocked else MISSING,
            )
            for index in positions
        ]
        on_bus = [
            MissingGpu(
                at_address(self.host, address), "the PCI bus shows it, and the driver does not list it", "pci", address
            )
            for address in free
        ]
        if len(listed) > len(on_bus):
            return listed
        if len(listed) < len(on_bus):
            return on_bus
        return [
            MissingGpu(place.name, each.reason, each.source, place.address, each.index, each.health)
            for place, each in zip(on_bus, listed, strict=True)
        ]

    def learn(self, devices: Iterable[DeviceRow]) -> None:
        """Takes note which model has which PCI ids, so that a card of the same ids need not tell its model."""
        products = {gpu.address: gpu.product for gpu in self._bus}
        for row in devices:
            address = row.get("pci_bus_id")
            product = products.get(kernel_address(address)) if address else None
            if product and any(product) and row.get("parent_gpu") is None:
                self._products[product] = row

    def devices(self, *, all_of_them: bool) -> list[DeviceRow]:
        """Inventory of those without a UUID, without times: of all, or of those that are new or have changed."""
        before, self._described = self._described, self.found
        return [self._device(each) for each in self.found if all_of_them or each not in before]

    def _device(self, gpu: MissingGpu) -> DeviceRow:
        products = {each.address: each.product for each in self._bus}
        sibling = self._products.get(products.get(gpu.address or "", ()), {})
        return {
            "gpu": gpu.name,
            "gpu_index": gpu.index,
            "model": sibling.get("model"),
            "mem_total_bytes": sibling.get("mem_total_bytes"),
            "power_limit_w": sibling.get("power_limit_w"),
            "pci_bus_id": None if gpu.address is None else driver_address(gpu.address),
            "source": gpu.source,
        }

    def changes(self, known: KnownGpus, now_ms: int) -> list[EventRow]:
        """Events of those that are missing since the last call, and of those that are back or no longer expected."""
        reasons = dict.fromkeys(known.missing, "it was here before, and the driver does not list it")
        reasons |= {each.name: each.reason for each in self.found if each.health == MISSING}
        events: list[EventRow] = [
            {"kind": "gpu_missing", "gpu": name, "detail": f"it does not answer: {reason}"}
            for name, reason in reasons.items()
            if name not in self.since_ms
        ]
        back = {
            at_address(self.host, address): uuid for uuid, address in known.addresses.items() if uuid not in known.down
        }
        for name in [name for name in self.since_ms if name not in reasons]:
            since = format_ms(self.since_ms.pop(name))
            if uuid := name if name in known.uuids else back.get(name):
                called = "" if uuid == name else f" as {name}"
                events.append(
                    {"kind": "gpu_ok", "gpu": uuid, "detail": f"it answers; it was missing{called} since {since}"}
                )
            elif is_stand_in(name) and name not in {each.name for each in self.found}:
                detail = f"it was missing since {since}: a GPU answers in its place, or one less is expected"
                events.append({"kind": "gpu_ok", "gpu": name, "detail": detail})
        self.since_ms |= {name: now_ms for name in reasons if name not in self.since_ms}
        return events
