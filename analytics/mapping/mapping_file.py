"""Mappings in TOML: exporters and tools that fallow knows, and a site's own over them; each error is one sentence."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from analytics.mapping.model import GIVEN, KINDS, USERS, CombinedColumn, Exporter, MappedMetric
from fallow.errors import ConfigError
from fallow.given_file import SETTINGS_BYTES, given_text
from fallow.schema import DEVICE, EVENT, GPU, HOST, PROCESS, LakeColumn, Type

_QUANTITIES: dict[str, tuple[str, float]] = {
    "": ("count", 1),
    "1": ("count", 1),
    "%": ("share", 0.01),
    "ratio": ("share", 1),
    "bytes": ("memory", 1),
    "KiB": ("memory", 2**10),
    "MiB": ("memory", 2**20),
    "GiB": ("memory", 2**30),
    "kB": ("memory", 1e3),
    "MB": ("memory", 1e6),
    "GB": ("memory", 1e9),
    "bytes/s": ("rate", 1),
    "KiB/s": ("rate", 2**10),
    "MiB/s": ("rate", 2**20),
    "GiB/s": ("rate", 2**30),
    "kB/s": ("rate", 1e3),
    "MB/s": ("rate", 1e6),
    "GB/s": ("rate", 1e9),
    "mW": ("power", 1e-3),
    "W": ("power", 1),
    "kW": ("power", 1e3),
    "uJ": ("energy", 1e-6),
    "mJ": ("energy", 1e-3),
    "J": ("energy", 1),
    "Wh": ("energy", 3600),
    "kWh": ("energy", 3.6e6),
    "degC": ("temperature", 1),
    "Hz": ("frequency", 1),
    "MHz": ("frequency", 1e6),
    "GHz": ("frequency", 1e9),
    "ns": ("time", 1e-9),
    "us": ("time", 1e-6),
    "ms": ("time", 1e-3),
    "s": ("time", 1),
}
_CLIMBS_TO = {"bytes/s": "bytes", "%": "s"}
"""Units of a counter whose rise per second is in the key's unit: 0.2 s of CPU time in a second are 20 %."""

UNITS = tuple(_QUANTITIES)


def convertible(column_unit: str, kind: str) -> tuple[str, ...]:
    """Return the units that a metric of that kind may have for a column of that unit."""
    quantity = _QUANTITIES[_counted_unit(column_unit, kind)][0]
    return tuple(unit for unit, (of, _) in _QUANTITIES.items() if of == quantity)


def factor(unit: str, column_unit: str, kind: str) -> float:
    """Return the factor from `unit` to the column's unit; of a counter that fills a rate, for its rise per second."""
    counted = _counted_unit(column_unit, kind)
    scale = 100 if column_unit == "%" and counted != "%" else 1
    return _QUANTITIES[unit][1] / _QUANTITIES[counted][1] * scale


def _counted_unit(column_unit: str, kind: str) -> str:
    return _CLIMBS_TO.get(column_unit, column_unit) if kind == "counter" else column_unit


_NUMBERS = (Type.INT16, Type.INT32, Type.INT64, Type.FLOAT, Type.DOUBLE)
_OWN = ("interval_ms", "offset_ms", "read_delay_ms", "gpu_util_coverage_ratio")
"""Columns that the reader of the samples fills by itself."""

_TABLES = {table.name: table for table in (GPU, DEVICE, HOST, EVENT, PROCESS)}
_OF_TOOLS = tuple(f"{name}.{column}" for name, table in _TABLES.items() for column in table.names)
_COLUMNS = (
    *(each for each in _OF_TOOLS if not each.startswith(f"{PROCESS.name}.")),
    *(f"{GIVEN}.{user}" for user in USERS),
)

_TOP = (
    "title",
    "source_url",
    "readings",
    "refused",
    "collect_interval_s",
    "signed_by",
    "only",
    "own_pods",
    "unknown",
    "ignored",
    "extend",
    "prefix",
    "labels",
    "metrics",
    "combined",
)
_LABELS = ("gpu", "gpu_prefix", "index", "host", "mig_uuid", "mig_instance", "device", "user")
_METRIC = ("name", "to", "unit", "kind", "covers_s", "only", "sum_over", "per")
_COMBINED = ("to", "unit", "add", "subtract")

Content = Mapping[str, Any]
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class _Place:
    """A place in a file, for the sentence that describes an error there."""

    file: str
    part: str = ""
    columns: tuple[str, ...] = _COLUMNS
    """The entries of this kind in the file."""

    def at(self, part: str) -> _Place:
        return replace(self, part=part)

    def wrong(self, what: str, remedy: str) -> ConfigError:
        where = f"{self.file}, {self.part}" if self.part else self.file
        return ConfigError(f"mapping {where}: {what}", remedy)

    def value(self, content: Content, key: str, kind: type[_Value], default: _Value) -> _Value:
        found = content.get(key, default)
        if not isinstance(found, kind):
            raise self.wrong(f"{key} is {found!r}", f"write {_FORMS[kind]}")
        return found

    def names(self, content: Content, key: str) -> tuple[str, ...]:
        found = self.value(content, key, list, [])
        if not all(isinstance(name, str) and name for name in found):
            raise self.wrong(f"{key} is {found!r}", 'write a list of names, such as ["uuid", "UUID"]')
        return tuple(found)

    def only_known(self, content: Content, known: Sequence[str], what: str) -> None:
        for key in content:
            if key not in known:
                raise self.wrong(f"there is no {what} {key!r}", _name_remedy(key, known))

    def pattern(self, text: str, what: str) -> str:
        try:
            re.compile(text)
        except re.error as error:
            raise self.wrong(f"{what} is no regular expression: {error}", f"correct {text!r}") from None
        return text

    def label_patterns(self, content: Content) -> tuple[tuple[str, str], ...]:
        only = self.value(content, "only", dict, {})
        return tuple((label, self.pattern(str(text), f"only.{label}")) for label, text in only.items())


_FORMS: dict[type, str] = {str: "a text in quotes", list: "a list", dict: "a table"}


def mapping_content(path: Path) -> Content:
    """Return the content of a mapping file. Raises ConfigError where it cannot be read or is not TOML."""
    try:
        return tomllib.loads(given_text("the mapping", path, SETTINGS_BYTES))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the mapping {path} is not TOML: {error}", "correct that line") from error


def exporter_from(content: Content, name: str, *, is_tool: bool = False) -> Exporter:
    """Return the exporter or tool that a file's keys describe. Raises ConfigError with the error and the remedy."""
    place = _Place(f"{name}.toml", columns=_OF_TOOLS if is_tool else _COLUMNS)
    place.only_known(content, _TOP, "key")
    labels = place.value(content, "labels", dict, {})
    place.at("labels").only_known(labels, (*_LABELS, "process") if is_tool else _LABELS, "key")
    metrics = _metrics(content, place)
    return Exporter(
        name=name,
        title=place.value(content, "title", str, name),
        source_url=place.value(content, "source_url", str, ""),
        readings=place.value(content, "readings", str, ""),
        refused=place.value(content, "refused", str, ""),
        signed_by=place.names(content, "signed_by"),
        gpu=place.names(labels, "gpu"),
        gpu_prefix=place.value(labels, "gpu_prefix", str, ""),
        index=place.names(labels, "index"),
        host=place.names(labels, "host"),
        mig_uuid=place.names(labels, "mig_uuid"),
        mig_instance=place.names(labels, "mig_instance"),
        device=_label_columns(labels, "device", DEVICE.names, place),
        user=_label_columns(labels, "user", USERS, place),
        process=_label_columns(labels, "process", PROCESS.names, place),
        only=place.label_patterns(content),
        own_pods=place.pattern(place.value(content, "own_pods", str, ""), "own_pods"),
        unknown=_ranges(content, place),
        ignored=place.pattern(place.value(content, "ignored", str, ""), "ignored"),
        metrics=metrics,
        combined=tuple(_combined(found, metrics, place) for found in place.value(content, "combined", list, [])),
    )


def _label_columns(
    labels: Content, key: str, columns: Sequence[str], whole: _Place
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    place = whole.at(f"labels.{key}")
    found = place.value(labels, key, dict, {})
    place.only_known(found, columns, "column")
    return tuple((column, place.names(found, column)) for column in found)


def _ranges(content: Content, place: _Place) -> tuple[tuple[float, float], ...]:
    found = place.value(content, "unknown", list, [])
    for pair in found:
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(end, int | float) for end in pair)):
            raise place.wrong(f"unknown has {pair!r}", "write pairs of numbers, the least and the largest value")
    return tuple((float(low), float(high)) for low, high in found)


def _metrics(content: Content, place: _Place) -> tuple[MappedMetric, ...]:
    interval_s = content.get("collect_interval_s")
    if interval_s is not None and not (isinstance(interval_s, int | float) and interval_s > 0):
        raise place.wrong(f"collect_interval_s is {interval_s!r}", "write the number of seconds between two values")
    found: dict[tuple[object, ...], MappedMetric] = {}
    for entry in place.value(content, "metrics", list, []):
        metric = _metric(entry, interval_s, place)
        key = (metric.metric, metric.kind, metric.only)
        if key in found:
            raise place.wrong(f"the metric {metric.metric} occurs twice", "delete one of the two lines")
        found[key] = metric
    return tuple(found.values())


def _metric(entry: Content, interval_s: float | None, whole: _Place) -> MappedMetric:
    if not isinstance(entry, dict) or not isinstance(name := entry.get("name"), str) or not name:
        raise whole.wrong(f"metrics has {entry!r}", 'give each metric a name, as { name = "gpu_util", ... }')
    place = whole.at(f"metric {name}")
    place.only_known(entry, _METRIC, "key")
    kind = place.value(entry, "kind", str, "info")
    if kind not in KINDS:
        raise place.wrong(f"there is no kind {kind!r}", _name_remedy(kind, KINDS))
    table, column, scale = _target(entry, kind, place)
    covers_s = entry.get("covers_s", interval_s if kind == "average" else None)
    if covers_s is not None and not (isinstance(covers_s, int | float) and covers_s > 0):
        raise place.wrong(f"covers_s is {covers_s!r}", "write the number of seconds that a value describes")
    return MappedMetric(
        metric=name,
        table=table,
        column=column,
        kind=kind,
        factor=scale,
        covers_s=covers_s,
        only=place.label_patterns(entry),
        sum_over=place.names(entry, "sum_over"),
        per=place.value(entry, "per", str, ""),
        unit=place.value(entry, "unit", str, ""),
    )


def _target(entry: Content, kind: str, place: _Place) -> tuple[str, str, float]:
    """Return table, column and factor; both names are empty for a metric without a column of its own."""
    target, unit = place.value(entry, "to", str, ""), place.value(entry, "unit", str, "")
    if unit not in UNITS:
        raise place.wrong(f"there is no unit {unit!r}", _name_remedy(unit, UNITS))
    if not target:
        return "", "", 1.0
    if target not in place.columns:
        raise place.wrong(f"there is no column {target!r}", _name_remedy(target, place.columns))
    table, _, column = target.partition(".")
    if table == GIVEN:
        return table, column, 1.0
    into = _TABLES[table].column(column)
    if into.type not in _NUMBERS or column in _OWN:
        raise place.wrong(f"{target} is not filled from a metric's value", "delete the line")
    fitting = convertible(into.unit, kind)
    if unit not in fitting:
        raise place.wrong(
            f"{unit or 'no unit'} cannot be converted to {target}, which is in {into.unit or 'plain numbers'}",
            f"give it the unit {_alternatives(fitting)}",
        )
    return table, column, factor(unit, into.unit, kind)


def _combined(entry: Content, metrics: tuple[MappedMetric, ...], whole: _Place) -> CombinedColumn:
    if not isinstance(entry, dict):
        raise whole.wrong(f"combined has {entry!r}", 'write { to = "table.column", unit = "MiB", add = [...] }')
    place = whole.at(f"combined {entry.get('to', '')}")
    place.only_known(entry, _COMBINED, "key")
    table, column, scale = _target(entry, "reading", place)
    known = tuple(metric.metric for metric in metrics)
    add, subtract = place.names(entry, "add"), place.names(entry, "subtract")
    for name in (*add, *subtract):
        if name not in known:
            near = get_close_matches(name, known, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else f'add {{ name = "{name}" }} to them'
            raise place.wrong(f"{name} is not among the metrics", remedy)
    if not (column and add):
        raise place.wrong("it has no column, or nothing to add", "write `to` and `add`")
    return CombinedColumn(table, column, add, subtract, scale)


def _name_remedy(word: str, known: Sequence[str]) -> str:
    """Return the remedy for an unknown name."""
    if near := get_close_matches(word, known, n=1):
        return f"did you mean {near[0]!r}?"
    if len(known) > 15:  # more words than a person reads at the end of a sentence
        return "`fallow schema` lists the columns"
    return f"use {_alternatives(tuple(name for name in known if name))}"


def _alternatives(words: tuple[str, ...]) -> str:
    shown = [word or "no unit" for word in words]
    return f"{', '.join(shown[:-1])} or {shown[-1]}" if shown[1:] else shown[0]


_FOLDER = Path(__file__).parent


@cache
def built_in() -> tuple[Exporter, ...]:
    """Return the exporters that come with fallow, by name."""
    return tuple(exporter_from(content, name) for name, content in _contents().items())


def tool(name: str) -> Exporter:
    """Return the mapping of a tool whose files can be imported."""
    return exporter_from(mapping_content(_FOLDER / "tools" / f"{name}.toml"), name, is_tool=True)


def lake_column(metric: MappedMetric) -> LakeColumn:
    """Return the column that a metric fills."""
    return _TABLES[metric.table].column(metric.column)


def load_exporters(site_files: Sequence[Path] = ()) -> tuple[Exporter, ...]:
    """Return a site's own exporters, then those that come with fallow; a file that extends one of those replaces it.

    Raises ConfigError that names the error and the file.
    """
    site: dict[str, Exporter] = {}
    replaced: set[str] = set()
    for path in site_files:
        content = mapping_content(path)
        base = content.get("extend", path.stem)
        if "extend" in content:
            content = _extended_content(content, path.name)
        content = _prefixed_content(content)
        if path.stem in site:
            raise ConfigError(f"two mappings are called {path.stem}", "name one of the files differently")
        if base in replaced:
            raise ConfigError(f"two mappings extend {base}", "put both into one file")
        replaced.add(base)
        site[path.stem] = replace(exporter_from(content, path.stem), of_site=True)
    return (*site.values(), *(exporter for exporter in built_in() if exporter.name not in replaced))


def metric_names(exporters: Iterable[Exporter]) -> frozenset[str]:
    """Return every metric to ask a server for, including those that only identify the exporter of a target."""
    return frozenset(
        name
        for exporter in exporters
        for name in (*exporter.signed_by, *(mapped.metric for mapped in exporter.metrics))
    )


@cache
def _contents() -> dict[str, Content]:
    return {path.stem: mapping_content(path) for path in sorted((_FOLDER / "exporters").glob("*.toml"))}


def _extended_content(content: Content, file: str) -> Content:
    """Return the file's keys over the base's: labels one by one, metrics and sums by name, the file's first."""
    base = _contents().get(content["extend"]) if isinstance(content["extend"], str) else None
    if base is None:
        raise ConfigError(
            f"mapping {file}: there is no exporter {content['extend']!r} to extend", f"use {', '.join(_contents())}"
        )
    merged: dict[str, object] = {**base, **content}
    if isinstance(content.get("labels", {}), dict):
        merged["labels"] = _merged_labels(content.get("labels", {}), base.get("labels", {}))
    merged["metrics"] = _merged_entries(content.get("metrics", []), base.get("metrics", []), "name")
    merged["combined"] = _merged_entries(content.get("combined", []), base.get("combined", []), "to")
    return merged


def _merged_labels(own: Content, base: Content) -> Content:
    parts = {
        part: {**base.get(part, {}), **own[part]} for part in ("device", "user") if isinstance(own.get(part), dict)
    }
    return {**base, **own, **parts}


def _prefixed_content(content: Content) -> Content:
    """Return the content with `prefix` before every metric's name: a server or an exporter may rename all metrics."""
    prefix = content.get("prefix", "")
    if not (prefix and isinstance(prefix, str)):
        return content
    found = dict(content)
    for key, names in (("metrics", ("name",)), ("combined", ("add", "subtract"))):
        if isinstance(entries := content.get(key), list):
            found[key] = [
                _prefixed_entry(entry, names, prefix) if isinstance(entry, dict) else entry for entry in entries
            ]
    return _prefixed_entry(found, ("signed_by",), prefix)


def _prefixed_entry(entry: Content, keys: tuple[str, ...], prefix: str) -> Content:
    """Return the entry with the prefix before the names at these keys; the reader refuses malformed values."""
    found = dict(entry)
    for key in keys:
        match entry.get(key):
            case str() as name:
                found[key] = prefix + name
            case list() as names:
                found[key] = [prefix + name if isinstance(name, str) else name for name in names]
    return found


def _merged_entries(own: object, base: list[dict[str, object]], key: str) -> object:
    """Return the file's entries, and the base's that it does not name; the reader refuses a value that is no list."""
    if not isinstance(own, list):
        return own
    named = {entry.get(key) for entry in own if isinstance(entry, dict)}
    return [*own, *(entry for entry in base if entry.get(key) not in named)]
