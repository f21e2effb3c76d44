"""The table of exporters in docs/prometheus.md, from the mapping files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.mapping.mapping_file import built_in

if TYPE_CHECKING:
    from analytics.mapping.model import Exporter

BEGIN = "<!-- mappings: written by `make docs` -->"
END = "<!-- mappings end -->"

_NO_LABELS = "-"


def with_summary(page: str) -> str:
    """Return docs/prometheus.md with the table of exporters as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = ["| exporter | labels of the GPU | of its user | utilization |", "|---|---|---|---|"]
    lines += [
        f"| [{exporter.title}]({_source(exporter)}) | {_gpu(exporter)} | {_user(exporter)} | {_utilization(exporter)} |"
        for exporter in built_in()
        if exporter.of_gpus
    ]
    return "\n".join([f"{before}{BEGIN}", "", *lines, "", f"{END}{after}"])


def _source(exporter: Exporter) -> str:
    return exporter.source_url.removeprefix("docs/")


def _gpu(exporter: Exporter) -> str:
    return _labels((*exporter.mig_uuid, *exporter.gpu, *exporter.mig_instance))


def _user(exporter: Exporter) -> str:
    return _labels(tuple(names[0] for _, names in exporter.user))


def _utilization(exporter: Exporter) -> str:
    """A moment or a mean, by the metrics that fill the column, the first of which counts wherever it has a value."""
    kinds = [each.kind for each in exporter.metrics if (each.table, each.column) == ("gpu", "gpu_util_pct")]
    return ", else ".join({"reading": "moment", "average": "mean"}[kind] for kind in dict.fromkeys(kinds)) or _NO_LABELS


def _labels(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names) or _NO_LABELS
