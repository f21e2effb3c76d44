"""Builds the wheel and tries it as a user gets it: in an environment of its own, outside the checkout.

`make test-all` runs it last. It ends with 1 and says what is wrong at the first check that fails.
"""

from __future__ import annotations

import ctypes.util
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from fallow import parquet, schema  # noqa: E402  # needs the line above
from fallow.lake import Lake  # noqa: E402
from tests.fakes.nvml import Gpu, Process, Scenario, library_folder, ms_ago  # noqa: E402

PACKAGES = ("agent", "analytics", "dashboard", "fallow")
LIBRARY = "libnvidia-ml.so.1"
UUIDS = ("GPU-aaaaaaaa-0000-4000-8000-000000000001", "GPU-aaaaaaaa-0000-4000-8000-000000000002")


@dataclass(frozen=True)
class Installed:
    """The wheel in an environment of its own, and an empty folder to work in."""

    environment: Path
    work: Path

    def run(self, program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs a program of that environment with nothing of the checkout in reach."""
        hidden = ("FALLOW_", "PYTHON", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        return subprocess.run(
            [self.environment / "bin" / program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            cwd=self.work,
            env=kept | variables,
        )


def expect(
    condition: bool,  # noqa: FBT001  # reads like assert
    what: str,
    done: subprocess.CompletedProcess[str] | None = None,
) -> None:
    """Ends the check where the condition does not hold."""
    if not condition:
        printed = "" if done is None else f"\nexit code {done.returncode}\n{done.stdout}{done.stderr}"
        sys.exit(f"wheel check: {what}{printed}")


def expect_one_sentence(done: subprocess.CompletedProcess[str], code: int, words: str) -> None:
    """The command failed as a command should: exit code, one line, no traceback."""
    told = done.stderr.startswith("fallow: ") and done.stderr.count("\n") == 1 and words in done.stderr
    expect(done.returncode == code and told, f"expected exit code {code} and one sentence with '{words}'", done)


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist that it was built from."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    expect(done.returncode == 0, "the build failed", done)
    [wheel] = folder.glob("*.whl")
    [sdist] = folder.glob("*.tar.gz")
    return wheel, sdist


def code_files() -> set[str]:
    """Every file of the four packages in the checkout."""
    found = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    return {path.relative_to(ROOT).as_posix() for path in found if "__pycache__" not in path.parts}


def check_contents(wheel: Path, sdist: Path) -> None:
    """The wheel holds the four packages, the licence and nothing else; the sdist at least what the wheel is made of."""
    names = set(zipfile.ZipFile(wheel).namelist())
    code = {name for name in names if ".dist-info/" not in name}
    differing = sorted(code ^ code_files())
    expect(not differing, f"wheel and checkout differ in {', '.join(differing)}")
    expect(any(name.endswith(".dist-info/licenses/LICENSE") for name in names), "the wheel lacks the licence")
    bills = {Path(name).name for name in names if ".dist-info/sboms/" in name}
    expect(bills == {"fallow-base.cdx.json", "fallow-all.cdx.json"}, f"the wheel's bills of materials are {bills}")
    with tarfile.open(sdist) as archive:
        members = {name.partition("/")[2] for name in archive.getnames()}
    needed = code_files() | {"LICENSE", "README.md", "pyproject.toml", "deploy/fallow.toml", "requirements/base.txt"}
    expect(members >= needed, f"the sdist lacks {', '.join(sorted(needed - members))}")


def install(wheel: Path, folder: Path) -> Installed:
    """The wheel and the base lock, and nothing more, in a new environment."""
    venv.create(folder / "environment", with_pip=True)
    work = folder / "work"
    work.mkdir()
    installed = Installed(folder / "environment", work)
    pip = ("install", "--quiet", "--disable-pip-version-check", "--no-input")
    for arguments in (
        ("--require-hashes", "--only-binary", ":all:", "-r", f"{ROOT}/requirements/base.txt"),
        ("--no-deps", str(wheel)),
    ):
        done = installed.run("pip", *pip, *arguments)
        expect(done.returncode == 0, f"pip install {' '.join(arguments)} failed", done)
    done = installed.run("pip", "check")
    expect(done.returncode == 0, "what the wheel asks for is not what the base lock holds", done)
    return installed


def check_commands(installed: Installed) -> None:
    """What needs neither a driver nor an extra."""
    done = installed.run("fallow", "--version")
    expect(done.returncode == 0 and done.stdout.startswith("fallow "), "fallow --version", done)
    done = installed.run("fallow", "schema", "--json")
    expect(done.returncode == 0 and len(json.loads(done.stdout)["tables"]) > 5, "fallow schema --json", done)
    done = installed.run("python", "-c", "import fallow; print(fallow.__file__)")
    expect(done.stdout.startswith(str(installed.environment)), "the checkout is in reach", done)


def check_without_a_driver(installed: Installed) -> None:
    """No driver is one sentence. Where this machine has one, a library that cannot be loaded stands for none."""
    masked: dict[str, str] = {}
    if ctypes.util.find_library("nvidia-ml") is not None:
        (installed.work / LIBRARY).touch()
        masked["LD_LIBRARY_PATH"] = str(installed.work)
    expect_one_sentence(installed.run("fallow", "agent", "once", **masked), 1, "driver")


def check_agent(installed: Installed) -> Path:
    """The agent against the fake driver: once, and for five seconds into a lake, which is returned."""
    gpus = tuple(Gpu(uuid, processes=(Process(os.getpid()),)) for uuid in UUIDS)
    scenario = Scenario(gpus, ms_ago(60))
    variables = scenario.environment(library_folder(), scenario.write(installed.work / "scenario"))
    done = installed.run("fallow", "agent", "once", "--json", **variables)
    expect(done.returncode == 0, "fallow agent once", done)
    expect(all(uuid in json.dumps(json.loads(done.stdout)) for uuid in UUIDS), "agent once names every GPU", done)
    lake, spool = installed.work / "lake", installed.work / "spool"
    made = installed.run("fallow", "lake", "init", "--lake", str(lake))
    expect(made.returncode == 0 and "is a new fallow lake" in made.stdout, "fallow lake init in the base install", made)
    started = time.monotonic()
    run = ("agent", "run", "--lake", str(lake), "--spool", str(spool), "--interval", "1s", "--for", "5s")
    done = installed.run("fallow", *run, **variables)
    took_s = time.monotonic() - started
    expect(done.returncode == 0, "fallow agent run", done)
    expect(5 <= took_s < 20, f"agent run --for 5s took {took_s:.1f} s", done)
    check_lake(lake)
    return lake


def check_lake(lake: Path) -> None:
    """The rows of five seconds are there, of both GPUs, with what the scenario plays; read here, where pyarrow is."""
    files = Lake.at(str(lake)).files
    tables = {table.name: parquet.read(files(table.name), table).to_pylist() for table in schema.TABLES}
    rows = {uuid: [row for row in tables["gpu"] if row["gpu"] == uuid] for uuid in UUIDS}
    counts = {name: len(found) for name, found in tables.items() if found}
    expect(all(3 <= len(found) <= 7 for found in rows.values()), f"5 s at 1 s made the rows {counts}")
    expect({row["gpu"] for row in tables["gpu"]} == set(UUIDS), "rows of a GPU that nobody has")
    expect(all(row["power_w"] == 70 for found in rows.values() for row in found), "power is not what the driver said")
    expect({row["pid"] for row in tables["process"]} == {os.getpid()}, f"no row of the process: {counts}")
    for table in ("device", "event", "agent"):
        expect(bool(tables[table]), f"no row in the table {table}: {counts}")


def check_missing_extra(installed: Installed, lake: Path) -> None:
    """A command of an extra says how to get it."""
    done = installed.run("fallow", "ledger", "--lake", str(lake))
    expect_one_sentence(done, 1, "pip install 'fallow[analytics]'")


def main() -> None:
    """Runs every check and says how long it took."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fallow-wheel-") as name:
        folder = Path(name)
        wheel, sdist = build(folder / "dist")
        check_contents(wheel, sdist)
        installed = install(wheel, folder)
        check_commands(installed)
        check_without_a_driver(installed)
        check_missing_extra(installed, check_agent(installed))
        print(f"{wheel.name} ({wheel.stat().st_size // 1024} KiB) works, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
