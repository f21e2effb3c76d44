"""The GPUs that a host has ever shown or should have, and the state of those that no worker watches: broken or gone.

The expected GPUs come, in this order, from `agent.expected_gpus`, from the inventory in the spool and from the PCI bus.
A GPU keeps the UUID that an earlier run has read. A GPU that never reported its UUID is named by host and PCI address
(`gn01/pci-0000:17:00.0`), or by host and position without a known address (`gn01/gpu-7`), until it answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.kernel_files import kernel_address
from agent.nvml.installation import PciGpu, driver_address, list_gpus, sees_all_gpus
from fallow.clock import DAY_MS, format_ms
from fallow.gpu_names import at_address, at_position, is_stand_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from agent.nvml.gpu import OpenAnswer
    from agent.rows import DeviceRow, EventRow, GpuRow

_RELOADS = (30, 180, 1080)
"""Intervals after which a lost GPU justifies a reload of the driver, and between later reloads."""


class KnownGpus:
    """All GPUs that this run has seen, and those that an earlier run saw and that cannot be opened now."""

    def __init__(self, indexes: Mapping[str, int] | None = None, addresses: Mapping[str, str] | None = None) -> None:
        self.indexes = dict(indexes or {})
        """Position of every GPU that was ever seen on this host, by UUID."""
        self.addresses = dict(addresses or {})
        """PCI address in the kernel's form, by UUID, of the GPUs that reported it."""
        self.uuids: tuple[str, ...] = ()
        self.down: dict[str, str] = {}
        """Health of the known GPUs that no worker watches, by UUID."""
        self._instances: dict[str, list[str]] = {}
        """MIG instances by their parent's UUID, from the last inventory."""
        self._opened_before = False

    def uuid(self, target: str) -> str | None:
        """Return the UUID of a worker's target (a UUID, or `#index`); None where it is unknown."""
        if not target.startswith("#"):
            return target or None
        missing = self.missing  # another GPU may have their position by now
        return next(
            (uuid for uuid, index in self.indexes.items() if f"#{index}" == target and uuid not in missing), None
        )

    def whole(self, uuid: str) -> str:
        """Return the parent GPU of a MIG instance; of another GPU, the GPU itself."""
        return next((parent for parent, instances in self._instances.items() if uuid in instances), uuid)

    def target(self, announced: str) -> str:
        """Return the same name for a GPU whether its UUID or its position was announced."""
        return self.uuid(announced) or announced

    def named_with_positions(self, targets: frozenset[str], count: int) -> frozenset[str]:
        """Return every name of these GPUs, for a worker that must skip them and knows no UUID at first.

        A position names a GPU only together with the number of GPUs; `count` is 0 where that is unknown.
        """
        positions = {self.indexes[uuid] for uuid in targets if uuid in self.indexes}
        positions |= {int(target[1:]) for target in targets if target.startswith("#")}
        suffix = f"/{count}" if count else ""
        named = {target for target in targets if not target.startswith("#")}
        return frozenset(named | {f"#{position}{suffix}" for position in positions})

    def set(self, uuid: str, health: str) -> None:
        self.uuids = tuple(sorted({*self.uuids, uuid}))
        self.down[uuid] = health

    def set_all(self, health: str) -> None:
        """Set the state of all GPUs, except for wedged GPUs, whose state is worse."""
        self.down = {uuid: "wedged" if self.down.get(uuid) == "wedged" else health for uuid in self.uuids}

    def assume(self, health: str) -> None:
        """Set the state of every GPU that an earlier run saw."""
        self.uuids = tuple(sorted(self.indexes))
        self.set_all(health)

    def all_wedged(self) -> bool:
        """Return whether there are GPUs and all are wedged."""
        return bool(self.uuids) and all(self.down.get(uuid) == "wedged" for uuid in self.uuids)

    def rows_down(self) -> Iterator[tuple[str, str]]:
        """Yield UUID and health of every GPU that is down, and of its last known MIG instances."""
        for uuid, health in sorted(self.down.items()):
            yield uuid, health
            for instance in self._instances.get(uuid, []):
                yield instance, health

    def place(self, devices: Sequence[DeviceRow]) -> None:
        self.indexes |= _positions(devices)

    def locate(self, devices: Sequence[DeviceRow]) -> None:
        whole = [each for each in devices if each.get("parent_gpu") is None]
        self.addresses |= {
            each["gpu"]: kernel_address(address) for each in whole if (address := each.get("pci_bus_id"))
        }

    @property
    def missing(self) -> list[str]:
        """Return the UUIDs of expected GPUs that the driver no longer lists."""
        return [uuid for uuid, health in self.down.items() if health == "missing"]

    def gone(self, watched: Collection[str], unopened: Collection[int]) -> list[str]:
        """Return the known UUIDs that a new worker's driver does not list, in the order of their positions."""
        gone = [
            uuid
            for uuid, index in self.indexes.items()
            if uuid not in watched and index not in unopened and self.down.get(uuid) != "wedged"
        ]
        return sorted(gone, key=lambda uuid: self.indexes[uuid])

    def opened(
        self, devices: Sequence[DeviceRow], watched: Sequence[str], gone: Sequence[str], kept: Collection[str]
    ) -> list[tuple[str, str, str]]:
        """Store a new worker's inventory. Return kind, detail and UUID of the GPUs that were added or removed.

        GPUs in `kept` are expected back and count as missing; other absent GPUs count as removed.
        """
        now = _positions(devices)
        added = [uuid for uuid in watched if uuid not in self.indexes]
        removed = [uuid for uuid in gone if uuid not in kept]
        changes = []
        if self.indexes or self._opened_before:
            changes += [("gpu_added", f"GPU {now.get(uuid, '?')} was not there before", uuid) for uuid in added]
            changes += [("gpu_removed", f"GPU {self.indexes[uuid]} has been removed", uuid) for uuid in removed]
        for uuid in removed:
            del self.indexes[uuid]
            self.addresses.pop(uuid, None)
            self.down.pop(uuid, None)
        self.uuids = tuple(sorted({*self.uuids, *kept} - {*removed}))
        self.down |= dict.fromkeys(kept, "missing")
        self._opened_before = True
        self.indexes |= now
        return changes

    def watch(self, watched: Sequence[str], missing: Sequence[int], instances: Mapping[str, list[str]]) -> None:
        """Set the state of every GPU: watched, wedged, or lost because it cannot be opened.

        A GPU of an earlier run is lost if the GPU at its position cannot be opened. If there is no GPU at its position,
        it was removed.
        """
        lost = {uuid for uuid, index in self.indexes.items() if index in missing and uuid not in watched}
        self.uuids = tuple(sorted({*self.uuids, *watched, *lost}))
        lasting = {uuid: health for uuid, health in self.down.items() if health in ("wedged", "missing")}
        self.down = {uuid: lasting.get(uuid, "lost") for uuid in self.uuids if uuid not in watched}
        for uuid in watched:
            if uuid in instances:
                self._instances[uuid] = instances[uuid]
            else:
                self._instances.pop(uuid, None)


def _positions(devices: Sequence[DeviceRow]) -> dict[str, int]:
    """Return the positions by UUID, without MIG instances, which have none."""
    whole = [each for each in devices if each.get("parent_gpu") is None]
    return {each["gpu"]: index for each in whole if (index := each["gpu_index"]) is not None}


REMEMBERED_MS = 7 * DAY_MS
"""How long a GPU is expected back that neither driver nor bus shows. Then it counts as removed."""

MISSING = "missing"


@dataclass(frozen=True)
class MissingGpu:
    """An expected GPU without a known UUID."""

    name: str
    reason: str
    source: str
    """The source that expects the GPU: nvml, pci or setting."""
    address: str | None = None
    """PCI address in the kernel's form."""
    index: int | None = None
    health: str = MISSING


class MissingGpus:
    """Compares the expected GPUs with those that answer."""

    def __init__(
        self, host: str, *, expected: int = 0, sys: str = "/sys", since_ms: Mapping[str, int] | None = None
    ) -> None:
        """`expected`: the setting, 0 for none; `since_ms`: by name, since when an earlier run's GPUs were missing."""
        self.host = host
        self.expected = expected
        self.since_ms = dict(since_ms or {})
        """Since when a GPU is missing, by UUID or name."""
        self.found: tuple[MissingGpu, ...] = ()
        """The missing GPUs without a UUID."""
        self.sys = sys
        """The path of the host's /sys."""
        self._whole_host = sees_all_gpus()
        self._bus: tuple[PciGpu, ...] = ()
        self._passed_on: frozenset[str] = frozenset()
        self._products: dict[tuple[str, ...], DeviceRow] = {}
        self._described: tuple[MissingGpu, ...] = ()
        self.look_at_bus()

    def look_at_bus(self) -> None:
        """Read the PCI bus again; in a container only where it has all of the host's GPUs."""
        shown = list_gpus(Path(self.sys)) if self._whole_host else ()
        self._bus = tuple(gpu for gpu in shown if gpu.is_hosts_own)
        self._passed_on = frozenset(gpu.address for gpu in shown if not gpu.is_hosts_own)

    def still_expected(
        self, gone: Sequence[str], known: KnownGpus, watched: Collection[str], others: int, now_ms: int
    ) -> frozenset[str]:
        """Return the expected GPUs among those that the driver no longer lists; the other GPUs were removed.

        `others` is the number of known GPUs besides them.
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
                continue  # another card is in its slot, or a virtual machine has it
            if address in shown or now_ms - self.since_ms.get(uuid, now_ms) < REMEMBERED_MS:
                kept.append(uuid)
        return frozenset(kept)

    def look(self, known: KnownGpus, unopened: Sequence[int], blocked: Collection[int]) -> None:
        """Find the expected GPUs besides the known GPUs.

        `unopened` and `blocked` are positions of GPUs without a UUID that the driver lists: the former cannot be
        opened, a call to the latter does not return.
        """
        accounted = known.uuids
        addresses = {known.addresses[uuid] for uuid in accounted if uuid in known.addresses}
        free = [gpu.address for gpu in self._bus if gpu.address not in addresses]
        homeless = sum(uuid not in known.addresses for uuid in accounted)  # they have some of these addresses
        found = self._missing_gpus(free[homeless:], sorted({*unopened, *blocked}), blocked)
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

    def _missing_gpus(
        self, free: Sequence[str], positions: Sequence[int], blocked: Collection[int]
    ) -> list[MissingGpu]:
        """Return GPUs that the driver cannot open or list, with position and address where the two counts agree."""
        listed = [
            MissingGpu(
                at_position(self.host, index),
                "the driver lists it but cannot open it",
                "nvml",
                index=index,
                health="wedged" if index in blocked else MISSING,
            )
            for index in positions
        ]
        on_bus = [
            MissingGpu(
                at_address(self.host, address), "the PCI bus shows it, but the driver does not list it", "pci", address
            )
            for address in free
        ]
        if len(listed) > len(on_bus):
            return listed
        if len(listed) < len(on_bus):
            return on_bus
        return [
            replace(each, name=place.name, address=place.address) for place, each in zip(on_bus, listed, strict=True)
        ]

    def learn(self, devices: Iterable[DeviceRow]) -> None:
        """Store the model of each PCI id, for cards with the same id that do not report their model."""
        products = {gpu.address: gpu.product for gpu in self._bus}
        for row in devices:
            address = row.get("pci_bus_id")
            product = products.get(kernel_address(address)) if address else None
            if product and any(product) and row.get("parent_gpu") is None:
                self._products[product] = row

    def devices(self, *, all_of_them: bool) -> list[DeviceRow]:
        """Return the inventory, without times, of GPUs without a UUID: of all, or of the new and changed ones."""
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
        """Return the events since the last call: GPUs that are missing, are back or are no longer expected."""
        reasons = dict.fromkeys(known.missing, "it was here before, but the driver does not list it")
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
                    {"kind": "gpu_ok", "gpu": uuid, "detail": f"it answers again; it was missing{called} since {since}"}
                )
            elif is_stand_in(name) and name not in {each.name for each in self.found}:
                detail = f"it was missing since {since}: a GPU answers at its position, or fewer GPUs are expected"
                events.append({"kind": "gpu_ok", "gpu": name, "detail": detail})
        self.since_ms |= {name: now_ms for name in reasons if name not in self.since_ms}
        return events


class GpuAccount:
    """Updates the known GPUs and the missing GPUs from the workers' answers."""

    def __init__(self, known: KnownGpus, missing: MissingGpus) -> None:
        self.known = known
        self.missing = missing
        self._away_for: dict[str, int] = {}

    def begin(self, health: str) -> list[DeviceRow]:
        """Begin without a worker, with the earlier run's and expected GPUs. Return inventory of those without UUID."""
        self.known.assume(health)
        self.missing.look(self.known, (), ())
        return self.missing.devices(all_of_them=False)

    def opened(self, answer: OpenAnswer, now_ms: int) -> list[EventRow]:
        """Store a new worker's list. Return the added and removed GPUs as events."""
        watched, unopened = answer["gpus"], answer["missing"]
        self.known.locate(answer["device"])
        self.missing.look_at_bus()
        gone = self.known.gone(watched, unopened)
        others = len({*self.known.indexes, *watched} - {*gone}) + len(self._positions_without_uuid(unopened))
        kept = self.missing.still_expected(gone, self.known, watched, others, now_ms)
        changes = self.known.opened(answer["device"], watched, gone, kept)
        return [{"kind": kind, "detail": detail, "gpu": uuid} for kind, detail, uuid in changes]

    def take(self, answer: OpenAnswer, blocked: Collection[str], now_ms: int) -> tuple[list[DeviceRow], list[EventRow]]:
        """Store an answer. Return new inventory of GPUs without a UUID, and events of GPUs that are missing or back.

        `blocked` are the GPUs that a worker must skip, by UUID or position (`#3`).
        """
        self.known.place(answer["device"])
        self.known.locate(answer["device"])
        self.known.watch(answer["gpus"], answer["missing"], answer["instances"])
        self.missing.learn(answer["device"])
        positions = [int(target[1:]) for target in blocked if target.startswith("#")]
        self.missing.look(
            self.known, self._positions_without_uuid(answer["missing"]), self._positions_without_uuid(positions)
        )
        return self.missing.devices(all_of_them=False), self.missing.changes(self.known, now_ms)

    def rows(self, start_ms: int, interval_ms: int, for_all: str | None) -> list[GpuRow]:
        """Return one row per GPU or MIG instance that is down or missing.

        `for_all` is the health of GPUs without a UUID where the whole driver has a fault.
        """
        down = [*self.known.rows_down(), *((each.name, for_all or each.health) for each in self.missing.found)]
        return [
            {
                "gpu": name,
                "time": start_ms,
                "interval_ms": interval_ms,
                "offset_ms": 0,
                "health": health,
                "util_source": "none",
            }
            for name, health in down
        ]

    def reload_is_due(self, lost: Sequence[str]) -> bool:
        """Count an interval. Return whether to load the driver again.

        Only a newly loaded driver finds a GPU that was put back, so reloads are tried, at increasing intervals.
        """
        away = {*lost, *self.known.missing, *(each.name for each in self.missing.found if each.health == MISSING)}
        self._away_for = {name: self._away_for.get(name, 0) + 1 for name in away}
        return any(count in _RELOADS or count % _RELOADS[-1] == 0 for count in self._away_for.values())

    def has_all_rows(self, rows: Sequence[GpuRow]) -> bool:
        """Return whether every known GPU has a row. The state of a GPU that no worker queried is unknown."""
        return {row["gpu"] for row in rows}.issuperset(self.known.uuids)

    def _positions_without_uuid(self, positions: Sequence[int]) -> list[int]:
        named = set(self.known.indexes.values())
        return [position for position in positions if position not in named]
