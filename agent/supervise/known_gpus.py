"""Which GPUs a host has ever shown, where they sit, and the state of those that nobody watches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.nvml.pci_devices import kernel_address

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from agent.rows import DeviceRow


_RELOADS = (30, 180, 1080)
"""Intervals after which a lost GPU is worth a reload; then every so many."""


class KnownGpus:
    """Every GPU that was seen in this run, or that an earlier one saw and that cannot be opened now, is accounted for."""

    def __init__(self, indexes: Mapping[str, int] | None = None, addresses: Mapping[str, str] | None = None) -> None:
        self.indexes = dict(indexes or {})
        """Position of every GPU that was ever seen here, by UUID."""
        self.addresses = dict(addresses or {})
        """PCI address of those that told it, as the kernel writes it, by UUID."""
        self.uuids: tuple[str, ...] = ()
        self.down: dict[str, str] = {}
        """Health of the known GPUs that no worker watches."""
        self._instances: dict[str, list[str]] = {}
        """MIG instances by the UUID of their parent, as they were last seen."""
        self._opened_before = False

    def uuid(self, target: str) -> str | None:
        """The UUID of a target that a worker blocked on (a UUID, or `#index`); None where it is not known."""
        if not target.startswith("#"):
            return target or None
        missing = self.missing  # another may sit at their position by now
        return next(
            (uuid for uuid, index in self.indexes.items() if f"#{index}" == target and uuid not in missing), None
        )

    def whole(self, uuid: str) -> str:
        """The GPU that a MIG instance belongs to; any other GPU is itself."""
        return next((parent for parent, instances in self._instances.items() if uuid in instances), uuid)

    def target(self, announced: str) -> str:
        """The same GPU under one name, whether its UUID or its position was announced."""
        return self.uuid(announced) or announced

    def named_with_positions(self, targets: frozenset[str], count: int) -> frozenset[str]:
        """The same GPUs by every name that a worker must leave alone, which knows no UUID before it has asked for it.

        A position names a GPU only together with how many there were; `count` is 0 where nobody knows that yet.
        """
        positions = {self.indexes[uuid] for uuid in targets if uuid in self.indexes}
        positions |= {int(target[1:]) for target in targets if target.startswith("#")}
        suffix = f"/{count}" if count else ""
        named = {target for target in targets if not target.startswith("#")}
        return frozenset(named | {f"#{position}{suffix}" for position in positions})

    def set(self, uuid: str, health: str | None) -> None:
        """Notes a GPU's state; None where it can be watched again."""
        self.uuids = tuple(sorted({*self.uuids, uuid}))
        if health is None:
            self.down.pop(uuid, None)
        else:
            self.down[uuid] = health

    def set_all(self, health: str) -> None:
        """Notes one state for all, except for those that are wedged: that is worse."""
        self.down = {uuid: "wedged" if self.down.get(uuid) == "wedged" else health for uuid in self.uuids}

    def assume(self, health: str) -> None:
        """Takes every GPU that an earlier run saw for one in that state."""
        self.uuids = tuple(sorted(self.indexes))
        self.set_all(health)

    def all_are(self, health: str) -> bool:
        """Whether there are GPUs, and all in that state."""
        return bool(self.uuids) and all(self.down.get(uuid) == health for uuid in self.uuids)

    def rows_down(self) -> Iterator[tuple[str, str]]:
        """UUID and health of every GPU that is down, and of the MIG instances that were last seen on it."""
        for uuid, health in sorted(self.down.items()):
            yield uuid, health
            for instance in self._instances.get(uuid, []):
                yield instance, health

    def place(self, devices: Sequence[DeviceRow]) -> None:
        """Takes up the positions of inventory entries."""
        self.indexes |= _positions(devices)

    def locate(self, devices: Sequence[DeviceRow]) -> None:
        """Takes up the PCI addresses of inventory entries."""
        whole = [each for each in devices if each.get("parent_gpu") is None]
        self.addresses |= {
            each["gpu"]: kernel_address(address) for each in whole if (address := each.get("pci_bus_id"))
        }

    @property
    def missing(self) -> list[str]:
        """UUIDs of those that the driver no longer lists, though they should be there."""
        return [uuid for uuid, health in self.down.items() if health == "missing"]

    def gone(self, watched: Collection[str], unopened: Collection[int]) -> list[str]:
        """UUIDs that the driver of a new worker does not list, in the order of their positions."""
        gone = [
            uuid
            for uuid, index in self.indexes.items()
            if uuid not in watched and index not in unopened and self.down.get(uuid) != "wedged"
        ]
        return sorted(gone, key=lambda uuid: self.indexes[uuid])

    def opened(
        self, devices: Sequence[DeviceRow], watched: Sequence[str], gone: Sequence[str], kept: Collection[str]
    ) -> list[tuple[str, str, str]]:
        """Takes up the inventory of a new worker; returns kind, detail and UUID of what has come or gone.

        Of those that are gone, `kept` are expected back and count as missing; the others are removed.
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
        """Every GPU is accounted for: watched, wedged, or lost because it cannot be opened.

        One that an earlier run saw counts as lost if the GPU at its position cannot be opened; if there is none, it has
        been taken out.
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
    """By UUID; MIG instances have no position of their own."""
    whole = [each for each in devices if each.get("parent_gpu") is None]
    return {each["gpu"]: index for each in whole if (index := each["gpu_index"]) is not None}


class LostGpus:
    """A GPU that was put back is found by a newly loaded driver only: tried after some time, and ever more rarely."""

    def __init__(self) -> None:
        self._lost_for: dict[str, int] = {}

    def reload_is_due(self, lost: Iterable[str]) -> bool:
        """Counts an interval with these GPUs lost; whether to load the driver afresh."""
        self._lost_for = {uuid: self._lost_for.get(uuid, 0) + 1 for uuid in set(lost)}
        return any(count in _RELOADS or count % _RELOADS[-1] == 0 for count in self._lost_for.values())
