"""Files named in settings and on the command line: not a file, or an endless one, gives one sentence at once."""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.attribution.pods import PodsError, fetch_pods
from agent.metrics.otlp import OtlpSettings
from analytics.delivery.links import AnswerLinks
from analytics.delivery.nudges import Contacts
from dashboard.access.choose import access_of
from dashboard.access.directory import Directory
from fallow import config, given_file
from fallow.cli import COMMANDS, VerbParser, load
from fallow.errors import ConfigError, FallowError
from fallow.given_file import TABLE_BYTES, given_bytes, open_input
from fallow.host_identity import machine_hash
from fallow.http_access import Certificate, Token
from tests.in_process import run_in_process
from tests.lakes import made_lake
from tests.ledger.rows import fill, samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


GPU_LOG = (
    "timestamp, index, uuid, utilization.gpu [%]\n2026/11/20 10:00:00.000, 0, GPU-a, 5 %\n2026/11/20 10:00:10.000, 0,"
    " GPU-a, 5 %\n"
)
MEMORY_BYTES = 2 << 30
"""What a command may take beside what the tests have taken."""

PROMETHEUS = ("import", "prometheus", "--url", "https://127.0.0.1:1", "--since", "1h", "--lake", "{lake}")
SEND = ("report", "--lake", "{lake}", "send", "--to", "mailto:lead@example.org")
MAIL = {"mail.server": "127.0.0.1:1", "mail.from": "a@example.org", "mail.user": "a"}

BY_COMMAND: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "agent.pseudonym_key_file": (("pseudonym", "of", "ann"), {}),
    "prometheus.mapping": (PROMETHEUS, {}),
    "prometheus.token_file": (PROMETHEUS, {}),
    "prometheus.password_file": (PROMETHEUS, {"prometheus.user": "a"}),
    "prometheus.ca_file": (PROMETHEUS, {}),
    "prometheus.certificate": (PROMETHEUS, {}),
    "prometheus.key": (PROMETHEUS, {"prometheus.certificate": "{log}"}),
    "otlp.token_file": (("follow", "otlp", "--lake", "{lake}", "--spool", "{folder}/spool"), {}),
    "money.prices": (("prices", "--lake", "{lake}"), {}),
    "money.owners": (("ledger", "--lake", "{lake}"), {}),
    "money.offers": (("plan", "purchase", "--lake", "{lake}"), {}),
    "money.goals": (("report", "--lake", "{lake}", "--week", "2026-W47"), {}),
    "report.contacts": (("report", "--lake", "{lake}", "nudge"), {}),
    "plan.requests": (("plan", "allocation", "--lake", "{lake}"), {}),
    "plan.carbon": (("plan", "carbon", "--lake", "{lake}"), {}),
    "mail.password_file": (SEND, MAIL),
    "mail.ca_file": (SEND, {"mail.server": "127.0.0.1:1", "mail.from": "a@example.org"}),
    "webhook.ca_file": ((*SEND[:-1], "https://127.0.0.1:1/hook"), {}),
}
"""Settings that name a file: a command that reads it, and the settings without which it would not."""


def otlp(file: str, name: str) -> None:
    OtlpSettings.from_config(config.load({"metrics.otlp_endpoint": "https://127.0.0.1:1", name: file}, None, {}))


def pages(file: str, name: str) -> None:
    oidc = {"issuer": "https://127.0.0.1:1", "client_id": "x"}
    oidc = {"dashboard.address": "https://a"} | {f"dashboard.oidc_{key}": value for key, value in oidc.items()}
    access_of(config.load({**oidc, name: file}, None, {}), address="127.0.0.1", local=True, insecure=False)


OF_SERVICES: dict[str, Callable[[str], object]] = {
    "metrics.token_file": lambda file: Token(file, "metrics.token_file"),
    "metrics.tls_certificate": lambda file: Certificate(file, file),
    "metrics.tls_key": lambda file: Certificate(__file__, file),
    "metrics.otlp_headers_file": lambda file: otlp(file, "metrics.otlp_headers_file"),
    "metrics.otlp_ca_file": lambda file: otlp(file, "metrics.otlp_ca_file"),
    "kubernetes.kubelet_token_file": lambda file: fetch_pods("https://127.0.0.1:1", file, ""),
    "kubernetes.kubelet_ca_file": lambda file: fetch_pods("https://127.0.0.1:1", "", file),
    "dashboard.oidc_client_secret_file": lambda file: pages(file, "dashboard.oidc_client_secret_file"),
    "dashboard.oidc_ca_file": lambda file: pages(file, "dashboard.oidc_ca_file"),
    "dashboard.session_key_file": lambda file: pages(file, "dashboard.session_key_file"),
    "dashboard.link_key_file": lambda file: AnswerLinks.of(
        config.load({"dashboard.address": "https://gpus.example.org", "dashboard.link_key_file": file}, None, {})
    ),
    "report.opt_out": lambda file: Contacts.load("", file),
    "dashboard.people": lambda file: Directory(file, "none"),
}
"""The same of settings that only the agent and the pages read while they serve."""

UNKNOWN = "agent.machine_id"
"""Where it cannot be read the machine has no id, as in most containers."""

ARGUMENTS = {
    "import series": ("--gpu", "g", "--time", "t", "--interval", "10s", "--host", "h", "--lake", "{lake}"),
    "import": ("--host", "h", "--lake", "{lake}"),
    "import prometheus": PROMETHEUS[2:],
    "follow prometheus": ("--url", "https://127.0.0.1:1", "--once", "--lake", "{lake}"),
    "follow otlp": ("--spool", "{folder}/spool", "--lake", "{lake}"),
    "allocations import": ("--lake", "{lake}"),
    "prices": ("--lake", "{lake}", "--provider", "x", "--date", "2026-11-20"),
    "plan fit": (),
    "plan": ("--lake", "{lake}"),
    "evaluate": ("--lake", "{lake}"),
    "pseudonym of": ("ann",),
    "pseudonym table": (),
}
"""What a command needs beside the file, by the beginning of its name."""

BESIDE = {"password_file": ("--user", "a"), "key": ("--certificate", "{log}")}
"""What some arguments for a metrics server need beside them."""

LEFT_OUT = {("", "--out"), ("ledger", "--focus"), ("sql", "--attach")}
LEFT_OUT |= {("pseudonym new-key", "file"), ("allocations import slurm", "--scontrol")}
"""By command (empty: of any), files that are written, and one that is read as the files beside it are."""


def _flag(action: argparse.Action) -> str:
    return (action.option_strings or [action.dest])[0]


def options() -> Iterator[tuple[str, argparse.Action]]:
    """Every argument that names a file to read, with its command; `--config` is one for all."""

    def below(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.Action]]:
        for action in parser._actions:  # noqa: SLF001
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                for verb, each in action.choices.items():
                    if isinstance(each, VerbParser):
                        each.load()
                    yield from below(each, f"{name} {verb}")
            elif "FILE" in str(action.metavar) and not {("", flag := _flag(action)), (name, flag)} & LEFT_OUT:
                yield name, action

    for command in COMMANDS:
        parser = argparse.ArgumentParser()
        load(command).add_arguments(parser)
        yield from below(parser, command.name)


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """A lake, an empty folder and files that are fine, by what stands for them above."""
    (tmp_path / "gpu.csv").write_text(GPU_LOG)
    (tmp_path / "people.csv").write_text("kind,name,role,team\nuser,ann,admin,\n")
    (tmp_path / "key").write_text("0" * 64)
    (tmp_path / "key").chmod(0o600)
    lake = fill(made_lake(tmp_path / "lake"), samples("GPU-a", 0, 600))
    files = {"log": "gpu.csv", "people": "people.csv", "key": "key"}
    return {"lake": lake.root, "folder": str(tmp_path)} | {each: str(tmp_path / name) for each, name in files.items()}


@pytest.fixture(params=["/dev/zero", "pipe"])
def no_file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A file without an end, or one that nobody writes; meanwhile this process may take little memory more."""
    monkeypatch.setattr(given_file, "WRITER_S", 0.1)
    os.mkfifo(tmp_path / "pipe")
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_BYTES, before[1]))
    yield request.param if request.param.startswith("/") else str(tmp_path / request.param)
    resource.setrlimit(resource.RLIMIT_AS, before)


def wrong(done: subprocess.CompletedProcess[str], file: str, codes: tuple[int, ...] = (1, 2)) -> str:
    """What a command that was given such a file did instead of naming it in one sentence; nothing where it did that."""
    said = [line for line in done.stderr.splitlines() if not line.startswith("fallow: made a new lake")]
    is_named = done.returncode in codes and len(said) == 1 and file in said[0] and "; " in said[0]
    return "" if is_named else f"{done.args}: {done.returncode} {done.stderr[-300:]}"


def filled(arguments: tuple[str, ...], places: dict[str, str]) -> list[str]:
    return [each.format(**places) for each in arguments]


# whoever reads a file itself, and not as all others do, hangs on either kind: one of them finds it
@pytest.mark.parametrize("no_file", ["pipe"], indirect=True)
def test_every_setting_that_names_a_file_refuses_what_is_none(places: dict[str, str], no_file: str) -> None:
    named = {each.name: each for each in config.SETTINGS if each.is_file}
    assert {*BY_COMMAND, *OF_SERVICES, UNKNOWN} == set(named)
    found = []
    for name, (arguments, others) in BY_COMMAND.items():
        values = {**others, name: no_file}
        environment = {f"FALLOW_{key}".upper().replace(".", "_"): text.format(**places) for key, text in values.items()}
        # requests are one part of that answer: the others are given
        codes = (0,) if name == "plan.requests" else (1, 2)
        found.append(wrong(run_in_process(*filled(arguments, places), **environment), no_file, codes))
    for name, read in OF_SERVICES.items():
        with pytest.raises((FallowError, PodsError)) as refused:
            read(no_file)
        found += [] if f" {no_file}: it is a" in str(refused.value) else [f"{name}: {refused.value}"]
    assert not any(found), "\n".join(filter(None, found))
    assert machine_hash(no_file) == ""


@pytest.mark.parametrize("no_file", ["/dev/zero"], indirect=True)
def test_every_argument_that_names_a_file_refuses_what_is_none(places: dict[str, str], no_file: str) -> None:
    found = []
    for name, action in options():
        if "--config" in action.option_strings:
            continue
        needed = next((ARGUMENTS[each] for each in sorted(ARGUMENTS, reverse=True) if name.startswith(each)), None)
        assert needed is not None, f"how is {name} called?"
        value = f"gpu_util_pct={no_file}:v" if "=" in str(action.metavar) else no_file
        beside = BESIDE.get(action.dest, ()) if "prometheus" in name else ()
        arguments = [*name.split(), *filled((*needed, *beside), places)]
        if action.option_strings:
            files = [places["log"]] if name.startswith(("import nv", "import gpus", "allocations")) else []
            files += [places["people"]] if name == "pseudonym table" else []
            column = "--column" not in action.option_strings and name == "import series"
            others = ["--column", f"gpu_util_pct={places['log']}:v"] if column else []
            arguments += [*files, *others, action.option_strings[-1], value]
        else:
            arguments += [value, *(["--key", places["key"]] if name == "pseudonym table" else [])]
        found.append(wrong(run_in_process(*arguments, FALLOW_MONEY_OFFERS=f"{places['folder']}/offers.csv"), no_file))
    assert not any(found), "\n".join(filter(None, found))


def test_the_config_file_itself_is_a_file(places: dict[str, str], no_file: str) -> None:
    by_flag = run_in_process("ledger", "--lake", places["lake"], "--config", no_file)
    by_variable = run_in_process("ledger", "--lake", places["lake"], FALLOW_CONFIG=no_file)
    kind = "a device" if no_file == "/dev/zero" else "a named pipe"
    for done in (by_flag, by_variable):
        told = (
            f"fallow: cannot read the config file {no_file}: it is {kind}; write the content to a file, and name the"
            " file\n"
        )
        assert (done.returncode, done.stderr) == (2, told)
    bundle = run_in_process("ledger", "--lake", "s3://bucket/x", AWS_CA_BUNDLE=no_file)
    assert wrong(bundle, no_file) == ""


def test_a_file_without_an_end_is_read_no_further_than_its_limit(tmp_path: Path) -> None:
    large = tmp_path / "large.csv"
    with large.open("wb") as file:
        file.truncate(TABLE_BYTES + 1)
    with pytest.raises(ConfigError, match=r"cannot read the table .*large.csv: it is larger than 16.0 MiB; check"):
        given_bytes("the table", str(large), TABLE_BYTES)
    assert len(given_bytes("the table", str(large), TABLE_BYTES + 1)) == TABLE_BYTES + 1


def test_an_import_reads_what_a_shell_pipes_to_it(places: dict[str, str]) -> None:
    command = (
        f"{sys.executable} -m fallow import nvidia-smi <(sleep 0.3; cat {places['log']}) --host h --lake"
        f" {places['folder']}/new"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    with pytest.raises(OSError, match="it is a device"):
        open_input("/dev/zero")


def test_a_message_repeats_no_more_than_200_characters_of_a_value() -> None:
    for value in ("x" * 4000, "x y " * 1000, "x's x " * 700, "x ' x " * 700):
        for arguments in (("ledger", "--since", value), (value,), ("ledger", "--config", value), ("agent", value)):
            done = run_in_process(*arguments)
            assert (done.returncode, done.stderr.count("\n")) == (2, 1)
            assert len(done.stderr) <= 600, arguments[0][:20]
            assert done.stderr.count("; ") == 1, "the remedy, and what is wrong before it, stay"


def test_a_file_of_the_kernel_that_has_nothing_to_say_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    end, other = os.pipe()  # a descriptor without content, as /proc/kmsg is when all is read
    os.set_blocking(end, False)
    monkeypatch.setattr(given_file, "_open", lambda _path: end)
    monkeypatch.setattr(given_file, "_must_be", lambda *_: None)
    try:
        with pytest.raises(ConfigError, match=r"cannot read the table x: its content does not end; write"):
            given_bytes("the table", "x", TABLE_BYTES)
    finally:
        os.close(other)


def test_the_null_device_is_an_empty_config_file(places: dict[str, str]) -> None:
    done = run_in_process("ledger", "--lake", places["lake"], FALLOW_CONFIG=os.devnull)
    assert (done.returncode, done.stderr) == (0, "")
