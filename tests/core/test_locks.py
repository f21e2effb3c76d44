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
    """Save for what Python 3.10 alone needs: the agent runs on it, the extras do not."""
    only_3_10 = {(name, version) for name, version, marker in PIN.findall(text_of(smaller)) if "< '3.11'" in marker}
    assert pins(smaller) - only_3_10 <= pins(larger)


def test_the_agent_is_locked_for_every_python_that_it_runs_on() -> None:
    """arro3 and obstore have left Python 3.10: each has a version for it beside the newest."""
    for name in ("arro3-core", "arro3-io", "obstore"):
        markers = [marker for found, _, marker in PIN.findall(text_of("base")) if found == name]
        assert sorted(each.split()[-2] for each in markers) == ["<", ">="], name


def test_what_builds_the_package_is_locked_apart_from_what_runs_it() -> None:
    tools = {"hatchling", "editables"}
    assert tools <= {name for name, _ in pins("build")}
    assert not tools & {name for name, _ in pins("all")}
