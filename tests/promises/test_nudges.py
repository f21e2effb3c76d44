"""What fallow promises of nudges: who is asked, and through whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from analytics.delivery.nudges import Contacts
from analytics.money.owners import Owners

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("user", "team", "reached"),
    [
        ("bob", "speech", {"speech@example.org": "bob"}),
        ("ann+bob", "speech+vision", {"ann@example.org": "ann", "speech@example.org": "bob"}),
        ("ann+eve", "vision", {"ann@example.org": "ann", "vision@example.org": "eve"}),
        ("ann+cy+eve", "speech+vision", {"ann@example.org": "ann", "cy@example.org": "cy"}),
    ],
    ids=str,
)
def test_a_user_without_an_address_is_reached_through_their_own_team_and_through_no_other(
    tmp_path: Path, user: str, team: str, reached: dict[str, str]
) -> None:
    """docs/delivering.md, Recipients: "A user without an address is reached through the own team"; eve has no team."""
    owners, contacts = tmp_path / "owners.csv", tmp_path / "contacts.csv"
    owners.write_text("kind,name,team\nuser,ann,vision\nuser,bob,speech\nuser,cy,speech\n")
    people = ("user,ann,ann", "user,cy,cy", "team,vision,vision", "team,speech,speech")
    contacts.write_text("kind,name,email\n" + "".join(f"{each}@example.org\n" for each in people))
    assert Contacts.load(str(contacts), "").of(user, team, Owners.load(str(owners))) == reached
