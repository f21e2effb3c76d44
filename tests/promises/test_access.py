"""What fallow promises of access: a team sees its own, alone and whole, and only who may act does."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import polars as pl
import pytest

from analytics.decide.review import names_others
from analytics.money.owners import Owners
from analytics.scope import Scope, narrowed
from analytics.states import UNALLOCATED
from analytics.tables.recommendations import DECISION_COLUMNS
from analytics.tables.table import record
from dashboard.access.people import ADMIN, VIEWER, NotAllowedError, Reader
from dashboard.actions import Wish, act
from fallow.schema import STATES
from tests.dashboard.acting import PLAN, PLAN_ALPHA, VIEW_ALPHA, held_lake
from tests.delivery.made_items import found
from tests.ledger.rows import ms, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake
    from tests.promises.site import Site

TEAMS = {"vision": {"ann", "cy", "fay"}, "speech": {"bob", "dan", "eve"}}
OTHERS = {"vision": TEAMS["speech"] | {"speech"}, "speech": TEAMS["vision"] | {"vision"}}


def named(names: set[str], text: str) -> set[str]:
    return {name for name in names if re.search(rf"(?<![\w-]){name}(?:-lab)?(?![\w-])", text)}


@pytest.mark.parametrize("team", TEAMS)
def test_a_person_with_a_team_sees_only_what_belongs_to_the_team(waste: Site, team: str) -> None:
    """README.md; docs/security.md, of a viewer of a team.

    They may not "see others' names, jobs or cost, also where a GPU is shared".
    """
    part = waste.whole.part(Scope(team=team)).inside.segments
    rows = part.to_dicts()
    assert {row["user"] for row in rows} == TEAMS[team] - {"dan"}, "dan had none in this week"
    assert {row["state"] for row in rows}.isdisjoint(UNALLOCATED), "free time is of no team"
    listed = waste.recommendations(Scope(team=team)).listed
    assert listed
    told = json.dumps([*(record(DECISION_COLUMNS, each) for each in listed), *rows], default=str)
    assert named(OTHERS[team], told) == set()
    assert named(TEAMS[team], told)


@pytest.mark.parametrize("by", ["team", "user"])
def test_parts_of_teams_and_of_users_add_up_to_all_allocated_time(waste: Site, by: str) -> None:
    """docs/report.md, Editions: "of a GPU that several held, their share"; no hidden row is in a team's sums."""

    def ms_of(rows: pl.DataFrame) -> dict[str, float]:
        spent = rows.group_by("state").agg(((pl.col("end") - pl.col("time")) * pl.col("gpu_share")).sum())
        return dict.fromkeys(STATES, 0.0) | dict(spent.iter_rows())

    names = TEAMS if by == "team" else TEAMS["vision"] | TEAMS["speech"]
    whole = waste.whole.ledger.inside.segments
    parts = [ms_of(waste.whole.narrowed(waste.whole.ledger.inside, Scope(**{by: name})).segments) for name in names]
    for state, spent in ms_of(whole).items():
        expected = 0.0 if state in UNALLOCATED else spent
        assert sum(part[state] for part in parts) == pytest.approx(expected), state


def test_of_a_shared_gpu_each_user_has_the_share_of_their_process_time_and_no_word_of_the_other(waste: Site) -> None:
    """docs/how-a-number-is-made.md, Users: "split between them by the time of their processes"."""
    ledger = waste.whole.ledger.inside
    row = ledger.segments.filter(user="ann+bob").head(1)
    rows = row.with_columns(user_shares=pl.lit([0.75, 0.25]), job=pl.lit("slurm:7"), account=pl.lit("bob-lab"))
    one = type(ledger)(**{**vars(ledger), "segments": rows})
    money = waste.whole.money
    for scope, share in ((Scope(user="ann"), 0.75), (Scope(team="speech"), 0.25), (Scope(team="nobody"), None)):
        left = narrowed(one, scope, money.costs, waste.whole.inventory, money.owners).segments
        if share is None:
            assert left.is_empty()
            continue
        assert left["gpu_share"].to_list() == [share]
        assert left["user"].to_list() == ["ann" if scope.user else "bob"]
        assert left["job"].to_list() == [None], "the job may be the other's"


@pytest.mark.parametrize(
    ("user", "team", "beside_unknown", "scope", "hides"),
    [
        ("ann", "vision", False, Scope(team="vision"), False),
        ("ann+cy", "vision", False, Scope(team="vision"), False),
        ("ann+bob", "speech+vision", False, Scope(team="vision"), True),
        ("ann+zoe", "vision", False, Scope(team="vision"), True),
        ("bob", "speech", False, Scope(team="vision"), True),
        ("ann", "vision", True, Scope(team="vision"), True),
        ("ann", "vision", False, Scope(user="ann"), False),
        ("ann+cy", "vision", False, Scope(user="ann"), True),
        ("anna", "vision", False, Scope(user="ann"), True),
    ],
    ids=str,
)
def test_a_finding_that_is_about_others_as_well_is_left_out_of_an_edition_for_people(
    tmp_path: Path, user: str, team: str, *, beside_unknown: bool, scope: Scope, hides: bool
) -> None:
    """docs/report.md, Editions: "findings about GPUs that others hold as well are left out"."""
    (tmp_path / "owners.csv").write_text("kind,name,team\nuser,ann,vision\nuser,cy,vision\nuser,bob,speech\n")
    finding = found("held", user=user, team=team, beside_unknown=beside_unknown)
    assert names_others(finding, scope, Owners.load(str(tmp_path / "owners.csv"))) is hides


def test_only_planners_act_and_only_on_findings_of_their_part_with_their_name_in_the_record(
    lake: Lake, tmp_path: Path
) -> None:
    """docs/security.md: a viewer may not "act".

    A planner may "act on findings of their part, with their name in the record".
    """
    pages = held_lake(lake, tmp_path).pages()
    held = {each.gpus: each.finding_id for each in pages.view().report.review.findings if each.rule == "held"}
    own, others = held["a",], held["b",]

    def may(reader: Reader, *ids: str) -> bool:
        pages.who = reader
        try:
            done = act(pages.view(), Wish("note", ids, "x"), ms(0)).done
        except NotAllowedError:
            return False
        assert [(each.finding_id, each.actor) for each in done] == [(each, reader.actor) for each in ids]
        return True

    assert not may(VIEW_ALPHA, own)
    assert not may(Reader("vera", VIEWER), own)
    assert not may(PLAN_ALPHA, others)
    assert not may(PLAN_ALPHA, own, others), "on all of them or on none"
    assert snapshot(lake, "action") == {}
    assert may(PLAN_ALPHA, own)
    assert may(PLAN, own, others)
    assert may(Reader("root", ADMIN), others)
