"""The recipe for a rule in docs/contributing.md, executed: one file and one entry reach every place people read."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.findings.scenarios.builder import H100, Fleet

if TYPE_CHECKING:
    from fallow.lake import Lake

ROOT = Path(__file__).parents[2]

ASKING = """
import argparse, json, sys
from pathlib import Path

from analytics.commands.report_nudge import add_nudge_arguments, run_nudge
from dashboard.app import build_app
from dashboard.source import LakeSource
from tests.dashboard.conftest import inputs_of, page, words
from tests.delivery.hands import Hands
from tests.findings.scenarios.builder import T_END
from tests.in_process import run_in_process

lake, folder = sys.argv[1:]
shown = {
    "findings": run_in_process("findings", "--lake", lake, "--json").stdout,
    "recommendations": run_in_process("recommendations", "--lake", lake, "--json").stdout,
    "report": run_in_process("report", "--lake", lake, "--format", "text", "--all").stdout,
}
client = build_app(LakeSource(lambda: inputs_of(argparse.Namespace(root=lake)))).server.test_client()
shown["page"] = words(page(client, "/recommendations", "?span=all"))
parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
add_nudge_arguments(parser)
shared = {"config": None, "lang": None, "timezone": None, "user": None}
flags = parser.parse_args(["--lake", lake, "--out", folder, "--as", "zoe"])
run_nudge(argparse.Namespace(**shared | vars(flags)), Hands(T_END + 12 * 3600 * 1000))
shown["mail"] = " ".join(each.read_text() for each in Path(folder).glob("*.txt"))
print("SHOWN" + json.dumps(shown))
"""


def scratch_copy(folder: Path) -> None:
    """The analytics with the documented rule: one new file, one entry in the list."""
    recipe = re.search(
        r"`analytics/rules/parked.py`.*?```python\n(.*?)```", (ROOT / "docs/contributing.md").read_text(), re.DOTALL
    )
    assert recipe is not None
    rules = folder / "analytics" / "rules"
    rules.mkdir(parents=True)
    for source, copy in ((ROOT / "analytics", rules.parent), (ROOT / "analytics" / "rules", rules)):
        for each in source.iterdir():
            if each.name not in ("rules", "__pycache__"):
                (copy / each.name).symlink_to(each)
    (rules / "parked.py").write_text(recipe[1])
    entry = rules / "__init__.py"
    listed = entry.read_text().replace(
        "RULES = (", "from analytics.rules.parked import PARKED\n\nRULES = (\n    PARKED,", 1
    )
    entry.unlink()
    entry.write_text(listed)


@pytest.mark.long
def test_a_rule_made_as_the_docs_say_is_found_recommended_shown_and_mailed(lake: Lake, tmp_path: Path) -> None:
    fleet = Fleet(days=16, interval_s=1800)
    (gpu,) = fleet.host("h1", H100, 1)
    fleet.run(gpu, "ann", fleet.between(-13))
    fleet.write(lake)
    scratch_copy(tmp_path)
    (tmp_path / "contacts.csv").write_text("kind,name,email\nuser,ann,ann@example.org\n")
    (tmp_path / "mails").mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tmp_path}:{ROOT}",
        "FALLOW_REPORT_CONTACTS": str(tmp_path / "contacts.csv"),
    }
    command = [sys.executable, "-c", ASKING, lake.root, str(tmp_path / "mails")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout.partition("SHOWN")[2])
    (finding,) = (each for each in json.loads(shown["findings"])["findings"] if each["rule"] == "parked")
    assert (finding["user"], finding["reclaimable"]) == ("ann", True)
    assert finding["finding_id"] in shown["recommendations"]
    assert f"R{finding['finding_id'][1:]}" in shown["recommendations"]
    assert "parked by its user" in shown["report"]
    assert f"R{finding['finding_id'][1:]}" in shown["page"]
    assert "parked by its user" in shown["mail"]
