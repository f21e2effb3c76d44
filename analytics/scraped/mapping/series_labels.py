"""What a series' labels say: which GPU, which host, and who holds it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from analytics.scraped.mapping.mapped_series import target_of
from analytics.scraped.mapping.model import Exporter
from analytics.scraped.samples import Labels

_RENAMED = "exported_"
"""What a Prometheus server puts before a label of the page that it sets itself (honor_labels off)."""


def host_of(labels: Labels, exporter: Exporter) -> str:
    """The host that a series is of: a label of the exporter's, else the address that was scraped without its port."""
    if named := exporter.labelled(labels, exporter.host):
        return named
    instance = labels.get("instance", "")
    return re.sub(r":\d+$", "", instance).strip("[]")


def renaming_targets(labels: Sequence[Labels]) -> frozenset[tuple[str, ...]]:
    """Targets of which the server renamed labels: their plain `pod`, `namespace` and `container` are of the exporter itself."""
    return frozenset(target_of(series) for series in labels if any(name.startswith(_RENAMED) for name in series))


def holder_of(labels: Labels, exporter: Exporter, renaming: frozenset[tuple[str, ...]]) -> dict[str, str]:
    """Who holds the GPU of a series, by HOLDERS; a word that is not there is left out, an empty dict: nobody is named."""
    renamed = target_of(labels) in renaming
    found = {word: exporter.labelled(labels, _usable(names, renamed=renamed)) for word, names in exporter.holder}
    if exporter.own_pods and re.fullmatch(exporter.own_pods, found.get("pod", "")):
        found |= {"pod": "", "namespace": "", "container": ""}
    return {word: value for word, value in found.items() if value}


def _usable(names: tuple[str, ...], *, renamed: bool) -> tuple[str, ...]:
    """Where the server renames, a plain label counts only if it has no renamed form among the names."""
    if not renamed:
        return names
    return tuple(name for name in names if f"{_RENAMED}{name}" not in names)
