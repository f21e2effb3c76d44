"""`fallow import gpustat`: the JSON that `gpustat --json` prints, one document or many in a file."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import polars as pl

from analytics.importers.kinds import add_recording_flags, with_progress
from analytics.importers.model import PROCESSES, Imported, Tally, check_host
from analytics.importers.nvidia_smi import NvidiaSmiSettings, together, usable_rows
from analytics.importers.processes import process_list
from analytics.importers.records import CUT_OFF, read_documents
from analytics.importers.source import InputLimits, open_source
from analytics.importers.times import check_zone, given_interval_ms
from analytics.importers.tool_rows import TIMESTAMP, cell, rows_of_documents
from analytics.mapping.mapping_file import tool
from fallow.errors import InputError

_OTHER_HOST = "of another host than --host"
_TOOL = tool("gpustat")


@dataclass
class _File:
    """A file of documents: its hosts, and how many samples were read."""

    path: str
    given: str | None
    """The host of --host."""

    limits: InputLimits
    tally: Tally
    hosts: set[str] = field(default_factory=set)
    host: str = ""
    """That of the first sample that is read."""

    count: int = 0

    def samples(self, text: bytes) -> Iterator[dict[str, object]]:
        """Yield each GPU's values per document of the host, by gpustat's names, and processes. Raises InputError."""
        for each in read_documents(self.path, text, self.limits):
            if not isinstance(each, dict) or not isinstance(each.get("gpus"), list):
                self.tally.drop(CUT_OFF, 1)
                continue
            self.hosts.add(host := str(each.get("hostname") or ""))
            if self.given is not None and (host or self.given) not in (self.given, self.given.split(".")[0]):
                self.tally.drop(_OTHER_HOST, len(each["gpus"]))
                continue
            self.host = self.host if self.count else host
            self.count += len(each["gpus"])
            self.limits.check_rows(self.path, self.count)
            for gpu in each["gpus"]:
                values = gpu if isinstance(gpu, dict) else {}
                listed = values.get("processes")  # there is no list where gpustat lacked the permission for it
                processes = process_list(listed, _TOOL, self.tally) if isinstance(listed, list) else None
                texts = {name: cell(value) for name, value in values.items()}
                yield {**texts, TIMESTAMP: cell(each.get("query_time")), PROCESSES: processes}

    def check_hosts(self) -> None:
        """Raise InputError where no document is of the requested host, or where several hosts occur."""
        if not self.hosts:
            raise InputError(f"{self.path} has no document of gpustat --json", "record it with gpustat --json")
        if self.given is None and len(self.hosts) > 1:
            raise InputError(
                f"{self.path} holds the hosts {', '.join(sorted(self.hosts))}",
                "name one with --host: only its rows are read",
            )
        if len(self.hosts) == 1 and self.tally.dropped[_OTHER_HOST] and not self.count:
            raise InputError(
                f"{self.path} is of the host {next(iter(self.hosts))}, not of {self.given}",
                "give --host as in the file, or omit it",
            )


class Gpustat:
    name = "gpustat"
    summary = "output of gpustat --json on one host, once or in a loop"
    example = "fallow import gpustat gpustat.jsonl --tz Europe/Paris --lake /srv/lake"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_recording_flags(parser, "gpustat", "JSON documents one after another", says_host=True)

    def read(self, args: argparse.Namespace, limits: InputLimits) -> Imported:
        """Return the content of the files. Raises InputError or UsageError."""
        given = None if args.host is None else check_host(args.host)
        settings = NvidiaSmiSettings("", check_zone(args.tz or "UTC"), given_interval_ms(args.interval), None, limits)
        found = [_read_file(path, given, limits) for path in with_progress(args.files, "reading")]
        hosts = sorted({file.host for file, _ in found if file.host})
        if len(hosts) > 1:
            raise InputError(f"the files hold the hosts {', '.join(hosts)}", "import each host's files separately")
        settings = replace(settings, host=given or check_host(hosts[0] if hosts else ""))
        read = [usable_rows(file.path, rows, settings, file.tally, _TOOL) for file, rows in found]
        return together(read, settings, zone_given=args.tz is not None)


def _read_file(path: str, given: str | None, limits: InputLimits) -> tuple[_File, pl.DataFrame]:
    """Return the file's samples of one host: of --host, else of the only one in it. Raises InputError."""
    source = open_source(path, limits)
    if source.text is None:
        raise InputError(f"{path} is Parquet, not the JSON of gpustat", "`fallow import series` reads Parquet")
    file = _File(path, given, limits, Tally(notes=list(source.notes)))
    rows = rows_of_documents(file.samples(source.text), _TOOL, file.tally)
    file.check_hosts()
    return file, rows
