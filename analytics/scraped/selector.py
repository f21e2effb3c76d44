"""Series selectors of PromQL: which metrics, of which targets, narrowed by what the site asks for."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class SeriesSelection:
    """What is read of a server: metrics by name, of some or all targets, where the site's own matchers hold."""

    names: Collection[str]
    instances: Collection[str] | None = None
    """Values of the label `instance`; None: all."""

    match: str = ""
    """Matchers of PromQL, joined by commas."""

    def of(self, names: Collection[str], instances: Collection[str] | None = None) -> SeriesSelection:
        """The same for other metrics and targets."""
        return replace(self, names=names, instances=instances)

    @property
    def text(self) -> str:
        return self.like("|".join(re.escape(name) for name in sorted(self.names)))

    def like(self, pattern: str) -> str:
        """The selector of metrics whose names match a regular expression, instead of those that are named."""
        parts = [f"__name__=~{_quoted(pattern)}"]
        if self.instances is not None:
            parts.append(f"instance=~{_quoted('|'.join(re.escape(each) for each in sorted(self.instances)))}")
        return "{" + ",".join([*parts, *([self.match.strip(", ")] if self.match else [])]) + "}"


def _quoted(pattern: str) -> str:
    return '"' + pattern.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
