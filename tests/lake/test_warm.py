"""`fallow lake warm`: what the lake keeps of the rules' findings is what the rules find, or it is not used."""

from __future__ import annotations

import json
import shutil
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any

import pytest

from analytics.decide import review
from analytics.decide.kept_findings import FOLDER, WindowFindings
from analytics.decide.review import RuleFindings, find_in_window
from analytics.decide.written_values import read, written
from analytics.language.languages import language
from analytics.simulation import SimulatedFleet, write_fleet
from analytics.window import load_window_ledger
from analytics.workloads.packing import small_workloads
from fallow.errors import LakeError
from fallow.lake import Lake
from fallow.stores.local import LocalStore
from tests.dashboard.sites import inputs_of
from tests.in_process import run_in_process
from tests.lakes import made_lake
from tests.made_once import made_once

if TYPE_CHECKING:
    from collections.abc import Callable

FLEET = SimulatedFleet(gpus=12, days=16, interval_ms=600_000, seed=2, until_ms=1_763_596_800_000)
SINCE, UNTIL = "2025-11-12T00:00:00Z", "2025-11-19T00:00:00Z"


@pytest.fixture(scope="module")
def warmed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def fill(folder: Path) -> None:
        lake = made_lake(folder / "lake")
        write_fleet(lake, FLEET)
        found_in(lake)

    return made_once(tmp_path_factory.getbasetemp(), "warmed", fill) / "lake"


@pytest.fixture
def warm(warmed: Path, tmp_path: Path) -> Lake:
    """A lake that keeps the findings of the week from SINCE to UNTIL."""
    shutil.copytree(warmed, tmp_path / "lake")
    return made_lake(tmp_path / "lake")


def found_in(lake: Lake, since: str = SINCE) -> RuleFindings:
    inputs = inputs_of(lake, since, UNTIL)
    return find_in_window(inputs, load_window_ledger(inputs))


def content_of(found: RuleFindings) -> str:
    parts = (found.findings, found.fleet, dict(found.sensitivity))
    return json.dumps(written(parts))


def kept_file(lake: Lake) -> Path:
    [file] = Path(lake.root, FOLDER).iterdir()
    return file


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One entry for each time that the rules have run."""
    found: list[object] = []

    def counted(context: Any, make: Callable[[Any], WindowFindings] = review.window_findings) -> WindowFindings:
        found.append(context)
        return make(context)

    monkeypatch.setattr(review, "window_findings", counted)
    return found


@pytest.fixture(scope="module")
def made_before() -> list[WindowFindings]:
    """What the rules have found in the first test of `quick_runs`."""
    return []


@pytest.fixture
def quick_runs(monkeypatch: pytest.MonkeyPatch, made_before: list[WindowFindings]) -> list[object]:
    """As `runs`, for tests of whether the rules run: after the first time they find what they found then."""
    found: list[object] = []

    def counted(context: Any, make: Callable[[Any], WindowFindings] = review.window_findings) -> WindowFindings:
        found.append(context)
        if not made_before:
            made_before.append(make(context))
        return made_before[0]

    monkeypatch.setattr(review, "window_findings", counted)
    return found


def test_what_is_kept_is_what_the_rules_find_in_every_language(warm: Lake, runs: list[object]) -> None:
    kept = found_in(warm)
    assert not runs
    kept_file(warm).unlink()
    made = found_in(warm)
    assert len(runs) == 1
    assert len(made.findings) > 5
    assert kept.findings == made.findings
    assert content_of(kept) == content_of(made)
    assert small_workloads(kept.context).equals(small_workloads(made.context))
    french = language("fr", "Europe/Paris")
    for one, other in zip(kept.findings, made.findings, strict=True):
        said = [french.translate(each) for each in (one.sentence, *one.confidence.failed, *one.notes)]
        assert said == [french.translate(each) for each in (other.sentence, *other.confidence.failed, *other.notes)]


def test_last_weeks_findings_are_made_when_asked_for_and_kept_beside(
    warm: Lake, runs: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = found_in(warm).last_week
    assert made.findings
    assert made.reversals is not None
    assert sorted(file.name.count(".before.") for file in Path(warm.root, FOLDER).iterdir()) == [0, 1]
    monkeypatch.setattr(review, "run_rules", None)
    assert found_in(warm).last_week == made
    assert not runs


def test_windows_that_begin_before_the_first_row_share_their_findings(warm: Lake, runs: list[object]) -> None:
    found = [found_in(warm, since) for since in ("2025-11-01", "2025-09-01", "2025-11-05")]
    assert len(runs) == 2, "the lake has rows from 4 November on"
    assert content_of(found[0]) == content_of(found[1]) != content_of(found[2])


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data[:-20], id="cut"),
        pytest.param(lambda data: data[:-9] + b"!" + data[-8:], id="another byte"),
        pytest.param(lambda _: b"", id="empty"),
        pytest.param(lambda data: data.split(b"\n", 1)[0], id="head alone"),
        pytest.param(lambda _: b"\xff\n{}", id="noise"),
        pytest.param(lambda _: b'["content"]\n{}', id="another shape"),
    ],
)
def test_a_damaged_file_is_not_used_and_is_written_again(
    warm: Lake, quick_runs: list[object], damage: Callable[[bytes], bytes]
) -> None:
    file = kept_file(warm)
    file.write_bytes(damage(file.read_bytes()))
    made = found_in(warm)
    assert len(quick_runs) == 1
    assert content_of(found_in(warm)) == content_of(made)
    assert len(quick_runs) == 1


def test_findings_that_follow_from_something_else_are_not_used(
    warm: Lake, quick_runs: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("model,pool,hourly,currency,date,source\nNVIDIA H100 80GB HBM3,,2.5,USD,2025-01-02,order\n")
    for changed in ({"FALLOW_MONEY_PRICES": str(prices)}, {"FALLOW_FINDINGS_HELD_MIN": "45min"}):
        with monkeypatch.context() as patched:
            for name, value in changed.items():
                patched.setenv(name, value)
            found_in(warm)
    assert len(quick_runs) == 2
    monkeypatch.setattr("analytics.decide.kept_findings._code", lambda: "of another version")
    found_in(warm)
    assert len(quick_runs) == 3


def test_late_samples_of_the_window_make_the_findings_anew(warm: Lake, quick_runs: list[object]) -> None:
    [first, *_] = [file for file in warm.files("gpu") if file.date == "2025-11-13"]
    warm.delete(first)
    found_in(warm)
    assert len(quick_runs) == 1


def test_only_values_of_known_classes_are_kept_and_read() -> None:
    with pytest.raises(TypeError, match="a PosixPath is not kept"):
        written((1, {"at": PosixPath()}))
    with pytest.raises(LookupError):
        read({"Path": ["/etc"]})
    assert read(written((1.5, None, frozenset({"b", "a"}), {3: ("x",)}))) == (
        1.5,
        None,
        frozenset({"b", "a"}),
        {3: ("x",)},
    )


def test_the_verb_keeps_what_reports_and_pages_read(warm: Lake, runs: list[object]) -> None:
    done = run_in_process("lake", "warm", "--lake", warm.root, "--since", "7d", "--since", "all")
    assert (done.returncode, done.stdout) == (0, "the lake has the findings of 2 windows\n")
    made = len(runs)
    again = run_in_process("lake", "warm", "--lake", warm.root, "--since", "7d", "--json")
    assert [set(each) for each in json.loads(again.stdout)["windows"]] == [{"since_ms", "until_ms"}]
    assert run_in_process("report", "--lake", warm.root, "--since", "7d", "--json").returncode == 0
    assert len(runs) == made == 2, "the window of the decisions has the rows of all"


def test_a_lake_that_keeps_nothing_is_an_error_of_the_verb_alone(
    warm: Lake, monkeypatch: pytest.MonkeyPatch, quick_runs: list[object]
) -> None:
    kept_file(warm).unlink()
    put = LocalStore.put

    def refused(self: LocalStore, key: str, *rest: Any) -> None:
        if key.startswith(FOLDER):
            raise LakeError("no space is left")
        put(self, key, *rest)

    monkeypatch.setattr(LocalStore, "put", refused)
    done = run_in_process("lake", "warm", "--lake", warm.root, "--since", "24h")
    assert done.returncode == 1
    assert "did not keep the findings" in done.stderr
    assert found_in(warm).findings
    assert quick_runs


def test_the_oldest_kept_windows_make_room(
    warm: Lake, quick_runs: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analytics.decide.kept_findings._MOST_FILES", 2)
    for since in ("2025-11-08", "2025-11-09", "2025-11-10"):
        found_in(warm, since)
    assert len(quick_runs) == 3
    assert len(list(Path(warm.root, FOLDER).iterdir())) == 2
