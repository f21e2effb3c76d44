"""An ordinary user for whom folders in PATH, HOME and the settings are closed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.conftest import run_python

_AS_NOBODY = """
import os, sys
from pathlib import Path
from agent.doctor.case import Case, Options
from agent.doctor.checks import CHECKS
from agent.doctor.host import Host
from agent.doctor.installed import read_kernel
from agent.doctor.look import DriverLook
from agent.doctor.store_probe import main
root = Path(sys.argv[1])
closed = root / "closed"
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    (closed / "x").stat()
except PermissionError:
    print("closed")
driver = DriverLook("ok", driver_version="580.95.05", gpu_count=0)
for host in (Host(root=root), Host(root=closed, dev=closed, proc=closed, sys=closed)):
    case = Case(host, read_kernel(host), driver, Options(spool=f"{closed}/spool", pythons=(f"{closed}/python",)))
    for check in CHECKS:
        list(check.look(case))
sys.argv[1:] = [f"{closed}/lake"]
main()
"""


def test_a_closed_folder_breaks_no_check_for_an_ordinary_user() -> None:
    # not below tmp_path, which is closed to other users as a whole
    with tempfile.TemporaryDirectory() as folder:
        closed = Path(folder, "closed")
        Path(folder).chmod(0o755)
        closed.mkdir(mode=0o000)
        done = run_python(
            "-c", _AS_NOBODY, folder, PATH=f"{closed}:{os.environ['PATH']}", HOME=str(closed),
            VIRTUAL_ENV=str(closed / "venv"), LD_LIBRARY_PATH=str(closed), CUDA_HOME=str(closed),
        )  # fmt: skip
        closed.chmod(0o700)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("closed\n")
