"""The requests file: what it takes, and each mistake in one sentence with its line."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest

from analytics.money.cards import is_called
from analytics.money.owners import Owner, Owners
from analytics.money.requests_file import GpuRequest, load_requests
from fallow.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

MODELS = ("NVIDIA H100 80GB HBM3",)
OWNERS = Owners({("user", name): Owner("user", name, team) for name, team in (("ann", "vision"), ("bob", "sales"))})


def load(folder: Path, *lines: str, owners: Owners = OWNERS) -> tuple[GpuRequest, ...]:
    file = folder / "requests.csv"
    file.write_text("\n".join(lines), encoding="utf-8")
    return load_requests(str(file), owners, MODELS)


def test_a_table_of_a_site(tmp_path: Path) -> None:
    """With semicolons and decimal commas, and columns of the site's own."""
    (found,) = load(
        tmp_path, "team;gpus;memory_gib;from;until;priority;ticket", "sales;2;79,5;2026-11-20;2026-11-20;1;#7"
    )
    assert found == GpuRequest(2, None, "sales", 2, None, 79.5, date(2026, 11, 20), date(2026, 11, 20), 1)
    assert [found.takes(MODELS[0], memory) for memory in (80, 79, None)] == [True, False, False]
    assert load(
        tmp_path, "team,gpus,card,from,until,priority", "any,1,A100,2026-11-20,2026-11-21,3", owners=Owners.none()
    )


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("maps,2,H100,,2026-11-20,2026-12-10,1", "team 'maps' is not in the owners table", "it knows sales, vision"),
        ("sales,2,H999,,2026-11-20,2026-12-10,1", "card 'H999' is not known", "known are NVIDIA H100 80GB HBM3, "),
        ("sales,2,,,2026-11-20,2026-12-10,1", "neither card nor memory_gib is given", "say which card"),
        ("sales,0,H100,,2026-11-20,2026-12-10,1", "gpus '0' is not a number from 1", "correct that line"),
        ("sales,1.5,H100,,2026-11-20,2026-12-10,1", "gpus '1.5' is not a whole number", "write 1 or more"),
        ("sales,2,H100,,2026-11-20,2026-11-10,1", "until 2026-11-10 is before from 2026-11-20", "until is the last day"),
        ("sales,2,H100,,,2026-11-10,1", "from is empty", "write a day"),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_used_is_called(tmp_path: Path, line: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=rf"requests\.csv, line 2: {message}") as caught:
        load(tmp_path, "team,gpus,card,memory_gib,from,until,priority", line)
    assert (caught.value.hint or "").startswith(hint)


def test_words_that_say_which_card() -> None:
    names = ("H100", "h100 80gb", "H100 SXM", "nvidia_h100_80gb_hbm3", "H100 NVL", "H200", "A100")
    assert [name for name in names if is_called(name, MODELS[0])] == list(names[:4])
