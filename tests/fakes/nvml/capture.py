"""A recording of a real driver, as record.py wrote it: what each call answered, and when."""

from __future__ import annotations

import json
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

_SAME_CLOCK_US = 12_000_000


@dataclass(frozen=True)
class Answer:
    """What a call answered at a moment: a result, or NVML's return code."""

    t_s: float
    result: Any = None
    error: int | None = None


class Capture:
    """A recording, by call and GPU."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._answers: dict[tuple[str, int | None], list[Answer]] = {}
        for line in lines:
            entry = json.loads(line)
            answer = Answer(entry["t_s"], entry.get("result"), entry.get("error"))
            self._answers.setdefault((entry["call"], entry["gpu"]), []).append(answer)
        for answers in self._answers.values():
            answers.sort(key=lambda answer: answer.t_s)
        self.about: Mapping[str, Any] = self.result("capture", None)

    @classmethod
    def read(cls, path: Path) -> Capture:
        """Reads a file that record.py wrote."""
        with path.open(encoding="utf-8") as lines:
            return cls(lines)

    @property
    def seconds(self) -> float:
        """How long was recorded."""
        return max(answers[-1].t_s for answers in self._answers.values())

    def answers(self, call: str, gpu: int | None) -> list[Answer]:
        """What a call answered, in order of time; nothing where it was never made."""
        return self._answers.get((call, gpu), [])

    def values(self, call: str, gpu: int | None) -> list[tuple[float, Any]]:
        """The moments and results of a call, without its errors."""
        return [(answer.t_s, answer.result) for answer in self.answers(call, gpu) if answer.error is None]

    def result(self, call: str, gpu: int | None, otherwise: Any = None) -> Any:
        """The first result of a call."""
        return next((result for _, result in self.values(call, gpu)), otherwise)

    def ring(self, gpu: int, kind: int) -> list[tuple[float, int]]:
        """The entries of a sample ring: seconds since the recording's start, in the wall clock, and values."""
        offset_us = self.ring_offset_us()
        drained = [pair for _, pairs in self.values(f"nvmlDeviceGetSamples({kind})", gpu) for pair in pairs]
        unique = {stamp - offset_us: value for stamp, value in drained}
        return [
            (stamp / 1e6, value) for stamp, value in sorted(unique.items()) if -15e6 < stamp < (self.seconds + 1) * 1e6
        ]

    def ring_offset_us(self) -> int:
        """How far the ring's clock is from the wall clock; 0 where they are one."""
        ahead = [
            max(stamp for stamp, _ in pairs) - round(t_s * 1e6)
            for (call, gpu), _ in self._answers.items()
            if call.startswith("nvmlDeviceGetSamples")
            for t_s, pairs in self.values(call, gpu)
        ]
        distance_us = round(median(ahead)) if ahead else 0
        return distance_us if abs(distance_us) > _SAME_CLOCK_US else 0

    def calls(self, gpu: int) -> Iterator[tuple[str, list[Answer]]]:
        """Every call that was made on a GPU, with its answers."""
        return ((call, answers) for (call, index), answers in self._answers.items() if index == gpu)
