"""`fallow import gpustat`: the JSON that `gpustat --json` prints, one document or many in a file."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from analytics.importers.json_documents import CUT_OFF, number, read_documents
from analytics.importers.kinds import with_progress
from analytics.importers.measures import BYTES
from analytics.importers.model import FileReport, Imported, Tally, check_host
from analytics.importers.nvidia_smi import Lines, NvidiaSmiSettings, read_lines, together
from analytics.importers.processes import ImportedProcess, command_name, lists_by_line, readable, readable_pid
from analytics.importers.source import ImportSource, open_source
from analytics.importers.times import check_zone, given_interval_ms
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


@dataclass(frozen=True)
class _Rows:
    """A file as lines of nvidia-smi, their GPUs as gpustat has them, and what was left out."""

    host: str
    lines: tuple[str, ...]
    gpus: tuple[Mapping[str, Any], ...]
    left_out: Mapping[str, int]


class Gpustat:
    name = "gpustat"
    summary = "JSON that gpustat --json printed on one host, once or in a loop"
    example = "fallow import gpustat gpustat.jsonl --tz Europe/Paris --lake /srv/lake"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "files", nargs="+", metavar="FILE", help="JSON documents one after another, plain or gzipped"
        )
        parser.add_argument("--host", help="host on which gpustat ran (default: as the file says)")
        parser.add_argument("--tz", "--timezone", metavar="ZONE", dest="tz",
                            help="the host's time zone: gpustat writes local time (default: UTC)")  # fmt: skip
        parser.add_argument(
            "--interval", metavar="DURATION", help="time between samples, such as 10s (default: inferred)"
        )

    def read(self, args: argparse.Namespace) -> Imported:
        """Reads the files; raises InputError or UsageError."""
        given = None if args.host is None else check_host(args.host)
        settings = NvidiaSmiSettings("", check_zone(args.tz or "UTC"), given_interval_ms(args.interval), None)
        sources = [(path, open_source(path)) for path in with_progress(args.files, "reading")]
        found = [_rows(path, source, given) for path, source in sources]
        hosts = sorted({rows.host for rows in found if rows.host})
        if len(hosts) > 1:
            raise InputError(
                f"the files are of the hosts {', '.join(hosts)}", "import those of each host by themselves"
            )
        settings = replace(settings, host=given or check_host(hosts[0] if hosts else ""))
        read = [_read(path, source, rows, settings) for (path, source), rows in zip(sources, found, strict=True)]
        return together(read, settings, zone_given=args.tz is not None)


def _read(path: str, source: ImportSource, rows: _Rows, settings: NvidiaSmiSettings) -> tuple[Any, FileReport]:
    tally = Tally(notes=list(source.notes))
    for reason, count in rows.left_out.items():
        tally.drop(reason, count)
    text = ("\n".join([", ".join(["timestamp", *_FIELDS.values()]), *rows.lines]) + "\n").encode()
    source = replace(source, text=text, cut_off=False)
    lists = lists_by_line(dict(enumerate((_processes(gpu, tally) for gpu in rows.gpus), 1)))
    return read_lines(Lines(path, source, sum(rows.left_out.values()), lists), settings, tally)


def _rows(path: str, source: ImportSource, given: str | None) -> _Rows:
    """The file's samples of one host: of --host, else of the only one in it."""
    if source.text is None:
        raise InputError(f"{path} is Parquet, not the JSON of gpustat", "`fallow import series` reads Parquet")
    documents, damaged = read_documents(source.text.decode(errors="replace"))
    good = [each for each in documents if isinstance(each, dict) and isinstance(each.get("gpus"), list)]
    if not good:
        raise InputError(f"{path} has no document of gpustat --json", "record it with gpustat --json")
    hosts = {str(each.get("hostname") or "") for each in good}
    if given is None and len(hosts) > 1:
        raise InputError(
            f"{path} is of the hosts {', '.join(sorted(hosts))}", "name one with --host: only its rows are read"
        )
    mine = [
        each for each in good if given is None or str(each.get("hostname") or given) in (given, given.split(".")[0])
    ]
    if len(hosts) == 1 and not mine:
        raise InputError(
            f"{path} is of the host {next(iter(hosts))}, not of {given}", "give --host as the file says, or none"
        )
    others = sum(len(each["gpus"]) for each in good) - sum(len(each["gpus"]) for each in mine)
    left_out = {CUT_OFF: damaged + len(documents) - len(good), _OTHER_HOST: others}
    gpus = tuple(gpu if isinstance(gpu, dict) else {} for each in mine for gpu in each["gpus"])
    return _Rows(
        str(mine[0].get("hostname") or "") if mine else "",
        tuple(line for each in mine for line in _lines(each)),
        gpus,
        {name: count for name, count in left_out.items() if count},
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
