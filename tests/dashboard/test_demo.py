"""`fallow demo` as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dashboard.demo import HEADING, NO_DRIVER, own_gpus_text
from tests.conftest import RunFallow, run_python

pytestmark = pytest.mark.long

SMALL = ("demo", "--no-serve", "--gpus", "4", "--days", "2", "--out")
TABLES = ("intensity.csv", "labels.csv", "offers.csv", "owners.csv", "prices.csv", "requests.csv")
FILES = {"demo.json", "lake", "fallow.toml", *TABLES, "report.txt", "report.md", "report.html", "report.json"}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A demo of four GPUs, and what it printed; tests leave it as it is."""
    out = tmp_path_factory.mktemp("demo") / "out"
    return out, run_python("-m", "fallow", *SMALL, str(out))


def stamps(folder: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in (folder / "lake").rglob("*.parquet")}


def test_it_writes_everything_and_prints_the_result_in_ten_lines(
    demo: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    out, done = demo
    assert (done.returncode, done.stderr) == (0, "")
    assert {each.name for each in out.iterdir()} == FILES
    said = done.stdout.partition("is simulated.")[2]
    assert len(said.strip().splitlines()) <= 9, "the tenth is the address"
    ledger = json.loads((out / "report.json").read_text())["ledger"]
    hours, paid = ledger["gpu_hours"], ledger["money"]["paid"]
    unused = sum(hours[state] for state in ("free", "reserved", "held"))
    words = " ".join(said.split())
    assert f"{hours['total']:,.1f} GPU-hours of 4 simulated GPUs cost " in words
    assert f" cost {paid:,.2f} USD; {unused:,.1f} of them went unused. " in words
    assert "yearly figure" in words or "recommendation" in words
    assert f"The report is in {out}: report.txt, report.md, report.html, report.json." in words
    assert words.count(f" --config {out}/fallow.toml") == 3


def test_the_report_is_that_of_the_report_command(
    demo: tuple[Path, subprocess.CompletedProcess[str]], run_fallow: RunFallow
) -> None:
    out, _ = demo
    for name, form in (("report.txt", "text"), ("report.md", "md"), ("report.json", "json")):
        assert (
            run_fallow("report", "--config", str(out / "fallow.toml"), "--format", form, "--all").stdout
            == (out / name).read_text()
        )


def test_everything_is_marked_simulated_and_has_money_and_teams(
    demo: tuple[Path, subprocess.CompletedProcess[str]], run_fallow: RunFallow
) -> None:
    out, _ = demo
    assert all("SIMULATED FLEET" in (out / name).read_text() for name in ("report.txt", "report.md", "report.html"))
    report = json.loads((out / "report.json").read_text())
    assert report["simulated_gpus"] == report["ledger"]["gpus"] == 4
    assert all(finding["simulated"] for finding in report["findings"])
    done = run_fallow("ledger", "--config", str(out / "fallow.toml"), "--by", "team", "--json")
    assert (done.returncode, "prices.csv" in done.stderr) == (0, False), "every line is of some GPU"
    teams = {row["label"] for row in json.loads(done.stdout)["groups"]["rows"]}
    assert ("(nobody)" in teams, "(no team)" in teams) == (True, False)


def test_changed_prices_are_kept(tmp_path: Path, run_fallow: RunFallow) -> None:
    run_fallow(*SMALL, str(tmp_path))
    first = (tmp_path / "report.txt").read_text()
    tried = (tmp_path / "prices.csv").read_text().replace("29500", "99500")
    (tmp_path / "prices.csv").write_text(tried)
    (tmp_path / "owners.csv").unlink()
    second = run_fallow(*SMALL, str(tmp_path))
    assert (second.returncode, (tmp_path / "report.txt").read_text() != first) == (0, True)
    assert (tmp_path / "prices.csv").read_text() == tried
    assert (tmp_path / "owners.csv").exists()


def test_a_second_run_keeps_the_lake_and_prints_the_same(tmp_path: Path, run_fallow: RunFallow) -> None:
    first = run_fallow(*SMALL, str(tmp_path))
    before = stamps(tmp_path)
    second = run_fallow(*SMALL, str(tmp_path))
    assert before == stamps(tmp_path)
    assert second.stdout == first.stdout


def test_the_same_seed_gives_the_same_report_elsewhere(
    demo: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path, run_fallow: RunFallow
) -> None:
    out, _ = demo
    run_fallow(*SMALL, str(tmp_path))
    for name in ("report.txt", "report.md"):
        assert (tmp_path / name).read_bytes() == (out / name).read_bytes()
    here, there = (json.loads((folder / "report.json").read_text()) for folder in (tmp_path, out))
    assert here | {"lake": ""} == there | {"lake": ""}


def test_another_seed_makes_another_fleet_in_the_same_folder(tmp_path: Path, run_fallow: RunFallow) -> None:
    run_fallow(*SMALL, str(tmp_path))
    first = (tmp_path / "report.txt").read_text()
    assert run_fallow(*SMALL, str(tmp_path), "--seed", "2").returncode == 0
    assert (tmp_path / "report.txt").read_text() != first
    assert run_fallow(*SMALL, str(tmp_path)).returncode == 0
    assert (tmp_path / "report.txt").read_text() == first


def test_a_half_written_lake_is_made_again(tmp_path: Path, run_fallow: RunFallow) -> None:
    run_fallow(*SMALL, str(tmp_path))
    first = (tmp_path / "report.txt").read_text()
    record = tmp_path / "demo.json"
    record.write_text(record.read_text().replace('"complete": true', '"complete": false'))
    next((tmp_path / "lake" / "gpu").rglob("*.parquet")).unlink()
    assert run_fallow(*SMALL, str(tmp_path)).returncode == 0
    assert (tmp_path / "report.txt").read_text() == first


@pytest.mark.parametrize("content", [{"notes.txt": "mine"}, {"demo.json": "{}"}, {"demo.json": "[1]"},
                                     {"demo.json": "no"}, {"demo.json": '{"made_by": "somebody"}'}])  # fmt: skip
def test_a_folder_of_others_stays_unchanged(tmp_path: Path, run_fallow: RunFallow, content: dict[str, str]) -> None:
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    done = run_fallow(*SMALL, str(tmp_path))
    assert done.returncode == 1
    assert "did not create it" in done.stderr
    assert "give --out" in done.stderr
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == content


def test_a_file_in_the_place_of_the_folder_is_an_error(tmp_path: Path, run_fallow: RunFallow) -> None:
    (tmp_path / "out").write_text("mine")
    done = run_fallow(*SMALL, str(tmp_path / "out"))
    assert (done.returncode, done.stderr.count("\n"), (tmp_path / "out").read_text()) == (1, 1, "mine")


def test_rows_of_other_hosts_are_never_removed(tmp_path: Path, run_fallow: RunFallow) -> None:
    run_fallow(*SMALL, str(tmp_path))
    ours = next((tmp_path / "lake" / "gpu").rglob("*.parquet"))
    real = ours.parent.with_name("host=real01") / ours.name
    real.parent.mkdir()
    real.write_bytes(ours.read_bytes())
    done = run_fallow(*SMALL, str(tmp_path), "--seed", "2")
    assert done.returncode == 1
    assert "real01" in done.stderr
    assert real.exists()
    assert ours.exists()


@pytest.mark.parametrize("gpus", [1, 2, 3])
def test_the_smallest_fleets_work(tmp_path: Path, run_fallow: RunFallow, gpus: int) -> None:
    done = run_fallow("demo", "--no-serve", "--gpus", str(gpus), "--days", "1", "--out", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "report.json").read_text())["ledger"]["gpus"] == gpus


@pytest.mark.parametrize("flag", ["--gpus", "--days"])
def test_nothing_to_simulate_is_wrong_use(tmp_path: Path, run_fallow: RunFallow, flag: str) -> None:
    done = run_fallow("demo", "--no-serve", "--out", str(tmp_path), flag, "0")
    assert done.returncode == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("flags", "code"), [(("--no-serve",), 0), ((), 1)])
def test_without_dash_only_serving_fails(tmp_path: Path, flags: tuple[str, ...], code: int) -> None:
    arguments = ["demo", "--gpus", "1", "--days", "1", "--out", str(tmp_path), *flags]
    # None in sys.modules is what a package that is not installed looks like
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('dash', 'plotly', 'flask', 'werkzeug')));"
        f"from fallow.cli import main; sys.exit(main({arguments!r}))"
    )
    done = run_python("-c", program)
    assert done.returncode == code
    assert "is simulated." in done.stdout
    assert ("fallow[dashboard]" in done.stderr) == bool(code)
    assert {each.name for each in tmp_path.iterdir()} == FILES


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("print('gn001, one GPU')", f"{HEADING}\ngn001, one GPU\n"),
        ("import sys; sys.exit('fallow: there is no NVIDIA driver: ...')", NO_DRIVER),
        ("import sys; sys.exit('fallow: the driver hangs')", "could not be read"),
    ],
)
def test_the_machines_own_gpus_come_first_or_one_line(program: str, shown: str) -> None:
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as look:
        text = own_gpus_text(look)
    assert shown in text
    assert "below is simulated" in text


def test_a_fleet_beyond_reason_is_wrong_use(run_fallow: RunFallow, tmp_path: Path) -> None:
    finished = run_fallow("demo", "--no-serve", "--gpus", "100000", "--days", "10000", "--out", str(tmp_path / "d"))
    assert (finished.returncode, finished.stdout) == (2, "")
    assert "would write" in finished.stderr
    assert not (tmp_path / "d").exists()
