"""The publisher: turns spooled rows into Parquet files in the lake, in the agent's process or in one of its own.

A run of rows lands under names made of its sequence numbers and counts as published only after the lake has confirmed
every file, so that publishing it twice, or dying anywhere in between, neither loses nor doubles a row. Published rows
stay in the spool for a while; each run looks whether the lake still has them, and publishes again what it lost.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.spool.admission import Admission
from agent.spool.compaction import OwnFilesCompactor
from agent.spool.installation import COPIED_UNTIL, begin_run, identity_of, new_installation
from agent.spool.publisher_arguments import (
    EXIT_DAMAGED,
    EXIT_NAME_TAKEN,
    EXIT_SPOOL,
    LONGEST_S,
    Outcome,
    PublisherArguments,
)
from agent.spool.spool import APART_UNTIL, PublishedFile, Spool, Stretch
from agent.spool.spool_file import is_damaged
from fallow import parquet_writer, schema
from fallow.clock import HOUR_MS, MINUTE_MS, SECOND_MS, Clock, SystemClock
from fallow.errors import FallowError, HostNameTakenError, LakeError, SpoolError, UsageError
from fallow.host_identity import INSTALL_KEY
from fallow.lake import Lake, LakeFile
from fallow.parquet_merging import OpenedFile
from fallow.schema import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.rows import EventRow
    from agent.settings import AgentSettings, Compaction


def drop_published_copies(spool: Spool, lake: Lake, host: str) -> None:
    """Drops the copied rows that wait here and are in a file of the lake, by their numbers. Raises LakeError and SpoolError.

    Numbers are unique, and a file holds every row of its table and date between its first and its last one.
    """
    until = spool.noted(COPIED_UNTIL)
    if until is None:
        return
    for stretch in spool.stretches_until(int(until)):
        for file in lake.files(stretch.table, hosts=[host], dates=[stretch.date]):
            spool.drop(stretch, max(stretch.first_seq, file.first_seq), min(stretch.last_seq, file.last_seq))
    spool.note(APART_UNTIL, until)
    spool.forget_fact(COPIED_UNTIL)


BATCH_ROWS = 3_000
"""About twenty minutes of eight GPUs and 32 processes: bounds the publisher's memory when a store was away for long."""


class LeftError(LakeError):
    """Nobody waits for this publisher any more: another one may be at work."""


def _wanted() -> bool:
    return True


@dataclass
class Publisher:
    """One run: from one spool into one lake, under one host's name."""

    spool: Spool
    lake: Lake
    host: str
    keep_ms: int = HOUR_MS
    every_ms: int = 5 * MINUTE_MS
    """How often publishers run."""
    lake_id: str = ""
    """The id that the lake must have; empty: that which it had first."""
    clock: Clock = field(default_factory=SystemClock)
    in_agent: bool = False
    """Whether this is the agent's own process: it notes that, and leaves what takes much memory to another."""
    is_wanted: Callable[[], bool] = _wanted
    """Asked before each step that others see."""
    compaction: Compaction | None = None
    """How the host's own files are merged; None: not."""
    compaction_said: tuple[str, ...] = ()
    misfits: Counter[str] = field(default_factory=Counter)
    """Values per column that did not fit and became null."""
    admission: Admission = field(init=False)

    def __post_init__(self) -> None:
        self.admission = Admission(
            self.spool, self.lake, self.host, self.every_ms / SECOND_MS, lake_id=self.lake_id, clock=self.clock
        )

    def run(self) -> int:
        """Publishes what waits, restores what the lake lost, forgets what is old; returns how many rows were published.

        Raises LakeError, HostNameTakenError among them, and SpoolError.
        """
        with self.lake.store.pinned():  # a mount that goes away meanwhile gets no files where it was
            self.admission.check()
            drop_published_copies(self.spool, self.lake, self.host)
            count = self.publish()
            self.repair()
            self.forget()
            if self.compaction is not None:
                self._compact(self.compaction)
        return count

    def _compact(self, settings: Compaction) -> None:
        """Merges the host's own files. What the store refuses of it is told; the rows are published all the same."""
        compactor = OwnFilesCompactor(
            self.spool, self.lake, self.host, settings, self.clock, before_put=self._check_lake
        )
        try:
            with self.spool.in_agent() if self.in_agent else contextlib.nullcontext():
                compactor.run()
        except LakeError as error:
            compactor.said.append(f"files are not compacted: {error}")
        self.compaction_said = tuple(compactor.said)

    def publish(self) -> int:
        """Publishes every row that waits and returns how many; raises LakeError and SpoolError."""
        count = 0
        while (last := self.spool.last_seq(BATCH_ROWS)) is not None:
            self._check_lake()
            self.spool.try_until(last, in_agent=self.in_agent)
            published = [self._put(stretch, last) for stretch in self.spool.stretches_until(last)]
            self._check_lake()
            self.spool.publish_until(last, published)
            count += sum(each.row_count for each in published)
        return count

    def _check_lake(self) -> None:
        """Raises LakeError where rows must not be put, nor be noted as published."""
        if not self.is_wanted():
            raise LeftError("the publisher was left")
        self.admission.check_again()

    def _put(self, stretch: Stretch, batch: int) -> PublishedFile:
        data, _ = self.file_data(stretch, self.host)
        self.lake.put_confirmed(_file(stretch, self.host), data)
        return PublishedFile(
            **vars(stretch), batch=batch, lake=self.lake.root, host=self.host, published_ms=self.clock.now_ms()
        )

    def file_data(self, stretch: Stretch, host: str) -> tuple[bytes, int]:
        """The stretch's rows, as far as they are still in the spool, as one Parquet file of a host, and how many they are.

        Counts the values that did not fit their column and had to become null.
        """
        of = table(stretch.table)
        rows, misfits = parquet_writer.arrow_rows(of, (row.body for row in self.spool.rows_of(stretch)))
        for column, lost in misfits.items():
            self.misfits[f"{of.name}.{column}"] += lost
        origin = {"host": host} | replace(self.admission.identity, host=host).metadata()
        return parquet_writer.encode(of, rows, origin), rows.num_rows

    def repair(self) -> int:
        """Publishes again, under the same names, what the lake has confirmed and then lost; returns how many files."""
        lost = list(self._missing())
        with self.spool.in_agent() if lost and self.in_agent else contextlib.nullcontext():
            restored = [each for each in lost if self._restore(each)]
        if restored:
            rows = sum(each.row_count for each in restored)
            event: EventRow = {
                "time": self.clock.now_ms(),
                "gpu": None,
                "kind": "lake_repaired",
                "detail": f"the lake had lost {len(restored)} files that it had confirmed; their {rows} rows are published again",
            }
            self.spool.append({"event": [event]})
        return len(restored)

    def _missing(self) -> Iterable[PublishedFile]:
        """Remembered files that the lake neither has nor covers by a wider one; one listing per table and date."""
        folders: dict[tuple[str, str, str], list[PublishedFile]] = defaultdict(list)
        for each in self.spool.published_files():
            if each.lake == self.lake.root:
                folders[each.table, each.date, each.host].append(each)
        for (name, date, host), published in folders.items():
            there = self.lake.files(name, hosts=[host], dates=[date])
            keys = {file.key for file in there}
            for each in published:
                file = _file(each, host)
                if file.key not in keys and not any(other.covers(file) for other in there):
                    yield each

    def _restore(self, each: PublishedFile) -> bool:
        self._check_lake()
        data, row_count = self.file_data(each, each.host)
        if row_count != each.row_count:  # they left the spool meanwhile, to make room
            return False
        self.lake.put_confirmed(_file(each, each.host), data)
        return True

    def forget(self) -> None:
        """Lets go of published rows that have stayed long enough; call after `repair`, their last chance."""
        now_ms = self.clock.now_ms()
        published = self.spool.published_files()
        # one that was published "later" than now comes from a clock that has been put back since
        young = [each.batch for each in published if now_ms - self.keep_ms < each.published_ms <= now_ms + self.keep_ms]
        old = [each.batch for each in published if not young or each.batch < min(young)]
        if old:
            self.spool.forget_until(max(old))
        if not self.in_agent and self.spool.is_oversized():
            self.spool.compact()


def _file(stretch: Stretch, host: str) -> LakeFile:
    return LakeFile(stretch.table, stretch.date, host, stretch.first_seq, stretch.last_seq)


def outcome_of(
    arguments: PublisherArguments, *, in_agent: bool = False, is_wanted: Callable[[], bool] = _wanted
) -> Outcome:
    """One run of the publisher over a spool of its own; the last one gives the host's name back. Raises nothing."""
    try:
        spool = Spool(arguments.spool)
        try:
            publisher = Publisher(
                spool,
                Lake.at(arguments.lake),
                arguments.host,
                arguments.keep_ms,
                arguments.every_ms,
                arguments.lake_id,
                in_agent=in_agent,
                is_wanted=is_wanted,
                compaction=arguments.compaction if arguments.compaction.hours and not arguments.is_last else None,
            )
            try:
                if arguments.is_last and publisher.admission.is_denied:
                    return Outcome(EXIT_NAME_TAKEN, ("an agent that ends takes over no name of another one",))
                publisher.run()
            finally:
                with contextlib.suppress(SpoolError):
                    spool.forget_in_agent()
                    if arguments.is_last:
                        publisher.admission.leave()
        finally:
            spool.close()
    except SpoolError as error:
        return Outcome(EXIT_DAMAGED if is_damaged(error) else EXIT_SPOOL, (str(error),))
    except HostNameTakenError as error:
        return Outcome(EXIT_NAME_TAKEN, (str(error),))
    except FallowError as error:
        return Outcome(error.exit_code, (str(error),))
    except BaseException as error:  # noqa: BLE001  # a panic of arro3 is no Exception; told as one line and tried again
        return Outcome(1, (f"{type(error).__name__}: {error}".splitlines()[0],))
    said = (
        f"{lost} values of {column} do not fit the column and are null" for column, lost in publisher.misfits.items()
    )
    return Outcome(0, (*publisher.admission.said, *publisher.compaction_said, *said))


def main() -> int:
    """`python -m agent.spool.publisher ARGUMENTS`, as `PublisherArguments.as_text` has them; what there is to say goes to stderr, line by line."""
    signal.alarm(LONGEST_S)
    outcome = outcome_of(PublisherArguments.from_text(sys.argv[1]))
    for line in outcome.lines:
        print(line, file=sys.stderr)
    return outcome.exit_code


def publish_leftover(settings: AgentSettings) -> int:
    """Publishes what waits in the spool of the settings under their host's name; returns how many rows that were.

    Raises SpoolError where an agent runs on it, and FallowError where not everything could be published.
    """
    if not Path(settings.spool, "spool.sqlite").is_file():
        raise UsageError(
            f"there is no spool in {settings.spool}", "give the folder that holds a spool.sqlite as --spool"
        )
    spool = Spool(settings.spool)
    try:
        spool.lock()
        _check_apart(spool, settings)
        # whoever wrote the spool may run elsewhere: this is another installation, and what the lake has of it stays there once
        new_installation(spool, settings.host, "")
        begin_run(spool, SystemClock().now_ms(), "")
        spool.note(COPIED_UNTIL, str(spool.newest_seq()))
        waited = spool.count()
        outcome = outcome_of(
            PublisherArguments(
                settings.spool,
                settings.lake,
                settings.host,
                every_ms=settings.publish_every_ms,
                lake_id=settings.lake_id,
                is_last=True,
            )
        )
        if outcome.exit_code:
            raise FallowError(outcome.lines[-1] if outcome.lines else "the spool could not be published")
        return waited
    finally:
        spool.close()


def _check_apart(spool: Spool, settings: AgentSettings) -> None:
    """Raises FallowError where another installation has published under the name while the waiting rows were recorded.

    They would be doubled, or hidden by a file whose numbers reach over theirs.
    """
    lake, own = Lake.at(settings.lake), identity_of(spool, settings.host).install
    for stretch in spool.stretches_until(spool.newest_seq()):
        first_ms, last_ms = spool.span_ms(stretch)
        for file in lake.files(stretch.table, hosts=[settings.host], dates=[stretch.date]):
            meets = file.first_seq <= stretch.last_seq and stretch.first_seq <= file.last_seq
            opened = OpenedFile(lake.read(file), schema.table(stretch.table), file.key)
            is_of_then = meets or any(first_ms <= each <= last_ms for each in opened.times())
            if opened.facts.get(INSTALL_KEY) != own and is_of_then:
                raise FallowError(
                    f"another agent has published as {settings.host} while rows of {settings.spool} were recorded",
                    "give another --host: under this name they would be there twice, or hidden",
                )


if __name__ == "__main__":
    sys.exit(main())
