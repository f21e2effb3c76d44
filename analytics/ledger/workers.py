"""What builds host-days: this process, processes of this machine, or the workers of a Dask scheduler.

Work goes through a `concurrent.futures.Executor`, so nothing else here knows Dask. A task that is interrupted runs
again: on another worker, or on the same scheduler after its restart.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import re
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from fallow.config import Config
from fallow.errors import FallowError, LakeError, MissingExtraError, UsageError
from fallow.output import say

_ADDRESS = re.compile(r"dask://((?:[\w.-]+|\[[0-9a-fA-F:.]+\]):\d{1,5})", re.ASCII)

_UNDER_WAY = 512
"""Most tasks that a scheduler has at a time: enough for hundreds of workers. Each list of files takes 0.5 MB."""

_RETRIES = 2
"""How often a task runs again that could not use the lake: a store that did not answer may answer then."""

_RETRY_PAUSE_S = 2

_ATTEMPTS = 4
"""How often tasks are given to a scheduler whose connection breaks."""

_FIRST_CONNECT_S, _RECONNECT_S = 10, 60
"""How long to wait for a scheduler, and for its restart."""


@dataclass(frozen=True)
class Workers:
    """The workers that build the ledger."""

    count: int = 1
    """Processes on this machine; 0 means one per CPU."""
    scheduler: str = ""
    """`host:port` of a Dask scheduler; empty: this machine builds the ledger."""

    @classmethod
    def from_config(cls, config: Config) -> Workers:
        """Return the workers of the configuration. Raises UsageError for an address that is not `dask://host:port`."""
        address = config.text("ledger.executor")
        found = _ADDRESS.fullmatch(address)
        if address and not found:
            raise UsageError(
                f"'{address}' is not the address of an executor",
                "give --executor dask://HOST:PORT, or leave it out to build the ledger on this machine",
            )
        return cls(config.integer("ledger.workers"), found[1] if found else "")


HERE = Workers()
"""This process."""

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def run_tasks(
    scheduler: str, function: Callable[[_Task], _Result], tasks: Sequence[_Task]
) -> Iterator[tuple[_Task, _Result]]:
    """Return the tasks with their results as a scheduler's workers finish them.

    Raises FallowError where no scheduler answers, where its connection breaks again and again, where a worker lacks
    this fallow, and where workers die of a task; MissingExtraError without Dask; and the errors of the function.
    """
    left = dict(enumerate(tasks))
    for attempt in range(_ATTEMPTS):
        if not left:
            return
        with contextlib.suppress(_Interrupted), _connection(scheduler, is_first=not attempt) as pool:
            for number, result in _finished(pool, function, dict(left)):
                yield left.pop(number), result
    if left:
        raise FallowError(
            f"the connection to the Dask scheduler at {scheduler} broke {_ATTEMPTS} times",
            "finished days are kept: when the scheduler is up, run the command again to continue",
        )


class _Interrupted(Exception):  # noqa: N818  # nothing is wrong with the task
    """The scheduler has forgotten the tasks that it was given."""


@dataclass(frozen=True)
class _Failure:
    """An error as a result. Dask's client loses errors of tasks if it cannot read their traceback."""

    error: Exception


@dataclass(frozen=True)
class _Call:
    """A task that runs when unpickled: schedulers and workers without fallow pass bytes on; only the task fails."""

    function: Callable[..., object]
    task: object

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return _attempted, (self.function, self.task)


def _attempted(function: Callable[[_Task], _Result], task: _Task) -> _Result | _Failure:
    """Return the result of a task, or its error. Runs on a worker."""
    for retry in range(_RETRIES + 1):
        try:
            return function(task)
        except LakeError as error:
            failure = error
            if retry < _RETRIES:
                time.sleep(_RETRY_PAUSE_S)
        except Exception as error:  # noqa: BLE001  # it is raised again where the result is needed
            error.add_note(traceback.format_exc())
            return _Failure(error.with_traceback(None))
    return _Failure(failure.with_traceback(None))


def _finished(
    pool: Executor, function: Callable[[_Task], _Result], tasks: dict[int, _Task]
) -> Iterator[tuple[int, _Result]]:
    waiting: dict[Future[_Result | _Failure], int] = {}
    coming = iter(tasks.items())
    while True:
        for number, task in islice(coming, _UNDER_WAY - len(waiting)):
            try:
                waiting[pool.submit(pickle.loads, pickle.dumps(_Call(function, task)))] = number
            except (OSError, RuntimeError) as error:  # the connection has just broken
                raise _Interrupted from error
        if not waiting:
            return
        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
            yield waiting.pop(future), _result_of(future)


def _result_of(future: Future[_Result | _Failure]) -> _Result:
    from distributed.scheduler import KilledWorker

    try:
        result = future.result()
    except CancelledError as error:
        raise _Interrupted from error
    except KilledWorker as error:
        raise FallowError(
            "workers were killed again and again while they built the same hosts' day, probably because memory ran out",
            "give each worker more memory, and run the command again: finished days are kept",
        ) from error
    except (ImportError, AttributeError) as error:
        raise FallowError(
            f"a Dask worker does not have this fallow: {error}",
            "install the same version of fallow[dask] for this command and every worker",
        ) from error
    if isinstance(result, _Failure):
        raise result.error
    return result


@contextlib.contextmanager
def _connection(scheduler: str, *, is_first: bool) -> Iterator[Executor]:
    """Return the executor of a scheduler; tasks that are not finished at the end are cancelled."""
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingExtraError(
            "--executor dask:// needs the package distributed, which the base install leaves out",
            "install it with: pip install 'fallow[dask]'",
        ) from error
    for name in ("asyncio", "distributed", "distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # every fault is reported once, in a sentence
    try:
        client = Client(
            f"tcp://{scheduler}", timeout=_FIRST_CONNECT_S if is_first else _RECONNECT_S, set_as_default=False
        )
    except (OSError, ValueError) as error:
        raise FallowError(
            f"no Dask scheduler answers at {scheduler}",
            "start one with `dask scheduler`, or check the address, the firewall and the versions of distributed"
            + ("" if is_first else "; finished days are kept: run the command again to continue"),
        ) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the size of tasks, which are lists of files
            if is_first and not client.scheduler_info()["workers"]:
                say(f"the Dask scheduler at {scheduler} has no workers yet; waiting for some")
            yield client.get_executor(pure=False)
    finally:
        with contextlib.suppress(Exception):  # nothing depends on the farewell
            client.close(timeout=2)
