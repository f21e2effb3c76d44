"""`fallow import gpustat`: the JSON that `gpustat --json` prints, one document or many in a file."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from analytics.importers.kinds import with_progress
from analytics.importers.model import FileReport, Imported, Tally, check_host
from analytics.importers.nvidia_smi import Lines, NvidiaSmiSettings, read_lines, together
from analytics.importers.processes import ImportedProcess, command_name, lists_by_line, readable, readable_pid
from analytics.importers.records import CUT_OFF, number, read_documents
from analytics.importers.source import ImportSource, InputLimits, open_source
from analytics.importers.times import check_zone, given_interval_ms
from analytics.importers.values import BYTES
from fallow.errors import InputError

_FIELDS = {
    "index": "index",
    "uuid": "uuid",
    "name": "name",
    "utilization.gpu": "utilization.gpu [%]",
    "memory.used": "memory.used [MiB]",
    "memory.total": "memory.total [MiB]",
    "power.draw": "power.draw [W]",
    "enforced.power.limit": "enforced.power.limit [W]",
    "temperature.gpu": "temperature.gpu",
}
"""gpustat's key, and the field of nvidia-smi that it is. Units: gpustat/core.py, whose MB is 1024 * 1024 bytes."""

_OTHER_HOST = "of another host than --host"


@dataclass
class _Rows:
    """A file as lines of nvidia-smi, their process lists, and what was left out."""

    host: str
    lines: list[str]
    lists: list[list[ImportedProcess] | None]
    left_out: Counter[str]
    tally: Tally


class Gpustat:
    name = "gpustat"
    summary = "JSON that gpustat --json printed on one host, once or in a loop"
    example = "fallow import gpustat gpustat.jsonl --tz Europe/Paris --lake /srv/lake"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "files", nargs="+", metavar="FILE", help="JSON documents one after another, plain or gzipped"
        )
        parser.add_argument("--host", help="host on which gpustat ran (default: as the file says)")
        parser.add_argument(
            "--tz",
            "--timezone",
            metavar="ZONE",
            dest="tz",
            help="the host's time zone: gpustat writes local time (default: UTC)",
        )
        parser.add_argument(
            "--interval", metavar="DURATION", help="time between samples, such as 10s (default: inferred)"
        )

    def read(self, args: argparse.Namespace, limits: InputLimits) -> Imported:
        """Reads the files; raises InputError or UsageError."""
        given = None if args.host is None else check_host(args.host)
        settings = NvidiaSmiSettings("", check_zone(args.tz or "UTC"), given_interval_ms(args.interval), None, limits)
        found = [_rows(path, open_source(path, limits), given, limits) for path in with_progress(args.files, "reading")]
        hosts = sorted({rows.host for rows in found if rows.host})
        if len(hosts) > 1:
            raise InputError(
                f"the files are of the hosts {', '.join(hosts)}", "import those of each host by themselves"
            )
        settings = replace(settings, host=given or check_host(hosts[0] if hosts else ""))
        read = [_read(path, rows, settings) for path, rows in zip(args.files, found, strict=True)]
        return together(read, settings, zone_given=args.tz is not None)


def _read(path: str, rows: _Rows, settings: NvidiaSmiSettings) -> tuple[Any, FileReport]:
    for reason, count in rows.left_out.items():
        rows.tally.drop(reason, count)
    text = ("\n".join([", ".join(["timestamp", *_FIELDS.values()]), *rows.lines]) + "\n").encode()
    lists = lists_by_line(dict(enumerate(rows.lists, 1)))
    given = Lines(path, ImportSource(path, text), sum(rows.left_out.values()), lists)
    return read_lines(given, settings, rows.tally)


def _rows(path: str, source: ImportSource, given: str | None, limits: InputLimits) -> _Rows:
    """The file's samples of one host: of --host, else of the only one in it."""
    if source.text is None:
        raise InputError(f"{path} is Parquet, not the JSON of gpustat", "`fallow import series` reads Parquet")
    hosts: set[str] = set()
    rows = _Rows("", [], [], Counter(), Tally(notes=list(source.notes)))
    for each in read_documents(path, source.text, limits):
        if not isinstance(each, dict) or not isinstance(each.get("gpus"), list):
            rows.left_out[CUT_OFF] += 1
            continue
        hosts.add(host := str(each.get("hostname") or ""))
        if given is None or (host or given) in (given, given.split(".")[0]):
            _add(rows, host, each)
            limits.check_rows(path, len(rows.lines))
        else:
            rows.left_out[_OTHER_HOST] += len(each["gpus"])
    _check_hosts(path, hosts, given, rows)
    return rows


def _add(rows: _Rows, host: str, document: Mapping[str, Any]) -> None:
    if not rows.lines:
        rows.host = host
    rows.lines.extend(_lines(document))
    gpus = (gpu if isinstance(gpu, dict) else {} for gpu in document["gpus"])
    rows.lists.extend(_processes(gpu, rows.tally) for gpu in gpus)


def _check_hosts(path: str, hosts: set[str], given: str | None, rows: _Rows) -> None:
    if not hosts:
        raise InputError(f"{path} has no document of gpustat --json", "record it with gpustat --json")
    if given is None and len(hosts) > 1:
        raise InputError(
            f"{path} is of the hosts {', '.join(sorted(hosts))}", "name one with --host: only its rows are read"
        )
    if len(hosts) == 1 and rows.left_out[_OTHER_HOST] and not rows.lines:
        raise InputError(
            f"{path} is of the host {next(iter(hosts))}, not of {given}", "give --host as the file says, or none"
        )


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    when = _cell(document.get("query_time"))
    for gpu in document["gpus"]:
        cells = gpu if isinstance(gpu, dict) else {}
        yield ", ".join([when, *(_cell(cells.get(key)) for key in _FIELDS)])


def _processes(gpu: Mapping[str, Any], tally: Tally) -> list[ImportedProcess] | None:
    """The processes of a GPU; None where gpustat was not allowed to list them."""
    found = gpu.get("processes")
    return readable((_process(each) for each in found), tally) if isinstance(found, list) else None


def _process(entry: object) -> ImportedProcess | None:
    values = entry if isinstance(entry, dict) else {}
    pid = readable_pid(values.get("pid"))
    if pid is None:
        return None
    return ImportedProcess(
        pid,
        mem_used_bytes=_size(values.get("gpu_memory_usage"), BYTES["MiB"]),
        user=_known(values.get("username")),
        command=command_name(_known(values.get("command"))),
        host_mem_bytes=_size(values.get("cpu_memory_usage")) or None,  # gpustat writes 0 where it may not look
    )


def _size(value: object, factor: float = 1) -> int | None:
    size = number(value)
    return None if size is None or not 0 <= size < 2**43 else int(size * factor)


def _known(value: object) -> str | None:
    """The text, None for the `?` that gpustat writes where it may not look."""
    return value if isinstance(value, str) and value.strip() not in ("", "?") else None


def _cell(value: object) -> str:
    if value is None or isinstance(value, dict | list | bool):
        return "[N/A]"
    return " ".join(str(value).replace(",", " ").split()) or "[N/A]"
