"""Writers that are killed, or whose disk fails, at a chosen file change: nothing lost, doubled or half-written.

`python -m tests.attacks.dying_writers FOLDER MOMENTS WRITER ...`, with the environment of tests.fakes.files, prints as
JSON how many moments of each writer it tried (a quarter of them for faults other than kills), and what went wrong. Each
run is a fork of this process, which has loaded what the writers need and used none of it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import traceback
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fallow.errors import FallowError
from tests.attacks.writers import WRITERS, Writer
from tests.conftest import REPOSITORY, clean_environment
from tests.fakes.files import KINDS, FaultyFiles
from tests.fakes.nvml import library_folder

if TYPE_CHECKING:
    from collections.abc import Callable

FAULTS = tuple(kind for kind in KINDS[1:] if kind != "hang")


def try_writers(folder: Path, moments: int, *writers: str) -> dict[str, Any]:
    """What the module prints for these writers, in a process that may fail; raises NoCompilerError."""
    faults = FaultyFiles.environment_of(folder / "page", library_folder())
    (folder / "trials").mkdir()
    command = [sys.executable, "-m", "tests.attacks.dying_writers", str(folder / "trials"), str(moments), *writers]
    given = {"cwd": REPOSITORY, "env": clean_environment({**faults, "POLARS_MAX_THREADS": "1"}), "timeout": 580}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **given)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@dataclass(frozen=True)
class _Run:
    """How one fork ended: its exit code, negative for a signal, what it gave and what it printed."""

    code: int
    result: Any
    out: str
    err: str


def forked(work: Callable[[], Any], folder: Path) -> _Run:
    """What a function gives in a fork of this process; a FallowError is told as the command tells it."""
    for name in ("out", "err", "result"):
        (folder / name).write_text("")
    if (pid := os.fork()) == 0:
        code = 70
        try:
            code = _work(work, folder)
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    out, err, result = ((folder / name).read_text() for name in ("out", "err", "result"))
    return _Run(os.waitstatus_to_exitcode(status), json.loads(result) if result else None, out, err)


def _work(work: Callable[[], Any], folder: Path) -> int:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            result, code = work(), 0
        except FallowError as error:
            print(f"fallow: {error}", file=sys.stderr)
            result, code = None, error.exit_code
        except BaseException:  # noqa: BLE001  # told to the process that waits
            traceback.print_exc()
            result, code = None, 70
    (folder / "result").write_text(json.dumps(result))
    (folder / "out").write_text(out.getvalue())
    (folder / "err").write_text(err.getvalue())
    return code


@dataclass
class Trial:
    """One writer, and the lakes that it is tried on: before, and after a run that nothing disturbed."""

    writer: Writer
    folder: Path
    faults: FaultyFiles

    def __post_init__(self) -> None:
        self.base, self.place = self.folder / "base", self.folder / "place"
        self.base.mkdir()
        self._good(lambda: self.writer.prepare(self.base))
        self.before = self._good(lambda: self.writer.rows(self.base))
        self._reset()
        with self.faults.below(self.place):
            run = forked(lambda: self.writer.run(self.place), self.folder)
        assert (run.code, run.result, run.err) == (0, 0, ""), run
        self.changes, self.printed = self.faults.count, run.out
        self.after, self.files = self._good(lambda: self.writer.rows(self.place)), self._files()

    def moments(self, count: int, seed: int = 1) -> list[int]:
        """So many changes by chance, all of them if there are no more."""
        every = range(1, self.changes + 1)
        return sorted(random.Random(seed).sample(every, min(count, self.changes)))  # noqa: S311  # the same every time

    def fails(self, kind: str, at: int) -> list[str]:
        """What is wrong after a fault at one moment."""
        self._reset()
        with self.faults.below(self.place, kind, at):
            run = forked(lambda: self.writer.run(self.place), self.folder)
        said = [self._of_run(kind, run)]
        left = [path.name for path in self.place.rglob(".*.part")]
        said.append(f"left {left}" if left and kind != "kill" else "")
        seen = forked(lambda: self.writer.rows(self.place), self.folder)
        if seen.code:
            return [f"{kind} at {at}: {each}" for each in (*said, f"readers see {seen.err}") if each]
        said.append(self.writer.wrong(self.before, self.after, seen.result))
        again = forked(lambda: self.writer.run(self.place), self.folder)
        said.append("" if (again.code, again.result) == (0, 0) else f"the next run fails: {again}")
        rows = self._good(lambda: self.writer.rows(self.place))
        done = run.code == 0 and run.result == 0
        if self.writer.is_same_bytes:
            files = self._files()
            differ = sorted(name for name in {*files, *self.files} if files.get(name) != self.files.get(name))
            said.append(f"files differ from those of an undisturbed run: {differ[:3]}" if differ else "")
        said.append(self.writer.wrong_in_the_end(self.after, rows, done=done))
        return [f"{kind} at {at}: {each}" for each in said if each]

    def _files(self) -> dict[str, bytes]:
        """Every file except leases, which name their holder, and half-written ones, which `lake repair` removes."""
        found = (path for path in self.place.rglob("*") if path.is_file())
        named = {str(path.relative_to(self.place)): path.read_bytes() for path in found}
        return {
            name: content for name, content in named.items() if ".leases" not in name and not name.endswith(".part")
        }

    def _of_run(self, kind: str, run: _Run) -> str:
        """A killed run says nothing; any other is done, or says in one sentence why it is not."""
        if kind == "kill" and run.code == -signal.SIGKILL:
            return ""
        code = run.code or run.result
        if code == 0:
            same = run.out == self.printed or not self.writer.is_derived  # it alone prints figures
            return "" if same and run.err.count("\n") <= 1 else f"it says {run.out} {run.err}"
        one = run.err.startswith("fallow: ") and run.err.count("\n") == 1
        return "" if code == 1 and one else f"it ends with {code}: {run.err}"

    def _good(self, work: Callable[[], Any]) -> Any:
        run = forked(work, self.folder)
        assert run.code == 0, run.err
        return run.result

    def _reset(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.base, self.place)


def main() -> None:
    folder, count, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    faults = FaultyFiles(Path(os.environ["FALLOW_FAULTY_FILES"]))
    tried: dict[str, dict[str, int]] = {}
    wrong: list[str] = []
    for writer in (each for each in WRITERS if each.name in names):
        for module in writer.modules:
            import_module(module)
        (folder / writer.name).mkdir()
        trial = Trial(writer, folder / writer.name, faults)
        moments = {kind: trial.moments(count if kind == "kill" else count // 4) for kind in FAULTS}
        tried[writer.name] = {"changes": trial.changes} | {kind: len(each) for kind, each in moments.items()}
        for kind, own in moments.items():
            wrong += [f"{writer.name}: {each}" for at in own for each in trial.fails(kind, at)]
    json.dump({"tried": tried, "wrong": wrong}, sys.stdout)


if __name__ == "__main__":
    main()
