"""A metrics server in a few lines, whose limits and habits a test chooses: what it answers is known to the sample."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from tests.scraped.gateway import Answered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.scraped.gateway import Asked

_JSON = {"Content-Type": "application/json"}
_RANGE = re.compile(r"(?P<selector>.*)\[(?P<length>\d+)ms\]")


@dataclass
class Evaluator:
    """Series of one name by the value of their label `gpu`, each with (time in ms, value as text); range vectors alone."""

    series: dict[str, Sequence[tuple[int, str]]]
    left_open: bool = True
    """As from Prometheus 3 on."""

    most_samples: int = 10**9
    """Beyond it a query is refused, in Prometheus' words."""

    warnings: tuple[str, ...] = ()
    asked_ms: list[int] = field(default_factory=list)
    """The length of each range that was asked for, refused ones included."""

    def __call__(self, asked: Asked, _: Callable[[], Answered]) -> Answered:
        form = {name: values[0] for name, values in parse_qs(asked.body.decode()).items()}
        if asked.path == "/api/v1/series":
            return self._success([self._labels(gpu) for gpu in self.series])
        if asked.path != "/api/v1/query":
            return Answered(404, b"404 page not found\n")
        found = _RANGE.fullmatch(form["query"])
        if found is None:
            return self._success({"resultType": "scalar", "result": [0, "1"]})
        return self._range_vector(round(float(form["time"]) * 1000), int(found["length"]))

    def _range_vector(self, end_ms: int, length_ms: int) -> Answered:
        self.asked_ms.append(length_ms)
        since_ms = end_ms - length_ms + (1 if self.left_open else 0)
        matrix = [
            {
                "metric": self._labels(gpu),
                "values": [[at / 1000, value] for at, value in samples if since_ms <= at <= end_ms],
            }
            for gpu, samples in self.series.items()
        ]
        if sum(len(each["values"]) for each in matrix) > self.most_samples:
            error = "query processing would load too many samples into memory in query execution"
            return Answered(422, json.dumps({"status": "error", "error": error}).encode(), _JSON)
        return self._success({"resultType": "matrix", "result": [each for each in matrix if each["values"]]})

    def _labels(self, gpu: str) -> dict[str, str]:
        return {"__name__": "util", "gpu": gpu}

    def _success(self, data: object) -> Answered:
        content = {"status": "success", "data": data, "warnings": list(self.warnings)}
        return Answered(200, json.dumps(content).encode(), _JSON)
