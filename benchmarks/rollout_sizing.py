"""The needs of a fleet, from the measured figures: `python -m benchmarks.rollout_sizing HOSTS GPUS` prints them.

Without arguments it writes the table of docs/deploying.md again.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import between_marks
from fallow.config import SETTINGS

PAGE = Path(__file__).parent.parent / "docs" / "deploying.md"
RESULTS = Path(__file__).parent / "results.json"
HOSTS, GPUS = 500, 8
"""The fleet of the page; the measured host has eight GPUs."""

PRICES = "Amazon S3 Standard in US East (N. Virginia), public list prices of 2025"
PUT_LIST_USD, GET_USD, GB_MONTH_USD = 0.005 / 1000, 0.0004 / 1000, 0.023
"""Per request, and per GB and month (aws.amazon.com/s3/pricing). Deletion and traffic into the store are free."""

_ROWS_A_DAY = 86_400 // 10
_MONTH_DAYS = 30
_THINNED_FROM = 0.75
"""Share of agent.spool_max above which rows become longer (agent/spool/backlog.py)."""

MARK = "rollout"


@dataclass(frozen=True)
class Sizing:
    """A fleet's needs; pairs are [low, high]."""

    hosts: int
    gpus: int
    figures: dict[str, float]

    def figure(self, name: str) -> float:
        return self.figures[name]

    @property
    def share(self) -> float:
        """Return a host's rows as a share of the measured host's: nearly all rows are of GPUs and their processes."""
        return self.gpus / GPUS

    @property
    def lake_bytes(self) -> tuple[float, float]:
        """Return the bytes of a host's day in the lake, with merged files."""
        rows = self.gpus * _ROWS_A_DAY
        low, high = (self.figure(name) for name in ("ledger_64_bytes_per_row", "ledger_64_counters_bytes_per_row"))
        return rows * low, rows * high

    @property
    def spool_bytes(self) -> float:
        """Return the bytes of a host's day in the spool, without publishing."""
        return self.figure("rollout_spool") * 1e6 * self.share

    @property
    def outage_days(self) -> float:
        """Return the days that a host samples at full resolution without a lake."""
        most = next(setting for setting in SETTINGS if setting.name == "agent.spool_max")
        return _THINNED_FROM * float(most.parse(most.default)) / self.spool_bytes

    @property
    def put_list(self) -> float:
        return self.figure("rollout_put_requests") + self.figure("rollout_list_requests")

    @property
    def requests_usd(self) -> float:
        """Return the cost of a host's requests per day."""
        return self.put_list * PUT_LIST_USD + self.figure("rollout_get_requests") * GET_USD

    def lines(self) -> list[tuple[str, str, str]]:
        """Return the lines: the name, the value for one host and day, and the value for the fleet."""
        low, high = self.lake_bytes
        month, year = self.hosts * _MONTH_DAYS, self.hosts * 365
        sent = self.figure("rollout_sent") * self.share
        names = ("put", "list", "get", "delete")
        requests = [self.figure(f"rollout_{name}_requests") for name in names]
        storage = [self.hosts * 365 * each / 1e9 * GB_MONTH_USD for each in (low, high)]
        return [
            ("rows of the table `gpu`", f"{self.gpus * _ROWS_A_DAY:,}",
             f"{self.hosts * self.gpus * _ROWS_A_DAY / 1e6:,.1f} million a day"),
            ("lake, files merged", f"{_range(f'{low / 1e6:.1f}', f'{high / 1e6:.1f}')} MB",
             f"{_range(f'{year * low / 1e12:.2f}', f'{year * high / 1e12:.2f}')} TB a year"),
            ("spool while the lake is away", f"{self.spool_bytes / 1e6:.0f} MB",
             f"{self.outage_days:.0f} days until rows become longer, by the default `agent.spool_max`"),
            ("objects at most, before they are merged", f"{self.figure('rollout_objects_most'):,.0f}",
             f"{self.hosts * self.figure('rollout_objects_most'):,.0f}"),
            ("objects of a day that is over", f"{self.figure('rollout_objects_left'):,.0f}",
             f"{year * self.figure('rollout_objects_left') / 1e6:,.1f} million a year"),
            *[(f"{name.upper()} requests", f"{each:,.0f}", f"{self.hosts * each / 1e6:,.2f} million a day")
              for name, each in zip(names, requests, strict=True)],
            ("sent to the store", f"{sent:.0f} MB", f"{self.hosts * sent * 8 / 86_400:.2f} Mbit/s in the mean"),
            ("money for requests", f"${self.requests_usd:.3f}", f"${month * self.requests_usd:,.0f} a month"),
            ("money for storage, after a year", "", f"{_range(f'${storage[0]:,.0f}', f'${storage[1]:,.0f}')} a month"),
        ]  # fmt: skip


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def sizing(hosts: int, gpus: int) -> Sizing:
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))["figures"]
    return Sizing(hosts, gpus, {name: figure["value"] for name, figure in stored.items()})


def table(of: Sizing) -> str:
    head = [f"| what | one host of {of.gpus} GPUs, a day | {of.hosts:,} hosts |", "|---|---|---|"]
    return "\n".join([*head, *(f"| {' | '.join(line)} |" for line in of.lines())]) + "\n"


def page(text: str) -> str:
    """Return the page with the table of the stored figures."""
    return between_marks(text, MARK, table(sizing(HOSTS, GPUS)))


def main(arguments: list[str]) -> int:
    if not arguments:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    if len(arguments) != 2 or not all(each.isdecimal() and int(each) for each in arguments):
        print(
            "name the number of hosts and of GPUs per host, as in: python -m benchmarks.rollout_sizing 500 8",
            file=sys.stderr,
        )
        return 2
    print(table(sizing(*map(int, arguments))), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
