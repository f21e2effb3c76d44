"""What the analytics commands do not import: pandas, where installed, takes longer to load than a kept ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conftest import REPOSITORY, run_python
from tests.ledger.test_batches import fill_host

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake

PANDAS = """
from pathlib import Path
Path(__file__).with_name("imported").touch()
raise ImportError
"""
VERBS = """
import sys
from fallow.cli import main
for verb in ("ledger", "ledger", "findings", "recommendations", "report"):
    assert main([verb, "--lake", sys.argv[1]]) == 0
"""


def test_no_analytics_command_imports_pandas(lake: Lake, tmp_path: Path) -> None:
    for host in ("h1", "h2"):
        fill_host(lake, host)
    (tmp_path / "pandas.py").write_text(PANDAS)
    done = run_python("-c", VERBS, lake.root, PYTHONPATH=f"{tmp_path}:{REPOSITORY}")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "imported").exists()
