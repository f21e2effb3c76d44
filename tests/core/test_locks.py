"""The locks: every package pinned with its hashes, and each lock a superset of the smaller one at equal versions."""

from __future__ import annotations

import re

import pytest

from tests.conftest import REPOSITORY

PIN = re.compile(r"^([a-z0-9._-]+)==(\S+)( ; .+?)? \\$", re.MULTILINE)


def text_of(lock: str) -> str:
    return (REPOSITORY / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")


def pins(lock: str) -> set[tuple[str, str]]:
    """Name and version; a package has two versions where a newer one has left Python 3.11."""
    return {(name, version) for name, version, _ in PIN.findall(text_of(lock))}


@pytest.mark.parametrize("lock", ["base", "all", "build", "dev", "ziglang", "kube-tools", "audit"])
def test_every_package_is_pinned_with_hashes_and_names_no_index(lock: str) -> None:
    text = text_of(lock)
    entries = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(entries) == len(pins(lock)) > 0
    assert all(block.count("--hash=sha256:") >= 1 for block in re.split(r"\n(?=[a-z0-9])", text))
    assert "://" not in text
    assert not re.search(r"^-", text, re.MULTILINE)


@pytest.mark.parametrize(("smaller", "larger"), [("base", "all"), ("all", "dev"), ("build", "dev")])
def test_a_larger_lock_holds_the_smaller_one(smaller: str, larger: str) -> None:
    assert pins(smaller) <= pins(larger)


def test_what_builds_the_package_is_locked_apart_from_what_runs_it() -> None:
    tools = {"hatchling", "editables"}
    assert tools <= {name for name, _ in pins("build")}
    assert not tools & {name for name, _ in pins("all")}
