"""Findings and the demand of pools as JSON, and back: only values of the classes named here, and no code."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import date
from typing import Any

import polars as pl

from analytics.capacity.forecast import Crossing, DemandForecast, DemandSeries, PoolOutlook
from analytics.capacity.forecast_models import Fan, ForecastTest
from analytics.capacity.next_week import WeekAhead
from analytics.capacity.peak_demand import Backtest, PeakDemand
from analytics.decide.reversals import Rate, Reversal, Reversals
from analytics.language import sentences
from analytics.language.sentences import Sentence, SentenceList
from analytics.proportions import Estimate
from analytics.workloads.model import Confidence, Evidence, Finding, Outlook, Witness
from analytics.workloads.pool_demand import FleetDemand, PoolDemand, Release, Reserve

_CLASSES: Mapping[str, type[Any]] = {
    each.__name__: each
    for each in (
        *(Finding, Confidence, Outlook, Evidence, Witness, Reversals, Reversal, Rate, Estimate),
        *(FleetDemand, PoolDemand, Release, Reserve, PeakDemand, Backtest, WeekAhead),
        *(PoolOutlook, DemandForecast, DemandSeries, Crossing, Fan, ForecastTest),
        *(each for each in vars(sentences).values() if sentences.Quantity in getattr(each, "__bases__", ())),
    )
}
_NAMES: Mapping[type[Any], tuple[str, tuple[str, ...]]] = {
    each: (name, tuple(field.name for field in fields(each))) for name, each in _CLASSES.items()
}


def written(value: object) -> Any:
    """Return a value as JSON has it: a tuple as a list, all else that JSON lacks as `{kind: content}`.

    Raises TypeError for a value of any other class, so that nothing is kept that could not be read again.
    """
    kind = type(value)
    if value is None or kind in (str, int, float, bool):
        return value
    if kind is tuple:
        return [written(each) for each in value]  # type: ignore[attr-defined]  # a tuple
    if (known := _NAMES.get(kind)) is not None:
        name, names = known
        return {name: [written(getattr(value, each)) for each in names]}
    return _written_otherwise(value)


def _written_otherwise(value: object) -> dict[str, Any]:
    if isinstance(value, Sentence):
        return {"sentence": [value.template, written(value.values), value.number, value.many]}
    if isinstance(value, SentenceList):
        return {"sentences": [[written(each) for each in value.parts], value.between]}
    if isinstance(value, dict):
        return {"map": [[written(key), written(each)] for key, each in value.items()]}
    if isinstance(value, frozenset):
        return {"set": [written(each) for each in sorted(value)]}
    if type(value) is date:
        return {"date": value.isoformat()}
    if isinstance(value, pl.DataFrame):
        content = io.BytesIO()
        value.write_ipc(content)
        return {"frame": base64.b64encode(content.getvalue()).decode("ascii")}
    raise TypeError(f"a {type(value).__name__} is not kept")


def read(content: Any) -> Any:
    """Return the value of what `written` returned. Raises LookupError, TypeError and ValueError for anything else."""
    if isinstance(content, list):
        return tuple(map(read, content))
    if not isinstance(content, dict):
        return content
    ((kind, own),) = content.items()
    known_class = _CLASSES.get(kind)
    return _READ[kind](own) if known_class is None else known_class(*map(read, own))


def _sentence(own: Any) -> Sentence:
    template, values, number, many = own
    return Sentence(template, read(values), number, many)


_READ: Mapping[str, Callable[[Any], Any]] = {
    "sentence": _sentence,
    "sentences": lambda own: SentenceList(map(read, own[0]), own[1]),
    "map": lambda own: {read(key): read(each) for key, each in own},
    "set": lambda own: frozenset(map(read, own)),
    "date": date.fromisoformat,
    "frame": lambda own: pl.read_ipc(io.BytesIO(base64.b64decode(own))),
}
