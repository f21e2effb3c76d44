"""What failed, said once per cause, and again only after it worked in between."""

from __future__ import annotations


class Failures:
    """Collects the incidents that become rows of the `event` table."""

    def __init__(self) -> None:
        self._failing: set[str] = set()
        self._incidents: list[dict[str, str]] = []

    def failed(self, cause: str, detail: str) -> None:
        """Notes an incident, unless this cause has been failing already."""
        if cause not in self._failing:
            self._failing.add(cause)
            self._incidents.append({"kind": "attribution_failed", "detail": detail})

    def worked(self, cause: str) -> None:
        """The cause is over: its next failure is news again."""
        self._failing.discard(cause)

    def take(self) -> list[dict[str, str]]:
        """Incidents since the last call, each with `kind` and `detail`."""
        taken, self._incidents = self._incidents, []
        return taken
