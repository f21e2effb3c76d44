"""What the agent refuses to be told, each with the remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.settings import AgentSettings
from fallow import config
from fallow.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def settings(folder: Path, **changed: str) -> AgentSettings:
    """The settings from flags, over a /proc and a /sys that are there."""
    for name in ("proc", "sys"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "proc" / "stat").write_text("cpu 0\n")
    flags = {"lake.path": str(folder / "lake"), "agent.spool": str(folder / "spool"), "agent.host": "a"}
    flags |= {"agent.proc": str(folder / "proc"), "agent.sys": str(folder / "sys")}
    flags |= {f"agent.{name}": value for name, value in changed.items()}
    return AgentSettings.from_config(config.load(flags, None, {}))


def test_what_is_given_is_taken(tmp_path: Path) -> None:
    found = settings(tmp_path, pool="train west", spool_max="16MB")
    assert (found.proc, found.sys) == (str(tmp_path / "proc"), str(tmp_path / "sys"))
    assert (found.pool, found.spool_max_bytes) == ("train west", 16_000_000)


@pytest.mark.parametrize(
    ("name", "value", "words", "remedy"),
    [
        ("proc", "{folder}/sys", "it has no file stat", "host's /proc is mounted"),
        ("proc", "{folder}/nowhere", "it has no file stat", "host's /proc is mounted"),
        ("sys", "{folder}/proc/stat", "is not a folder", "host's /sys is mounted"),
        ("pool", "a\nb", "the pool 'a\\nb'", "printable"),
        ("spool_max", "15MB", "15000000 bytes", "16MB or more"),
        ("interval", "500ms", "too short", "1s or more"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(
    tmp_path: Path, name: str, value: str, words: str, remedy: str
) -> None:
    with pytest.raises(UsageError) as refused:
        settings(tmp_path, **{name: value.format(folder=tmp_path)})
    assert words in str(refused.value)
    assert remedy in (refused.value.hint or "")
