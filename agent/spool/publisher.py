"""The publisher writes spooled rows as Parquet files into the lake, in the agent's process or in a separate one.

File names contain the sequence numbers of their rows, and rows count as published after the lake has confirmed every
file. So publishing twice, or a crash at any point, neither loses nor doubles a row. Published rows stay in the spool
for a while. Every run checks whether the lake still has their files, and publishes lost files again.
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
from agent.spool.spool import APART_UNTIL, PublishedFile, Segment, Spool
from agent.spool.spool_file import is_damaged
from fallow import parquet_writer, schema
from fallow.clock import HOUR_MS, MINUTE_MS, SECOND_MS, Clock, SystemClock
from fallow.errors import FallowError, HostNameTakenError, LakeError, SpoolError, UsageError
from fallow.host_identity import INSTALL_KEY
from fallow.lake import Lake, LakeFile
from fallow.parquet_merging import OpenedFile
from fallow.process_memory import release_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.rows import EventRow
    from agent.settings import AgentSettings, Compaction


def drop_published_copies(spool: Spool, lake: Lake, host: str) -> None:
    """Drop a copied spool's waiting rows that a file of the lake contains, by number. Raises LakeError and SpoolError.

    Numbers are unique, and a file holds every row of its table and date between its first and its last number.
    """
    until = spool.noted(COPIED_UNTIL)
    if until is None:
        return
    for segment in spool.segments_until(int(until)):
        for file in lake.files(segment.table, hosts=[host], dates=[segment.date]):
            spool.drop(segment, max(segment.first_seq, file.first_seq), min(segment.last_seq, file.last_seq))
    spool.note(APART_UNTIL, until)
    spool.forget_fact(COPIED_UNTIL)


BATCH_ROWS = 3_000
"""About twenty minutes of eight GPUs and 32 processes: bounds the publisher's memory after a long store outage."""


class LeftError(LakeError):
    """The agent has abandoned this publisher, and may have started another."""


def _always() -> bool:
    return True


@dataclass
class Publisher:
    """One run: from one spool into one lake, under one host name."""

    spool: Spool
    lake: Lake
    host: str
    keep_ms: int = HOUR_MS
    every_ms: int = 5 * MINUTE_MS
    """Time between two publishers, in ms."""
    lake_id: str = ""
    """The required id of the lake; empty: the id that it had first."""
    clock: Clock = field(default_factory=SystemClock)
    in_agent: bool = False
    """True in the agent's own process, which notes it, and leaves work that takes much memory to another process."""
    is_wanted: Callable[[], bool] = _always
    """Called before each step that others can see."""
    compaction: Compaction | None = None
    """How the host's own files are merged; None: they are not merged."""
    compaction_messages: tuple[str, ...] = ()
    misfits: Counter[str] = field(default_factory=Counter)
    """Number of values per column that did not fit and became null."""
    admission: Admission = field(init=False)

    def __post_init__(self) -> None:
        self.admission = Admission(
            self.spool, self.lake, self.host, self.every_ms / SECOND_MS, lake_id=self.lake_id, clock=self.clock
        )

    def run(self) -> int:
        """Publish waiting rows, restore files that the lake lost, and forget old rows. Return the number published.

        Raises LakeError, HostNameTakenError among them, and SpoolError.
        """
        with self.lake.store.pinned():  # where a mount vanishes meanwhile, no file is written under its mount point
            self.admission.check()
            drop_published_copies(self.spool, self.lake, self.host)
            count = self.publish()
            self.repair()
            self.forget()
            if self.compaction is not None:
                self._compact(self.compaction)
        return count

    def _compact(self, settings: Compaction) -> None:
        """Merge the host's own files. The store's errors are reported, and do not keep rows from being published."""
        compactor = OwnFilesCompactor(
            self.spool, self.lake, self.host, settings, self.clock, before_put=self._check_lake
        )
        try:
            with self.spool.in_agent() if self.in_agent else contextlib.nullcontext():
                compactor.run()
        except LakeError as error:
            compactor.messages.append(f"files are not compacted: {error}")
        self.compaction_messages = tuple(compactor.messages)

    def publish(self) -> int:
        """Publish every waiting row and return their number; raises LakeError and SpoolError."""
        count = 0
        while (last := self.spool.last_seq(BATCH_ROWS)) is not None:
            self._check_lake()
            self.spool.try_until(last, in_agent=self.in_agent)
            published = [self._put(segment, last) for segment in self.spool.segments_until(last)]
            self._check_lake()
            self.spool.publish_until(last, published)
            count += sum(each.row_count for each in published)
        return count

    def _check_lake(self) -> None:
        """Raise LakeError where rows must be neither stored nor noted as published."""
        if not self.is_wanted():
            raise LeftError("the agent has abandoned this publisher")
        self.admission.check_again()

    def _put(self, segment: Segment, batch: int) -> PublishedFile:
        data, _ = self.file_data(segment, self.host)
        self.lake.put_confirmed(_file(segment, self.host), data)
        return PublishedFile(
            **vars(segment), batch=batch, lake=self.lake.root, host=self.host, published_ms=self.clock.now_ms()
        )

    def file_data(self, segment: Segment, host: str) -> tuple[bytes, int]:
        """Return the segment's rows that are still in the spool, as one Parquet file of a host, and their number.

        Counts the values that did not fit their column and became null.
        """
        of = schema.table(segment.table)
        rows, misfits = parquet_writer.arrow_rows(of, (row.body for row in self.spool.rows_of(segment)))
        for column, lost in misfits.items():
            self.misfits[f"{of.name}.{column}"] += lost
        origin = {"host": host} | replace(self.admission.identity, host=host).metadata()
        # three libraries in turn make the rows, the file and the request, so only one of them has to be in memory
        release_code("arro3/core")
        release_code("obstore")
        data = parquet_writer.encode(of, rows, origin)
        release_code("arro3/io")
        return data, rows.num_rows

    def repair(self) -> int:
        """Publish files that the lake confirmed and then lost again, under the same names. Return their number."""
        lost = list(self._missing_files())
        with self.spool.in_agent() if lost and self.in_agent else contextlib.nullcontext():
            restored = [each for each in lost if self._restore(each)]
        if restored:
            rows = sum(each.row_count for each in restored)
            event: EventRow = {
                "time": self.clock.now_ms(),
                "gpu": None,
                "kind": "lake_repaired",
                "detail": (
                    f"the lake had lost {len(restored)} files that it had confirmed; their {rows} rows are published"
                    " again"
                ),
            }
            self.spool.append({"event": [event]})
        return len(restored)

    def _missing_files(self) -> Iterable[PublishedFile]:
        """Yield noted files that the lake neither has nor covers by a wider one; one listing per table and date."""
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
        if row_count != each.row_count:  # the rows left the spool meanwhile, to make room
            return False
        self.lake.put_confirmed(_file(each, each.host), data)
        return True

    def forget(self) -> None:
        """Delete published rows after their time in the spool. Call it after `repair`, which may need them."""
        now_ms = self.clock.now_ms()
        published = self.spool.published_files()
        # a batch that was published "later" than now comes from a clock that has been set back since
        young = [each.batch for each in published if now_ms - self.keep_ms < each.published_ms <= now_ms + self.keep_ms]
        old = [each.batch for each in published if not young or each.batch < min(young)]
        if old:
            self.spool.forget_until(max(old))
        if not self.in_agent and self.spool.is_oversized():
            self.spool.compact()


def _file(segment: Segment, host: str) -> LakeFile:
    return LakeFile(segment.table, segment.date, host, segment.first_seq, segment.last_seq)


def outcome_of(
    arguments: PublisherArguments, *, in_agent: bool = False, is_wanted: Callable[[], bool] = _always
) -> Outcome:
    """Run a publisher once and return its outcome. A run's last one releases the host name. Raises nothing."""
    try:
        with contextlib.closing(Spool(arguments.spool)) as spool:
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
                    return Outcome(EXIT_NAME_TAKEN, ("an agent that ends does not take over another agent's name",))
                publisher.run()
            finally:
                with contextlib.suppress(SpoolError):
                    spool.forget_in_agent()
                    if arguments.is_last:
                        publisher.admission.leave()
    except SpoolError as error:
        return Outcome(EXIT_DAMAGED if is_damaged(error) else EXIT_SPOOL, (str(error),))
    except HostNameTakenError as error:
        return Outcome(EXIT_NAME_TAKEN, (str(error),))
    except FallowError as error:
        return Outcome(error.exit_code, (str(error),))
    except BaseException as error:  # noqa: BLE001  # a panic of arro3 is not an Exception
        # logged as one line; the run is tried again
        return Outcome(1, (f"{type(error).__name__}: {error}".splitlines()[0],))
    messages = (
        f"{lost} values of {column} do not fit the column and are null" for column, lost in publisher.misfits.items()
    )
    return Outcome(0, (*publisher.admission.messages, *publisher.compaction_messages, *messages))


def main() -> int:
    """`python -m agent.spool.publisher ARGUMENTS`, from `PublisherArguments.as_text`; messages go to stderr by line."""
    signal.alarm(LONGEST_S)
    outcome = outcome_of(PublisherArguments.from_text(sys.argv[1]))
    for line in outcome.lines:
        print(line, file=sys.stderr)
    return outcome.exit_code


def publish_leftover(settings: AgentSettings) -> int:
    """Publish the waiting rows of the settings' spool under the settings' host name. Return their number.

    Raises SpoolError where an agent runs on the spool, and FallowError where not all rows could be published.
    """
    if not Path(settings.spool, "spool.sqlite").is_file():
        raise UsageError(
            f"there is no spool in {settings.spool}", "name the folder with the file spool.sqlite as --spool"
        )
    with contextlib.closing(Spool(settings.spool)) as spool:
        spool.lock()
        _check_apart(spool, settings)
        # the spool's agent may run elsewhere, so this is another installation: drop rows that the lake already has
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


def _check_apart(spool: Spool, settings: AgentSettings) -> None:
    """Raise FallowError where another installation published under the name while the waiting rows were recorded.

    The lake would count these rows twice, or hide them behind a file with a wider range of numbers.
    """
    lake, own = Lake.at(settings.lake), identity_of(spool, settings.host).install
    for segment in spool.segments_until(spool.newest_seq()):
        first_ms, last_ms = spool.span_ms(segment)
        for file in lake.files(segment.table, hosts=[settings.host], dates=[segment.date]):
            meets = file.first_seq <= segment.last_seq and segment.first_seq <= file.last_seq
            opened = OpenedFile(lake.read(file), schema.table(segment.table), file.key)
            is_of_then = meets or any(first_ms <= each <= last_ms for each in opened.times())
            if opened.facts.get(INSTALL_KEY) != own and is_of_then:
                raise FallowError(
                    f"another agent published under the name {settings.host} while rows of {settings.spool} were"
                    " recorded",
                    "name another --host: under this name the rows would count twice, or be hidden",
                )


if __name__ == "__main__":
    sys.exit(main())
