"""Documents in a folder: whole, under names that nobody can bend, and replaced by nothing but themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from analytics.delivery.channels import FolderChannel, safe
from analytics.delivery.model import FAILED, SENT, DeliveryOutcome, MessagePart
from analytics.delivery.settings import parse_targets
from fallow.stores import objects
from tests.delivery.hands import DELIVERY, example_message
from tests.ledger.rows import T0
from tests.publishing.conftest import object_store, s3  # noqa: F401  # fixtures

if TYPE_CHECKING:
    from pathlib import Path

    from tests.publishing.conftest import S3


def channel(folder: Path) -> FolderChannel:
    [target] = parse_targets([f"file:{folder}"])
    return FolderChannel(target)


def test_every_document_lies_below_its_week(tmp_path: Path) -> None:
    own = channel(tmp_path / "reports")
    assert own.send(example_message(), DELIVERY, T0) == DeliveryOutcome(SENT, "2 files")
    files = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {f"reports/2026-W46/{part.name}": part.data for part in example_message().attachments}
    assert own.send(example_message(), DELIVERY, T0).step == SENT
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("a file", encoding="utf-8")
    outcome = channel(tmp_path / "reports").send(example_message(), DELIVERY, T0)
    assert outcome.step == FAILED
    assert f"cannot make the folder {tmp_path}/reports: File exists" in outcome.reason


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "a\0b", "..", "", "x" * 300, "größe", ".hidden", "a b"])
def test_a_name_stays_in_its_folder_and_is_one_of_its_own(tmp_path: Path, name: str) -> None:
    changed = example_message(attachments=(MessagePart(name, "text/html", b"1"), MessagePart("a-b", "text/html", b"2")))
    assert channel(tmp_path / "reports").send(changed, DELIVERY, T0).step == SENT
    files = list((tmp_path / "reports" / "2026-W46").iterdir())
    assert {path.read_bytes() for path in files} == {b"1", b"2"}
    assert all(path.name.isascii() and len(path.name) <= 120 for path in files)
    assert sorted(path.parent.name for path in tmp_path.rglob("*") if path.is_file()) == ["2026-W46"] * 2


def test_a_plain_name_stays_as_it_is() -> None:
    assert safe("fallow-2026-W46-team=nlp-fr.html") == "fallow-2026-W46-team=nlp-fr.html"


def test_a_long_name_keeps_its_language_and_its_suffix(tmp_path: Path) -> None:
    names = [f"fallow-2026-W46-team={'x' * 200}-{code}.{suffix}" for code in ("en", "fr") for suffix in ("html", "pdf")]
    changed = example_message(attachments=tuple(MessagePart(name, "text/html", name.encode()) for name in names))
    assert channel(tmp_path / "reports").send(changed, DELIVERY, T0).step == SENT
    files = list((tmp_path / "reports" / "2026-W46").iterdir())
    assert {path.read_text()[-7:] for path in files if path.name.endswith("-en.html")} == {"en.html"}
    assert sorted(path.name[-7:].lstrip("-") for path in files) == ["en.html", "en.pdf", "fr.html", "fr.pdf"]
    assert all(len(path.name) <= 120 for path in files)


@pytest.mark.long
def test_an_object_store(s3: S3) -> None:  # noqa: F811  # the fixture
    [target] = parse_targets([s3.location])
    assert FolderChannel(target).send(example_message(), DELIVERY, T0) == DeliveryOutcome(SENT, "2 files")
    for part in example_message().attachments:
        assert objects.read(f"{s3.location}/2026-W46/{part.name}") == part.data


@pytest.mark.long
def test_an_object_store_that_is_away(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811  # the fixture
    s3.apply(monkeypatch, AWS_SECRET_ACCESS_KEY="hush-hush")  # noqa: S106  # a wrong one
    [target] = parse_targets([s3.location])
    outcome = FolderChannel(target).send(example_message(), DELIVERY, T0)
    assert outcome.step == FAILED
    assert "hush" not in outcome.reason
