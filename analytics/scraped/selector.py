"""Series selectors of PromQL: which metrics, of which targets, narrowed by what the site asks for."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Selection:
    """What is read of a server: metrics by name, of some or all targets, where the site's own matchers hold."""

    names: Collection[str]
    instances: Collection[str] | None = None
    """Values of the label `instance`; None: all."""

    match: str = ""
    """Matchers of PromQL, joined by commas."""

    def of(self, names: Collection[str], instances: Collection[str] | None = None) -> Selection:
        """The same for other metrics and targets."""
        return replace(self, names=names, instances=instances)

    @property
    def text(self) -> str:
        parts = [f"__name__=~{_either(self.names)}"]
        if self.instances is not None:
            parts.append(f"instance=~{_either(self.instances)}")
        return "{" + ",".join([*parts, *([self.match.strip(", ")] if self.match else [])]) + "}"


def _either(values: Collection[str]) -> str:
    """A quoted regular expression that matches any of the values and nothing else."""
    pattern = "|".join(re.escape(value) for value in sorted(values))
    return '"' + pattern.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
