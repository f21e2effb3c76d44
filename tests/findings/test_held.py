"""The rule `held`: who keeps GPUs without running a kernel, since when, how surely, and what to type."""

from __future__ import annotations

import shlex
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from analytics.workloads.commands import quote
from tests.findings.conftest import BUSY, DAY, FREE, HELD, HOUR, idle_findings, only
from tests.ledger.rows import claim, device, fill, ms, processes, samples

if TYPE_CHECKING:
    from tests.ledger.recording import Recording

LOOK = "ssh h1 nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv"


def held(gpu: str, first_s: float, last_s: float, **values: object) -> list[dict[str, Any]]:
    return samples(gpu, first_s, last_s, every_s=60, **HELD | values)


def busy(gpu: str, first_s: float, last_s: float) -> list[dict[str, Any]]:
    return samples(gpu, first_s, last_s, every_s=60, **BUSY)


def lists(gpu: str, first_s: int, last_s: int, **values: Any) -> list[dict[str, Any]]:
    return processes(gpu, *range(first_s, last_s, 60), every_s=60, **values)


def test_one_finding_per_host_and_holder(site: Recording) -> None:
    for host in ("h1", "h2"):
        rows = held(f"{host}a", 0, 2 * HOUR) + held(f"{host}b", 0, 3 * HOUR) + held(f"{host}c", 0, 3 * HOUR)
        users = lists(f"{host}a", 0, 2 * HOUR) + lists(f"{host}b", 0, 3 * HOUR)
        fill(site, rows, users + lists(f"{host}c", 0, 3 * HOUR, user="bob"), host=host)
    found = idle_findings(site)
    assert [(each.host, each.holder, each.gpus, each.gpu_hours) for each in found if each.host == "h1"] == [
        ("h1", "ann", ("h1a", "h1b"), 5.0),
        ("h1", "bob", ("h1c",), 3.0),
    ]
    assert len({each.finding_id for each in found}) == len(found) == 4
    assert [each.gpu_hours for each in found] == [5.0, 5.0, 3.0, 3.0]


def test_the_shortest_length_is_a_setting(site: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(site, held("a", 0, 1800), lists("a", 0, 1800))
    assert idle_findings(site) == ()
    monkeypatch.setenv("FALLOW_FINDINGS_HELD_MIN", "30min")
    assert len(idle_findings(site)) == 1


def test_the_thresholds_stand_beside_the_headline(site: Recording) -> None:
    """Stretches of 40, 90 and 150 minutes: 60 is the headline, 30 and 120 show what the choice does."""
    rows, at = [], 0
    for minutes in (40, 90, 150):
        rows += held("a", at, at + minutes * 60) + busy("a", at + minutes * 60, at + minutes * 60 + 600)
        at += minutes * 60 + 600
    found = only(fill(site, rows, lists("a", 0, at)))
    numbers = found.evidence.numbers
    shown = [numbers[f"held_gpu_hours_in_stretches_of_{minutes}_min"] for minutes in (30, 60, 120)]
    assert shown == [pytest.approx(280 / 60), pytest.approx(4.0), pytest.approx(2.5)]
    assert found.gpu_hours == pytest.approx(4.0)
    assert (numbers["stretch_count"], numbers["longest_h"]) == (2, 2.5)


def test_the_length_over_a_window_and_a_midnight_is_the_whole_length(site: Recording) -> None:
    fill(site, held("a", -1800, 1800), lists("a", -1800, 1800))
    found = only(site, since="2026-11-20")
    assert (found.gpu_hours, found.since_ms, found.evidence.since_ms) == (0.5, ms(-1800), ms(0))
    assert found.evidence.numbers["stretch_count"] == 1


def test_who_still_holds_it_at_the_end_can_give_it_back_and_who_has_ended_cannot(site: Recording) -> None:
    rows = held("a", 0, 3 * HOUR) + held("b", 0, 2 * HOUR) + busy("b", 2 * HOUR, 3 * HOUR)
    fill(site, rows, lists("a", 0, 3 * HOUR, user="ann") + lists("b", 0, 3 * HOUR, user="bob", pid=7))
    now, ended = idle_findings(site)
    assert (now.holder, now.reclaimable, now.evidence.numbers["gpus_held_now"]) == ("ann", True, 1)
    assert now.next_command == "ssh h1 kill 4711"
    assert (ended.holder, ended.reclaimable, ended.evidence.numbers["gpus_held_now"]) == ("bob", False, 0)
    assert ended.next_command == ""


def test_only_the_gpus_held_now_are_named_in_the_command(site: Recording) -> None:
    rows = held("a", 0, 3 * HOUR) + held("b", 0, 2 * HOUR) + samples("b", 2 * HOUR, 3 * HOUR, every_s=60, **FREE)
    fill(site, rows, lists("a", 0, 3 * HOUR, pid=1) + lists("b", 0, 2 * HOUR, pid=2))
    found = only(site)
    assert (found.gpus, found.next_command) == (("a", "b"), "ssh h1 kill 1")


@pytest.mark.parametrize(
    ("owner", "command"),
    [
        ({"slurm_job_id": "123", "pod": "p"}, "scancel 123"),
        ({"slurm_job_id": "1; rm -rf /"}, "scancel '1; rm -rf /'"),
        ({"slurm_job_id": "-f"}, "scancel -- -f"),
        ({"pod": "nb-0", "namespace": "lab"}, "kubectl delete pod -n lab nb-0"),
        ({"pod": "nb-0"}, "kubectl delete pod -n default nb-0"),
        ({"pod": "--all", "namespace": "$(x)"}, "kubectl delete pod -n '$(x)' -- --all"),
        ({}, "ssh h1 kill 4711"),
    ],
)
def test_the_next_command_is_that_of_whoever_runs_the_work(
    site: Recording, owner: dict[str, str], command: str
) -> None:
    fill(site, held("a", 0, 2 * HOUR), lists("a", 0, 2 * HOUR, **owner))
    assert only(site).next_command == command


@pytest.mark.parametrize(
    ("host", "shown"),
    [("gpu 1", "'gpu 1'"), ("-oProxyCommand=x", "-- -oProxyCommand=x"), ("ü", "'ü'"), ("a'b", """'a'"'"'b'""")],
)
def test_odd_host_names_are_one_harmless_word(site: Recording, host: str, shown: str) -> None:
    fill(site, held("a", 0, 2 * HOUR), lists("a", 0, 2 * HOUR), host=host)
    assert only(site).next_command == f"ssh {shown} kill 4711"


@pytest.mark.parametrize(
    "name", ["a\nb", "x\x1b[2J", "\u202etxt", "it's\n", "back\\slash\n", "tab\there", "`id`\n$(id)"]
)
def test_a_name_with_control_characters_is_one_line_and_the_same_name_to_bash(name: str) -> None:
    word = quote(name)
    assert word.isprintable()
    done = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert done.stdout.decode() == name


def test_several_jobs_of_one_holder_are_one_line(site: Recording) -> None:
    rows = held("a", 0, 2 * HOUR) + held("b", 0, 2 * HOUR)
    users = lists("a", 0, 2 * HOUR, slurm_job_id="9") + lists("b", 0, 2 * HOUR, slurm_job_id="10")
    found = only(fill(site, rows, users))
    assert found.next_command == "scancel 10 9"
    assert shlex.split(found.next_command) == ["scancel", "10", "9"]


def test_a_job_that_idles_on_two_hosts_can_be_ended(site: Recording) -> None:
    for host in ("h1", "h2"):
        fill(site, held(host, 0, 2 * HOUR), lists(host, 0, 2 * HOUR, slurm_job_id="5"), host=host)
    assert [each.next_command for each in idle_findings(site)] == ["scancel 5", "scancel 5"]


def test_processes_of_nobody_known_are_shown_not_ended_blindly(site: Recording) -> None:
    found = only(fill(site, held("a", 0, 2 * HOUR)))
    assert (found.holder, found.next_command) == (None, LOOK)
    assert "the user is not known" in found.confidence.failed


def test_a_claim_names_the_holder_where_processes_do_not(site: Recording) -> None:
    found = only(fill(site, held("a", 0, 2 * HOUR), claims=[claim("a", 0, None)]))
    assert (found.holder, found.evidence.numbers["holder_source"]) == ("bob", "claim")
    assert found.next_command == LOOK


def test_the_newest_stretch_says_how_the_holder_is_known(site: Recording) -> None:
    """First known by the claim, now by the process list: the command is that of the process list."""
    rows = held("a", 0, 4 * HOUR)
    fill(site, rows, lists("a", 2 * HOUR, 4 * HOUR, user="bob"), [claim("a", 0, None)])
    found = only(site)
    assert (found.holder, found.evidence.numbers["holder_source"], found.next_command) == (
        "bob", "process", "ssh h1 kill 4711",
    )  # fmt: skip


def test_energy_and_power_are_those_of_the_held_time_in_the_window(site: Recording) -> None:
    fill(site, held("a", -HOUR, HOUR, power_w=90.0) + busy("a", HOUR, 2 * HOUR), lists("a", -HOUR, HOUR))
    found = only(site, since="2026-11-20T00:30Z")
    assert found.energy_kwh == pytest.approx(0.045)
    assert found.evidence.numbers["power_mean_w"] == pytest.approx(90.0)
    assert only(site).energy_kwh == pytest.approx(0.18)


def test_unknown_power_is_no_energy_not_zero(site: Recording) -> None:
    found = only(fill(site, held("a", 0, HOUR), lists("a", 0, HOUR)))
    assert (found.energy_kwh, found.evidence.numbers["power_mean_w"]) == (None, None)


def test_simulated_gpus_are_called_so(site: Recording) -> None:
    fill(site, held("a", 0, HOUR), lists("a", 0, HOUR), devices=[device("a", source="simulated")])
    assert only(site).simulated


@pytest.mark.parametrize("rows", [busy("a", 0, 8 * HOUR), samples("a", 0, 6 * DAY, every_s=600, **FREE)])
def test_nothing_is_found_on_a_gpu_that_works_or_waits_for_work(site: Recording, rows: list[dict[str, Any]]) -> None:
    assert idle_findings(fill(site, rows)) == ()


def test_a_spell_over_midnight_is_one_and_ends_with_the_newest_lists(site: Recording) -> None:
    rows = held("a", -2 * HOUR, 60) + held("b", -2 * HOUR, 60)
    fill(site, rows, lists("a", -2 * HOUR, 30, pid=1) + lists("b", -2 * HOUR, 60, pid=2))
    found = only(site)
    assert (found.gpus, found.next_command) == (("a", "b"), "ssh h1 kill 1 2")
