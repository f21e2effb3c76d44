"""A user's edition shows nothing of others: in findings, data quality, remarks on prices or last week's outcome."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from analytics.decide.actions import record
from fallow.actors import Actor
from fallow.clock import to_ms
from fallow.lake import Lake
from tests.lakes import made_lake
from tests.ledger.rows import T0, allocation, device, fill, processes, samples
from tests.report.test_formats import faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.report.conftest import Outcome

IDLE = {"gpu_util_pct": 0.0, "process_count": 1, "power_w": 61.7}
DAY_S = 24 * 3600
OTHERS = ("zelda", "GPU-z", "the-other-job", "nobody-here", "speech")


def site_of(folder: Path, rows: list[Any], lists: list[Any], allocations: list[Any], *devices: dict[str, Any]) -> Path:
    """The settings of a lake with these rows, in which ann is of the team vision and zelda of speech."""
    lake = fill(made_lake(folder / "lake"), rows, lists, allocations, devices=list(devices))
    (folder / "owners.csv").write_text("kind,name,team\nuser,ann,vision\nuser,zelda,speech\nuser,nobody-here,speech\n")
    config = folder / "fallow.toml"
    config.write_text(f'[lake]\npath = "{lake.root}"\n[money]\nowners = "{folder}/owners.csv"\n')
    return config


def used(gpu: str, user: str, pid: int = 1) -> list[dict[str, Any]]:
    return processes(gpu, *range(0, 9 * DAY_S, 300), user=user, every_s=300, pid=pid)


def idle(*gpus: str) -> list[dict[str, Any]]:
    return [row for gpu in gpus for row in samples(gpu, 0, 9 * DAY_S, every_s=300, **IDLE)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("editions")


@pytest.fixture(scope="module")
def site(folder: Path) -> Path:
    """Ann and zelda each hold a GPU without a kernel for nine days; zelda's allocation also names a missing GPU."""
    lists = used("GPU-a", "ann") + used("GPU-z", "zelda")
    allocations = [allocation("GPU-z-gone", 0, 9 * DAY_S, "zelda", "the-other-job")]
    return site_of(folder, idle("GPU-a", "GPU-z"), lists, allocations, device("GPU-a"), device("GPU-z", pool="other"))


@pytest.fixture
def lake(site: Path) -> Lake:
    return Lake.at(str(site.parent / "lake"))


@pytest.fixture
def config(lake: Lake, site: Path) -> Iterator[Path]:
    """The settings of a site where nobody has done anything yet."""
    yield site
    shutil.rmtree(Path(lake.root, "action"), ignore_errors=True)


ANN, VISION = ("--user", "ann"), ("--team", "vision")
CASES = [("text", ANN), ("md", ANN), ("html", ANN), ("json", ANN), ("html", VISION), ("csv", VISION)]


@pytest.mark.parametrize(("form", "scope"), CASES)
def test_nothing_of_others(
    lake: Lake, config: Path, report: Callable[..., Outcome], form: str, scope: tuple[str, str]
) -> None:
    window = ("--since", "2026-11-27", "--until", "2026-11-28")
    own = report(lake, "--config", str(config), *window, *scope, "--format", form)
    assert own.code == 0, own.err
    assert "ann" in own.out
    assert [name for name in OTHERS if name in own.out] == []


def test_the_whole_names_everybody(lake: Lake, config: Path, report: Callable[..., Outcome]) -> None:
    whole = report(lake, "--config", str(config), "--format", "html").out
    assert all(name in whole for name in ("ann", "zelda", "vision", "speech", "GPU-z"))


def test_an_edition_counts_its_own_idle_hours(lake: Lake, config: Path, report: Callable[..., Outcome]) -> None:
    shown = [
        json.loads(report(lake, "--config", str(config), *scope, "--format", "json").out)["sensitivity"]["30min"]
        for scope in ((), ("--user", "ann"))
    ]
    assert shown[0] == 2 * shown[1] == 2 * 9 * 24


WORDS = "her results are still on that card"


FORMS = ("text", "md", "html")


def of_ann(lake: Lake, config: Path, report: Callable[..., Outcome]) -> list[str]:
    found = json.loads(report(lake, "--config", str(config), "--format", "json").out)["findings"]
    return [each["finding_id"] for each in found if each["user"] == "ann"]


@pytest.mark.usefixtures("low_is_listed")
@pytest.mark.parametrize("kind", ["snooze", "ack", "comment"])
def test_what_others_did_and_wrote_has_neither_their_name_nor_their_words(
    lake: Lake, config: Path, report: Callable[..., Outcome], kind: str
) -> None:
    anns = of_ann(lake, config, report)
    expires = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=30)
    expires_ms = to_ms(expires) if kind == "snooze" else None
    record(lake, kind, anns, Actor("zelda"), now_ms=T0 + DAY_S * 1000, reason=WORDS, expires_ms=expires_ms)
    for form in FORMS:
        flags = ("--config", str(config), "--format", form)
        whole, own = (one_line(report(lake, *flags, *scope).out) for scope in ((), ANN))
        assert WORDS in whole and "zelda" in whole  # noqa: PT018  # the lead is told
        assert anns[0] in own
        assert [each for each in (*OTHERS, WORDS) if each in own] == []
        if kind == "snooze":
            last, after = (
                f"{day.day} {day:%b %Y}" if form == "html" else f"{day:%Y-%m-%d}"
                for day in (expires - timedelta(days=1), expires)
            )
            assert f"until {last}" in own
            assert after not in own + whole


@pytest.mark.usefixtures("low_is_listed")
def test_what_somebody_wrote_about_their_own_stays_in_their_edition(
    lake: Lake, config: Path, report: Callable[..., Outcome]
) -> None:
    anns = of_ann(lake, config, report)
    record(lake, "snooze", anns, Actor("ann"), now_ms=T0 + DAY_S * 1000, reason="a demo in January")
    for form in FORMS:
        shown = one_line(report(lake, "--config", str(config), *ANN, "--format", form).out)
        assert "a demo in January (" in shown.replace("</bdi>", "")


def one_line(text: str) -> str:
    return " ".join(text.replace("\\", "").split())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ann and zelda, of two teams, hold one GPU together; ann has one of her own in each of two pools."""
    lists = used("GPU-a", "ann") + used("GPU-b", "ann") + used("GPU-s", "ann") + used("GPU-s", "zelda", 2)
    pools = {"GPU-a": "train", "GPU-b": "dev", "GPU-s": "dev"}
    devices = [device(gpu, pool=pool) for gpu, pool in pools.items()]
    return site_of(tmp_path_factory.mktemp("shared"), idle(*pools), lists, [], *devices)


@pytest.fixture
def shared_lake(shared: Path) -> Lake:
    return Lake.at(str(shared.parent / "lake"))


@pytest.mark.usefixtures("low_is_listed")
@pytest.mark.parametrize("scope", [("--user", "ann"), ("--team", "vision")])
def test_what_others_hold_too_is_neither_shown_nor_counted(
    shared_lake: Lake, shared: Path, report: Callable[..., Outcome], scope: tuple[str, str]
) -> None:
    flags = ("--config", str(shared), *scope)
    content = json.loads(report(shared_lake, *flags, "--format", "json").out)
    assert "zelda" not in json.dumps(content)
    assert "left_out" not in json.dumps(content)
    assert content["findings"]
    assert "findings about GPUs" not in report(shared_lake, *flags).out
    whole = json.loads(report(shared_lake, "--config", str(shared), "--format", "json").out)
    assert any("zelda" in (each["user"] or "") for each in whole["findings"])
    if "--team" in scope:
        assert [each["name"] for each in content["teams"]] == ["vision"]
        assert content["scope"]["team"] == "vision"
        assert faults(content) == []


def test_ranks_go_with_the_figures_they_were_given_for(
    shared_lake: Lake, shared: Path, report: Callable[..., Outcome]
) -> None:
    """Ann has 2.5 GPUs of three, and of the pool dev 1.5 of two; in an edition of it she ranks among its people."""

    def ranks(*scope: str) -> dict[str, tuple[float, int | None]]:
        content = json.loads(report(shared_lake, "--config", str(shared), *scope, "--format", "json").out)
        return {each["name"]: (each["allocated_gpu_hours"] / 216, each["rank_gpu_time"]) for each in content["users"]}

    assert ranks() == {"ann": (2.5, 1), "zelda": (0.5, 2)}
    assert ranks("--pool", "dev") == {"ann": (1.5, 1), "zelda": (0.5, 2)}
    assert ranks("--team", "speech") == {"zelda": (0.5, 2)}
    assert ranks("--pool", "train", "--team", "vision") == {"ann": (1.0, 1)}
