"""The readers of the pages, and what they may see and do."""

from __future__ import annotations

from dataclasses import dataclass

from flask import g, has_request_context

from fallow.actors import PERSON, Actor
from fallow.errors import FallowError

VIEWER, PLANNER, ADMIN = "viewer", "planner", "admin"
ROLES = (VIEWER, PLANNER, ADMIN)
"""A viewer reads; a planner also acknowledges, snoozes and sends; an admin also sees the settings."""


class NotAllowedError(FallowError):
    """A reader asked for something that they may not see or do."""


@dataclass(frozen=True)
class Reader:
    """A reader of the pages.

    Attributes:
        team: the one team that the reader may see; None for all teams.
        kind: the kind of actor that has the name.
    """

    name: str
    role: str
    team: str | None = None
    kind: str = PERSON

    @property
    def actor(self) -> Actor:
        """The reader as an actor, for records of acts."""
        return Actor(self.name, self.kind)

    @property
    def described(self) -> str:
        """The role and the team in words, for the log."""
        return self.role if self.team is None else f"{self.role} of team {self.team}"

    @property
    def sees_places(self) -> bool:
        """True where messages may show the site's paths and all hosts: for admins who see every team."""
        return self.may(ADMIN) and self.team is None

    def may(self, role: str) -> bool:
        """Return whether the reader has this role or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def require(self, role: str) -> None:
        """Raise NotAllowedError unless the reader has this role or a higher one."""
        if not self.may(role):
            raise NotAllowedError(
                f"{self.name} may not do this: it needs the role {role}", "ask the operator of these pages"
            )


AHEAD = Reader("", ADMIN)
"""fallow itself, which computes pages before a reader asks for them."""


def person() -> Reader:
    """Return the reader of the current request. Raises NotAllowedError for an unknown reader: there is no default."""
    found = g.get("person") if has_request_context() else None
    if not isinstance(found, Reader):
        raise NotAllowedError("you are not signed in", "sign in again")
    return found
