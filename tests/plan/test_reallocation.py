"""The proposed reallocation: as good as an exhaustive search, and it breaks nothing; and the file of requests."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.cards import is_called
from analytics.money.owners import Owner, Owners
from analytics.money.requests_file import GpuRequest, load_requests
from analytics.plan.endings import Chance
from analytics.plan.reallocation import Reallocation, TeamBalance, propose
from analytics.tables.plan_endings import chance_cell
from analytics.tables.plan_reallocation import proposal_table
from fallow.errors import ConfigError
from tests.plan.reallocations import A100, H100, answer_of, asks, best_score, broken, day, fleet, freed, host, score

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from analytics.plan.supply import FleetSupply


def is_best(supply: FleetSupply, requests: Sequence[GpuRequest], quotas: Mapping[str, float]) -> Reallocation:
    """The proposal, which is as good as the best of all answers."""
    found = propose(supply, requests, quotas)
    assert broken(supply, requests, found, quotas) == []
    assert found.is_proven
    assert score(supply, requests, answer_of(supply, requests, found)) == best_score(supply, requests, quotas)
    return found


def test_three_projects_end_and_four_teams_ask() -> None:
    """Atlas frees a host on day 2, survey half of one on day 5, dubbing two GPUs now; speech has twice its quota."""
    first, second, third = host("h1", 4), host("h2", 4), host("h3", 4, A100)
    supply = fleet(
        [first, second, third],
        [freed(first, 4, 2, "vision", 0.9), freed(second, 2, 5, "maps"), freed(third, 2, 0, "speech", source="idle")],
        {"speech": 6, "vision": 4, "maps": 2},
    )
    requests = [
        asks("maps", 4, priority=1),
        asks("speech", 1, priority=1),
        asks("sales", 2, 6, 9, priority=2, card=None, memory=80),
        asks("vision", 2, card="A100", priority=2),
    ]
    found = is_best(supply, requests, {"speech": 3, "maps": 8})
    served = [(each.request.team, each.start, each.grants[0].host, each.given) for each in found.served]
    assert served == [("maps", day(2), "h1", 4), ("sales", day(6), "h2", 2), ("vision", day(0), "h3", 2)]
    assert [(each.request.team, each.reason) for each in found.unserved] == [("speech", "quota")]
    balances = {"maps": (4, 2, 0), "sales": (2, 0, 0), "speech": (0, 2, 0), "vision": (2, 4, 0)}
    assert found.balances == tuple(TeamBalance(team, *counts) for team, counts in balances.items())
    assert found.left == ()


@pytest.mark.parametrize("seed", range(25))
def test_no_answer_is_better(seed: int) -> None:
    is_best(*_random_case(random.Random(seed), most=3))  # noqa: S311 - no secret


def _random_case(rng: random.Random, most: int) -> tuple[FleetSupply, list[GpuRequest], dict[str, float]]:
    hosts, supplies = [], []
    for number in range(rng.randint(1, most)):
        model, islands = rng.choice((H100, A100)), rng.choice(({}, {"a": 2, "b": 2}))
        hosts.append(host(f"h{number}", 4, model, islands))
        for island in islands or (None,):
            for gpus in rng.choice(([2], [1, 1], [2])) if islands else rng.choice(([4], [1, 2], [2, 2], [3])):
                source = rng.choice(("idle", "fading", "project_end"))
                after = 0 if source == "idle" else rng.randint(1, 4)
                chance = rng.choice((0.5, 0.8, 0.9)) if source == "fading" else None
                team = rng.choice(("a", "b", None))
                ends = rng.choice((None, 3)) if source == "idle" else None
                supplies.append(freed(hosts[-1], gpus, after, team, chance, source=source, island=island, ends=ends))
    requests = [_random_request(rng) for _ in range(rng.randint(1, most))]
    allocated = {team: float(sum(len(each.gpus) for each in supplies if each.team == team)) for team in "ab"}
    quotas = {team: float(rng.randint(2, 8)) for team in "ab" if rng.random() < 0.7}
    return fleet(hosts, supplies, allocated), requests, quotas


def _random_request(rng: random.Random) -> GpuRequest:
    card, memory = rng.choice((("H100", None), ("A100", None), (None, 40.0), (None, 80.0)))
    team, gpus, first, last = rng.choice("ab"), rng.choice((1, 1, 2, 2, 3, 4, 8)), rng.randint(-1, 2), rng.randint(2, 5)
    return asks(team, gpus, first, last, priority=rng.randint(1, 2), card=card, memory=memory)


@pytest.mark.hypothesis
@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_nothing_is_ever_broken(rng: random.Random) -> None:
    supply, requests, quotas = _random_case(rng, most=8)
    assert broken(supply, requests, propose(supply, requests, quotas), quotas) == []


def test_one_reason_for_each_that_gets_nothing() -> None:
    first, second = host("h1", 4), host("h2", 4)
    supply = fleet([first, second], [freed(first, 2, 0, "a", source="idle"), freed(second, 2, 3)], {"b": 3})
    reasons = {
        asks("a", 1, -5, -1): ("over", 2),
        asks("a", 1, card="A100"): ("no_card", 0),
        asks("a", 4, 0, 3): ("too_few", 2),
        asks("a", 4): ("no_block", 4),
        asks("b", 2): ("quota", 4),
        asks("a", 2, 0, 3, priority=2): ("others", 2),
    }
    found = is_best(supply, [asks("a", 2, 0, 3, priority=1), *reasons], {"b": 4, "a": 9})
    assert {each.request: (each.reason, each.free) for each in found.unserved} == reasons


def test_a_team_with_a_full_quota_may_use_its_own_idle_ones() -> None:
    place = host("h1", 4)
    supply = fleet([place], [freed(place, 2, 0, "a", source="idle"), freed(place, 2, 0, None, source="idle")], {"a": 6})
    found = is_best(supply, [asks("a", 3)], {"a": 4})
    assert found.unserved[0].reason == "quota"
    found = is_best(supply, [asks("a", 2)], {"a": 6})
    assert found.balances == (TeamBalance("a", 0, 0, 2),)


def test_without_supply_or_requests_there_is_nothing_to_solve() -> None:
    place = host("h1", 4)
    assert [each.reason for each in is_best(fleet([place], []), [asks("a", 1)], {}).unserved] == ["too_few"]
    assert len(is_best(fleet([place], [freed(place, 2, 1)]), [], {"a": 1}).left) == 1


def test_what_one_team_may_know() -> None:
    place = host("h1", 4)
    supply = fleet([place], [freed(place, 2, 1, "a"), freed(place, 2, 1, "b")])
    found = propose(supply, [asks("b", 4), asks("a", 3)], {})
    own = found.of_team("b")
    assert {grant.team for grant in own.served[0].grants} == {None, "b"}
    assert (own.unserved, own.left, own.without_quota, own.of_one_team) == ((), (), ("b",), True)


def test_a_quota_that_a_team_fills_itself_is_the_reason() -> None:
    place = host("h1", 4)
    supply = fleet([place], [freed(place, 4, 0, source="idle")])
    found = is_best(supply, [asks("a", 2, priority=1), asks("a", 2, priority=2)], {"a": 3})
    assert [(each.request.priority, each.reason) for each in found.unserved] == [(2, "quota")]


def test_in_a_part_of_the_fleet_nobody_is_refused() -> None:
    place, other = host("h1", 2), host("h2", 2, A100)
    supply = fleet([place, other], [freed(place, 2, 0, source="idle"), freed(other, 2, 0, source="idle")])
    found = is_best(supply, [asks("a", 2), asks("b", 8)], {})
    assert found.of_gpus(None, None) == found
    part = found.of_gpus("train", A100)
    assert (part.served, part.unserved, [each.host for each in part.left]) == ((), (), ["h2"])
    section = proposal_table(part)
    assert section is not None
    assert str(section.headline) == "0 requests get GPUs of this part of the fleet."


def test_nothing_is_called_sure() -> None:
    assert str(chance_cell(Chance(0.996, 1.0, 1.0))) == str(chance_cell(Chance(None, 0.999, None))) == "99 %"


MODELS = ("NVIDIA H100 80GB HBM3",)
OWNERS = Owners({("user", name): Owner("user", name, team) for name, team in (("ann", "vision"), ("bob", "sales"))})


def load(folder: Path, *lines: str, owners: Owners = OWNERS) -> tuple[GpuRequest, ...]:
    file = folder / "requests.csv"
    file.write_text("\n".join(lines), encoding="utf-8")
    return load_requests(str(file), owners, MODELS)


def test_a_table_of_a_site(tmp_path: Path) -> None:
    """With semicolons and decimal commas, and columns of the site's own."""
    lines = ("team;gpus;memory_gib;from;until;priority;ticket", "sales;2;79,5;2026-11-20;2026-11-20;1;#7")
    (found,) = load(tmp_path, *lines)
    assert found == GpuRequest(2, None, "sales", 2, None, 79.5, day(0), day(0), 1)
    assert [found.takes(MODELS[0], memory) for memory in (80, 79, None)] == [True, False, False]
    lines = ("team,gpus,card,from,until,priority", "any,1,A100,2026-11-20,2026-11-21,3")
    assert load(tmp_path, *lines, owners=Owners.none())


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("maps,2,H100,,DAYS,1", "team 'maps' is not in the owners table", "it knows sales, vision"),
        ("sales,2,H999,,DAYS,1", "card 'H999' is not known", "known are NVIDIA H100 80GB HBM3, "),
        ("sales,2,,,DAYS,1", "neither card nor memory_gib is given", "say which card"),
        ("sales,0,H100,,DAYS,1", "gpus '0' is not a number from 1", "correct that line"),
        ("sales,1.5,H100,,DAYS,1", "gpus '1.5' is not a whole number", "write 1 or more"),
        ("sales,2,H100,,2026-11-20,2026-11-10,1", "until 2026-11-10 is before from 2026-11-20", "until is the"),
        ("sales,2,H100,,,2026-11-10,1", "from is empty", "write a day"),
    ],
)
def test_a_line_that_cannot_be_used_is_called(tmp_path: Path, line: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=rf"requests\.csv, line 2: {message}") as caught:
        load(tmp_path, "team,gpus,card,memory_gib,from,until,priority", line.replace("DAYS", "2026-11-20,2026-12-10"))
    assert (caught.value.hint or "").startswith(hint)


def test_words_that_say_which_card() -> None:
    own, others = ("H100", "h100 80gb", "H100 SXM", "nvidia_h100_80gb_hbm3"), ("H100 NVL", "H200", "A100")
    assert [name for name in (*own, *others) if is_called(name, MODELS[0])] == list(own)
