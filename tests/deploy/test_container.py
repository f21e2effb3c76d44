"""The container file: what can be told without building it."""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fallow import __version__

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "container" / "Containerfile"


def instructions() -> list[tuple[str, str]]:
    """Every instruction and its argument, continued lines joined, comments left out."""
    text = re.sub(r"^\s*#.*\n", "", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE).replace("\\\n", " ")
    parts = (line.split(None, 1) for line in text.splitlines() if line.strip())
    return [(name, " ".join(argument.split())) for name, argument in parts]


def last_stage() -> dict[str, str]:
    """The last value of each instruction of the image that is run."""
    found = instructions()
    start = max(number for number, (name, _) in enumerate(found) if name == "FROM")
    return dict(found[start:])


def test_how_it_runs() -> None:
    stage = last_stage()
    user, _, group = stage["USER"].partition(":")
    assert min(int(user), int(group)) > 0, "not root, and in numbers"
    command = json.loads(stage["ENTRYPOINT"]) + json.loads(stage["CMD"])
    assert command == ["/opt/fallow/bin/fallow", "agent", "run"], "without a shell in between"
    assert stage["STOPSIGNAL"] == "SIGTERM"
    variables = dict(word.split("=", 1) for word in stage["ENV"].split())
    asked = (variables["NVIDIA_VISIBLE_DEVICES"], variables["NVIDIA_DRIVER_CAPABILITIES"])
    assert asked == ("all", "utility"), "the driver for monitoring alone"
    assert ("ARG", f"VERSION={__version__}") in instructions()
    labels = {word.partition("=")[0] for word in re.findall(r'[\w.]+="', stage["LABEL"])}
    wanted = ("title", "description", "version", "licenses", "base.name")
    assert labels == {f"org.opencontainers.image.{name}" for name in wanted}
    # the environment that is copied over points at its interpreter
    images = [argument.split()[0] for name, argument in instructions() if name == "FROM"]
    assert images == ["${PYTHON}"] * 2


def test_nothing_is_fetched_but_pinned_packages() -> None:
    found = instructions()
    assert "ADD" not in {name for name, _ in found}
    [run] = [argument for name, argument in found if name == "RUN"]
    installs = [part for part in run.split(" && ") if " pip " in part]
    assert len(installs) == 2
    assert "install --no-cache-dir --require-hashes --only-binary :all: -r /tmp/lock.txt" in installs[0]
    assert "--no-index --no-deps" in installs[1]
    assert not re.search(r"\b(curl|wget|apt-get|git)\b", run)


def test_what_it_copies_is_there_and_the_build_may_see_it() -> None:
    ignored = (FILE.parent / "Containerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored
    seen = {line[1:] for line in ignored if line.startswith("!")}
    sources = {argument.split()[0] for name, argument in instructions() if name == "COPY" and "--from" not in argument}
    assert {each.replace("${LOCK}", lock) for each in sources for lock in ("base", "all")} == seen
    assert all((ROOT / each).exists() for each in seen if each.endswith(".txt"))
    assert ("ARG", "LOCK=base") in instructions()
    assert fnmatch.fnmatch("dist/fallow-0.1.0-py3-none-any.whl", "dist/fallow-*.whl")
    assert "dist/fallow-*.whl" in sources


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_the_linter_finds_nothing() -> None:
    found = subprocess.run(["hadolint", FILE], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
