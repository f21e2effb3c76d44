"""Mail addresses of those who hold GPUs, and who does not want to be told: two tables that a site keeps by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analytics.delivery.targets import mail_address
from analytics.money.csv_tables import Line, read_lines
from analytics.names import JOINER, single_name
from fallow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from analytics.workloads.model import Finding

COLUMNS = ("kind", "name", "email")
"""The columns of the contacts file; several lines about one name are several addresses."""

OPT_OUT_COLUMNS = ("kind", "name")
KINDS = ("user", "account", "namespace", "team")
_HOLDERS = KINDS[:3]


@dataclass(frozen=True)
class Contacts:
    """Who is reached where; `silent` are those, by kind and name or by address, who get no nudges."""

    addresses: Mapping[tuple[str, str], tuple[str, ...]]
    silent: frozenset[tuple[str, str]]

    @classmethod
    def load(cls, contacts: str, opt_out: str) -> Contacts:
        """The tables at two paths, empty for none; ConfigError that names the line for one that cannot be used."""
        found: dict[tuple[str, str], tuple[str, ...]] = {}
        for line in read_lines(contacts, COLUMNS, COLUMNS) if contacts else ():
            key = _named(line, KINDS)
            found[key] = tuple(dict.fromkeys((*found.get(key, ()), _address(line, "email"))))
        silent = frozenset(
            _silent(line) for line in (read_lines(opt_out, OPT_OUT_COLUMNS, OPT_OUT_COLUMNS) if opt_out else ())
        )
        return cls(found, silent)

    def of(self, finding: Finding) -> dict[str, str]:
        """The addresses of those whom a finding is about, each with the name that led to it.

        Several who hold together are all told. A holder without an address is told by way of the team, one who does not want
        to be told not at all.
        """
        found: dict[str, str] = {}
        for name in (finding.holder or "").split(JOINER):
            if name and not any((kind, name) in self.silent for kind in _HOLDERS):
                own = next((self.addresses[kind, name] for kind in _HOLDERS if (kind, name) in self.addresses), ())
                for address in own or self._team(finding.team):
                    found.setdefault(address, name)
        return {address: name for address, name in found.items() if ("email", address.lower()) not in self.silent}

    def _team(self, team: str | None) -> tuple[str, ...]:
        names = [] if team is None else team.split(JOINER)
        wanted = [name for name in names if ("team", name) not in self.silent]
        return tuple(address for name in wanted for address in self.addresses.get(("team", name), ()))


def _silent(line: Line) -> tuple[str, str]:
    if (line.text("kind") or "").lower() == "email":
        return "email", _address(line, "name").lower()  # whoever wants none gets none, however it is spelt
    return _named(line, (*KINDS, "email"))


def _named(line: Line, kinds: tuple[str, ...]) -> tuple[str, str]:
    kind, name = (line.text("kind") or "").lower(), line.text("name")
    if kind not in kinds:
        raise line.error(f"kind '{kind}' is none of {', '.join(kinds)}")
    if name is None:
        raise line.error("name is empty", "every line says whom it is about")
    return kind, name if kind == "team" else single_name(name)


def _address(line: Line, column: str) -> str:
    try:
        return mail_address(line.text(column) or "")
    except UsageError as error:
        raise line.error(f"{column}: {error.message}", error.hint) from error
