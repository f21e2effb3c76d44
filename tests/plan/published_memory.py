"""Published measurements of GPU memory, against what `fallow plan fit` estimates of the same work.

`python -m tests.plan.published_memory` (part of `make docs`) prints every measurement and writes the table of
docs/fit.md; test_model_needs.py fails where the page is not current, or where the estimate gets worse. Every figure was
read at the address beside it: `published_memory.csv`.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analytics.plan.model_needs import ERROR, MemoryNeed, Serving, Training, serving_need, training_need
from analytics.plan.model_shapes import ModelShape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fit.md"
BEGIN, END = "<!-- measurements -->\n", "<!-- measurements end -->"
GIB = 2**30
_UNITS = {"GB": 10**9, "GiB": GIB, "MiB": 2**20}
_WORDS = {"yes": True, "no": False}


def _read(name: str) -> Iterator[dict[str, str]]:
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines)


def _value(text: str) -> Any:
    return int(text) if text.isdecimal() else _WORDS.get(text, text)


SHAPES = {
    row["name"]: ModelShape(**{key: text if key == "name" else _value(text) for key, text in row.items() if text})
    for row in _read("published_shapes.csv")
}


@dataclass(frozen=True)
class Measurement:
    """A published measurement per card, without the parts named; `in_sample` figures set a constant of the estimate."""

    shape: ModelShape
    work: Serving | Training
    measured: float
    source: str
    cards: int = 1
    without: tuple[str, ...] = ()
    in_sample: bool = False
    note: str = ""

    @property
    def need(self) -> MemoryNeed:
        if isinstance(self.work, Serving):
            return serving_need(self.shape, self.work, self.cards)
        return training_need(self.shape, self.work, self.cards)

    @property
    def estimate(self) -> float:
        return sum(size for name, size in self.need.parts if name not in self.without)

    @property
    def safe(self) -> float:
        """What a card that fits holds of the same parts."""
        return self.need.high * self.estimate / self.need.total

    @property
    def error(self) -> float:
        return self.estimate / self.measured - 1

    @property
    def is_unsafe(self) -> bool:
        """Measured more than 10 % above what a card that fits holds."""
        return self.safe < 0.9 * self.measured

    @property
    def is_hit(self) -> bool:
        """Serving within the stated error; training within 20 %, and no more than 10 % too low."""
        return abs(self.error) <= ERROR if isinstance(self.work, Serving) else -0.10 <= self.error <= 0.20


def _measurement(row: dict[str, str]) -> Measurement:
    options = {key: _value(text) for key, _, text in (option.partition("=") for option in row["options"].split(" "))}
    work = Serving(**options) if row["work"] == "serving" else Training(row["work"], **options)
    measured = float(row["measured"]) * _UNITS[row["unit"]]
    without, in_sample = tuple(filter(None, row["without"].split("+"))), _WORDS[row["in_sample"]]
    return Measurement(
        SHAPES[row["model"]], work, measured, row["source"], int(row["cards"]), without, in_sample, row["note"]
    )


MEASUREMENTS = tuple(map(_measurement, _read("published_memory.csv")))
"""What a line does not show: PyTorch's own figures exclude the driver's context. LitGPT trains rank 8 on two of seven
matrices, as much as rank 2 on all, and keeps all activations. AutoAWQ's prompt and answer have 2,048 tokens each; its
GB are GiB, by the share of the card that it prints beside them. Qwen's script trains adapters of rank 64 on all linear
layers. LitGPT and torchtune compute the loss in chunks and report allocated memory, Qwen's own code computes it in 16
bits, fsdp_qlora trains on texts of one length with everything in 16 bits. ms-swift trains on texts of many lengths,
adapters on one of seven matrices; its figures of two cards, and those that fill the card, are left out."""


def table() -> str:
    """Measured against estimated as markdown: a row for each kind of work."""
    lines = [
        "| work | measurements | hits | furthest too low | furthest too high | safe size over 10 % too low |",
        "|---|---|---|---|---|---|",
    ]
    kinds: dict[str, list[Measurement]] = {}
    for each in MEASUREMENTS:
        kinds.setdefault(_kind(each.work), []).append(each)
    for kind, found in kinds.items():
        low, high = (_furthest(each for each in found if (each.error < 0) is is_low) for is_low in (True, False))
        lines.append(
            f"| {kind} | {len(found)} | {sum(each.is_hit for each in found)} | {low} | {high} |"
            f" {sum(each.is_unsafe for each in found)} |"
        )
    tested, others = ([each for each in MEASUREMENTS if each.in_sample is of_sample] for of_sample in (False, True))
    by_kind = ", ".join(
        f"{_hits(each for each in tested if isinstance(each.work, kind))} in {words}"
        for kind, words in ((Serving, "serving"), (Training, "training"))
    )
    counted = f"Hits: {_hits(tested)} that set no constant of the estimate ({by_kind}), and {_hits(others)} that did."
    return f"{counted}\n\n" + "\n".join(lines) + "\n"


def every_measurement() -> str:
    """A row for each measurement as markdown; the last column says which ones set a constant."""
    return _EACH + "".join(map(_line, MEASUREMENTS))


_EACH = (
    "| work | model | conditions | measured | estimate | safe size | error | sample"
    " |\n|---|---|---|---|---|---|---|---|\n"
)


def _line(each: Measurement) -> str:
    shown = {
        "context": "{} tokens",
        "sequence": "{} tokens",
        "requests": "{} requests",
        "batch": "batch {}",
        "rank": "rank {}",
    }
    values = [shown[name].format(f"{value:,}") for name, value in vars(each.work).items() if name in shown]
    values += [f"{each.cards} cards"] * (each.cards > 1) + [each.note] * bool(each.note)
    error = f"{100 * each.error:+.0f} %" + ("" if each.is_hit else " (miss)") + (" (unsafe)" if each.is_unsafe else "")
    sizes = (
        f"[{each.measured / GIB:.1f} GiB]({each.source}) | {each.estimate / GIB:.1f} GiB | {each.safe / GIB:.1f} GiB"
    )
    sample = "in" if each.in_sample else "out"
    return f"| {_kind(each.work)} | {each.shape.name} | {', '.join(values)} | {sizes} | {error} | {sample} |\n"


def _hits(measurements: Iterable[Measurement]) -> str:
    found = [each.is_hit for each in measurements]
    return f"{sum(found)} of {len(found)}"


def _kind(work: Serving | Training) -> str:
    return f"serving in {work.bits} bits" if isinstance(work, Serving) else f"training, {work.method}"


def _furthest(measurements: Iterable[Measurement]) -> str:
    """The error and the model of the measurement with the largest error; nothing where there is none."""
    found = max(measurements, key=lambda each: abs(each.error), default=None)
    return "" if found is None else f"{100 * found.error:+.0f} % ([{found.shape.name}]({found.source}))"


def with_table(page: str) -> str:
    """The page with the table as it is computed today."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    print(table() + "\n" + every_measurement())
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
