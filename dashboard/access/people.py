"""Who reads the pages, and what they may see and do."""

from __future__ import annotations

from dataclasses import dataclass

from flask import g, has_request_context

from fallow.actors import PERSON, Actor
from fallow.errors import FallowError

VIEWER, PLANNER, ADMIN = "viewer", "planner", "admin"
ROLES = (VIEWER, PLANNER, ADMIN)
"""A viewer reads; a planner also acknowledges, suppresses and sends; an admin also sees the settings."""


class NotAllowedError(FallowError):
    """Somebody asked for what they may not see or do."""


@dataclass(frozen=True)
class Reader:
    """A reader: name, role, the one team that they may see (None: all), and the kind of actor that has the name."""

    name: str
    role: str
    team: str | None = None
    kind: str = PERSON

    @property
    def actor(self) -> Actor:
        """The reader as records name who acted."""
        return Actor(self.name, self.kind)

    @property
    def described(self) -> str:
        """Role and team in words, for the log."""
        return self.role if self.team is None else f"{self.role} of team {self.team}"

    @property
    def sees_places(self) -> bool:
        """Whether they may be told of paths of the site and of anybody's hosts: admins who see every team."""
        return self.may(ADMIN) and self.team is None

    def may(self, role: str) -> bool:
        """Whether the role is theirs, or less than theirs."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def require(self, role: str) -> None:
        """Raises NotAllowedError unless the role is theirs."""
        if not self.may(role):
            raise NotAllowedError(f"{self.name} may not do this: it takes the role {role}", "ask who runs these pages")


def person() -> Reader:
    """Who asks; raises NotAllowedError where nobody has found that out: never a default."""
    found = g.get("person") if has_request_context() else None
    if not isinstance(found, Reader):
        raise NotAllowedError("nobody knows who you are", "sign in again")
    return found
