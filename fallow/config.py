"""Settings: what can be set, where it was set, and its value.

Flags beat environment variables (`FALLOW_<SECTION>_<KEY>`) beat the file (`--config`, else `$FALLOW_CONFIG`, else
`/etc/fallow/fallow.toml` where it exists) beat the defaults below.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fallow.clock import parse_duration_ms
from fallow.errors import ConfigError, UsageError
from fallow.given_file import SETTINGS_BYTES, given_text
from fallow.units import parse_bytes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_FILE = "/etc/fallow/fallow.toml"

Value = str | int | float


def _file(text: str) -> str:
    """The path of a file that is read through `fallow.given_file`."""
    return text


def _name(text: str) -> str:
    if not text.strip():
        raise UsageError("a name is not empty")
    return text.strip()


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f"'{text}' is not a number") from None
    if not 0 < value < float("inf"):
        raise UsageError(f"'{text}' is not above 0")
    return value


def _not_negative(text: str) -> float:
    return 0.0 if text.strip() in ("0", "0.0") else _positive(text)


def _working_days(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 60:
        raise UsageError(f"'{text}' is not a whole number of working days from 1 to 60")
    return int(text)


def _count_or_auto(text: str) -> int:
    """0 stands for auto."""
    if text == "auto":
        return 0
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise UsageError(f"'{text}' is neither auto nor a whole number from 1 to 1024")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:12]) <= 10**9:
        raise UsageError(f"'{text}' is not a whole number from 1 to 1,000,000,000")
    return int(text)


def _duration_or_unknown(text: str) -> int:
    """0 stands for not known."""
    return parse_duration_ms(text) if text else 0


_SWITCH = {"on": 1, "yes": 1, "true": 1, "1": 1, "off": 0, "no": 0, "false": 0, "0": 0}


def _switch(text: str) -> int:
    try:
        return _SWITCH[text.lower()]
    except KeyError:
        raise UsageError(f"'{text}' is neither on nor off") from None


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise UsageError(f"'{text}' is not one of {', '.join(choices)}")
        return text

    return parse


def _kept_at_least(least: str) -> Callable[[str], int]:
    """0 stands for ever."""

    def parse(text: str) -> int:
        kept_ms = 0 if text.strip() in ("0", "forever") else parse_duration_ms(text)
        if 0 < kept_ms < parse_duration_ms(least):
            raise UsageError(
                f"'{text}' is less than {least}, which reports look back on", f"give 0 (for ever) or {least} or more"
            )
        return kept_ms

    return parse


_samples, _hourly = _kept_at_least("14d"), _kept_at_least("182d")


@dataclass(frozen=True)
class Setting:
    """One thing that can be set: how to read it, its default as written, its meaning and why that default."""

    section: str
    key: str
    parse: Callable[[str], Value]
    default: str
    meaning: str
    reason: str = ""

    @property
    def name(self) -> str:
        """`section.key`."""
        return f"{self.section}.{self.key}"

    @property
    def is_file(self) -> bool:
        """Whether it names a file that is read."""
        return self.parse is _file

    @property
    def variable(self) -> str:
        return f"FALLOW_{self.section}_{self.key}".upper()


_SETTINGS: dict[str, tuple[tuple[Any, ...], ...]] = {
    "lake": (
        ("path", str, "", "location of the lake: a folder or an object store", "no default: it is never guessed"),
        ("id", str, "", "the id that the lake must have for the agent to publish into it; empty: that which it had first",
         "the agent takes note of the id at its first publication"),
    ),
    "agent": (
        ("spool", str, "", "folder for rows that are not yet in the lake", "no default: it is never guessed"),
        ("host", str, "", "name of this host in the lake; empty: the machine's own host name"),
        ("pool", str, "", "the site's name for the group of hosts that this one belongs to"),
        ("expected_gpus", _count_or_auto, "auto",
         "how many GPUs this host should have; auto: as many as the agent has seen here or the PCI bus shows",
         "a GPU that is dead when the agent first starts would be invisible"),
        ("interval", parse_duration_ms, "10s", "length of one row's interval",
         "short enough for episodes of a minute, long enough to cost nothing"),
        ("process_interval", parse_duration_ms, "30s", "how often process lists are read",
         "listing takes global driver locks; memory moving by 64 MiB triggers one at once"),
        ("publish_every", parse_duration_ms, "5min", "how often closed rows go to the lake",
         "small files cost 0.4 ms each in every query"),
        ("slow_interval", parse_duration_ms, "5min", "how often error counters and the inventory are read",
         "they change with repairs and reconfigurations, not with work"),
        ("call_timeout", parse_duration_ms, "5s", "how long a driver call may block before the GPU counts as wedged",
         "a healthy call takes micro- to milliseconds, and the others' rings hold only ten seconds meanwhile"),
        ("command_arguments", _switch, "off", "whether command lines are recorded, with secrets masked",
         "arguments hold secrets and names of people"),
        ("pseudonymise_users", _switch, "off",
         "whether pseudonyms, made with a key, stand for users in all that is recorded and shown; imports do the same",
         "teams and findings work by name; a site that may not record names loses little by it"),
        ("pseudonym_key_file", _file, "",
         "file with the key of the pseudonyms, at least 32 bytes and the same on every host, which others can neither read nor change",
         "whoever has it can tell which of the names that they know a pseudonym is"),
        ("sees_all_processes", _one_of("auto", "yes", "no"), "auto",
         "whether the agent's PID namespace holds every process that may use a GPU",
         "auto: yes in the host's own namespace; elsewhere the driver hides processes and their number is unknown"),
        ("spool_max", parse_bytes, "2GB", "how large the spool may grow; sampling thins from three quarters of it on",
         "a week of eight GPUs without a lake takes about 0.9 GB"),
        ("keep_published", parse_duration_ms, "1h",
         "how long published rows stay in the spool, to be published again if the lake loses them",
         "a network file system may confirm what a crash of its server then loses"),
        ("machine_id", _file, "/etc/machine-id",
         "file with the machine's id, which is hashed and tells hosts of one name apart",
         "in a container it may be elsewhere"),
        ("proc", str, "/proc", "where the host's /proc is mounted", "in a container it may be elsewhere"),
        ("sys", str, "/sys", "where the host's /sys is mounted", "in a container it may be elsewhere"),
        ("log_format", _one_of("text", "json"), "text", "form of the log lines on standard error"),
        ("log_level", _one_of("debug", "info", "warning", "error"), "info", "least severity that is logged"),
    ),
    "compaction": (
        ("own", _one_of("days", "hours", "off"), "days",
         "what the agent merges of its own files: hours and days when they are over, hours alone, or nothing",
         ("small files cost 2 ms each in every query: a day of 288 a table becomes one. `hours` leaves days to `fallow lake compact`, "
         "and spares the 25 MiB that a day of eight GPUs takes for a second")),
        ("grace", parse_duration_ms, "1h", "how long files stay that a wider one has replaced",
         "longer than any reader takes from its listing to its last file; as long as agent.keep_published guards fresh files"),
        ("lateness", parse_duration_ms, "15min",
         "how long after midnight (UTC) an agent waits for late rows of the day; each host adds up to an hour of its own",
         "three times agent.publish_every; hosts must not all merge their days at one moment"),
        ("look_back", parse_duration_ms, "7d",
         "how many days back an agent with a new spool merges what earlier ones left", "as far as a week's report reads"),
    ),
    "retention": (
        ("gpu", _samples, "0", "how long `fallow lake expire` keeps rows of `gpu`; 0: for ever, else 14d or more",
         "nothing is deleted that was not asked for; 90d keeps a quarter. Two weeks: allocations come late, and pages draw readings"),
        ("process", _samples, "0", "the same for rows of `process`"),
        ("host", _samples, "0", "the same for rows of `host`"),
        ("serving", _samples, "0", "the same for rows of `serving`"),
        ("event", _hourly, "0", "the same for rows of `event`; 182d or more", "reports name the events of their window"),
        ("agent", _samples, "0", "the same for rows of `agent`"),
        ("process_day", _hourly, "0", "the same for rows of `process_day`; 182d or more",
         "reports compare 13 weeks with the 13 before"),
        ("hourly", _hourly, "0", "the same for rows of `hourly`, `host_hourly` and `serving_hourly`; 182d or more",
         "reports compare 13 weeks with the 13 before; 400 times smaller than the samples"),
    ),
    "metrics": (
        ("listen", str, "", "address:port for /metrics and /healthz; empty: off",
         "off: nothing listens that was not asked for"),
        ("health_listen", str, "", "address:port for /healthz alone, without token and TLS; empty: off",
         "a kubelet asks a pod's own address, and /metrics need not be there"),
        ("token_file", _file, "", "file with the bearer token that /metrics asks for; empty: none"),
        ("tls_certificate", _file, "", "PEM file with the certificate; empty: no TLS"),
        ("otlp_endpoint", str, "",
         "address of an OpenTelemetry collector that gets every interval over OTLP/HTTP, such as http://127.0.0.1:4318; empty: off",
         "off: nothing leaves the host that was not asked for"),
        ("otlp_headers_file", _file, "", "file with headers for it, as `Authorization: Bearer ...`, one a line; empty: none",
         "a file: a secret would be seen in settings and lists of processes"),
        ("otlp_ca_file", _file, "", "PEM file with the authority that signed its certificate; empty: the system's"),
        ("tls_key", _file, "", "PEM file with the certificate's key"),
    ),
    "kubernetes": (
        ("pod_resources", str, "/var/lib/kubelet/pod-resources/kubelet.sock",
         "the kubelet's pod-resources socket; used if it exists; empty: never"),
        ("kubelet_url", str, "",
         "address of the kubelet, such as https://127.0.0.1:10250, for pod labels and container ids; empty: not asked"),
        ("kubelet_token_file", _file, "/var/run/secrets/kubernetes.io/serviceaccount/token",
         "file with the bearer token for the kubelet"),
        ("kubelet_ca_file", _file, "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
         "PEM file with the authority that signed the kubelet's certificate"),
    ),
    "slurm": (
        ("scontrol", str, "scontrol", "command that knows a job's account; used if it exists; empty: never"),
    ),
    "serving": (
        ("endpoints", str, "",
         "metrics addresses of inference servers on this host, separated by commas, such as http://127.0.0.1:8000/metrics"),
        ("interval", parse_duration_ms, "30s", "how often inference servers are asked",
         "a scrape of some servers is 200 kB"),
    ),
    "import": (
        ("max_bytes", parse_bytes, "256MiB", "how much data one input file may hold once it is unpacked",
         "five weeks of eight GPUs every ten seconds; 3 MB of gzip can stand for gigabytes"),
        ("max_record", parse_bytes, "8MiB", "how long one line of an input file, or one JSON or XML document in it, may be",
         "a document of a host with many processes is below 1 MB"),
        ("max_rows", _count, "5000000", "how many rows one input file may hold",
         "as many as fit into import.max_bytes in short lines"),
    ),
    "prometheus": (
        ("url", str, "", "address of the metrics server, such as https://prometheus.example.org:9090/prefix"),
        ("match", str, "", 'label matchers that narrow what is read, as in PromQL: cluster="a",pool=~"x|y"'),
        ("mapping", _file, "", "TOML files with a site's own mappings, separated by commas; see docs/prometheus.md"),
        ("token_file", _file, "",
         "file with the bearer token for the server; without one it is that of the variable FALLOW_PROM_TOKEN"),
        ("user", str, "", "name to log in with (basic authentication); empty: none"),
        ("password_file", _file, "",
         "file with the password; without one it is that of the variable FALLOW_PROM_PASSWORD"),
        ("headers", str, "", "headers for every request, as `Name: value`, separated by commas"),
        ("tenant", str, "", "tenant of Mimir, Cortex or a proxy in front of Thanos, as X-Scope-OrgID; empty: none"),
        ("ca_file", _file, "", "PEM file with the authority that signed the server's certificate; empty: the system's"),
        ("certificate", _file, "", "PEM file with this client's certificate; empty: none"),
        ("key", _file, "", "PEM file with the client certificate's key"),
        ("concurrency", _count, "4", "requests to the server at a time", "a server that people's dashboards use too"),
        ("rate", _positive, "20", "requests to the server in a second, at most"),
        ("collect_interval", _duration_or_unknown, "",
         "how often the exporters read the driver; empty: what their values show, else what they do by default",
         "a scrape that repeats a reading is no second one"),
        ("every", parse_duration_ms, "5min", "how often `fallow follow prometheus` reads what is new",
         "as agent.publish_every: small files cost in every query"),
        ("late", parse_duration_ms, "10min", "how far back `fallow follow prometheus` reads again for samples that came late",
         "remote-write queues and HA pairs are minutes behind at the most"),
    ),
    "otlp": (
        ("listen", str, "127.0.0.1:4318", "address:port where `fallow follow otlp` takes metrics",
         "OTLP's own port, on loopback: a collector on the same host pushes there"),
        ("spool", str, "", "folder for what was received and is not yet in the lake", "no default: it is never guessed"),
        ("max_spool", parse_bytes, "1GiB", "how large that may grow; then senders are told to come again later",
         "hours of a large site while the lake is away"),
        ("max_body", parse_bytes, "4MiB", "how large one request may be, unpacked",
         "a collector's batch of 8,192 points is about 2 MB"),
        ("every", parse_duration_ms, "5min", "how often what was received goes to the lake",
         "as agent.publish_every: small files cost in every query"),
        ("token_file", _file, "", "file with the bearer token that senders have to show; empty: none"),
    ),
    "follow": (
        ("listen", str, "127.0.0.1:9478", "address:port where `fallow follow` serves /metrics and /healthz; empty: off",
         "loopback: whoever wants others to read it says so; it tells counts, and no names"),
    ),
    "ledger": (
        ("idle_after", parse_duration_ms, "5min", "how long a user may run no kernel before its time is `held`",
         "shorter idle intervals come from input waits and checkpoints"),
        ("low_below_pct", _positive, "10", "mean utilization of a segment below which it is `low`"),
        ("held_min_bytes", parse_bytes, "1GB",
         "memory in use that stands for a user where no process list is known",
         "the driver itself keeps well under 1 GB"),
        ("workers", _count_or_auto, "auto", "processes that build the ledger; auto: one per CPU, 1: in this process",
         "host-days are independent of one another"),
    ),
    "findings": (
        ("held_min", parse_duration_ms, "60min", "shortest `held` segment that a finding counts",
         "after 60 idle minutes, 42 % of idle intervals last another hour; after 5 minutes only 4.7 %"),
        ("never_used_min", parse_duration_ms, "7d", "observed time without any use that makes a GPU `never_used`",
         "a whole week, so that a weekend alone never looks like a surplus"),
        ("horizon", parse_duration_ms, "7d", "how long GPUs that a finding wants to take back must stay unused for it to be right",
         "a GPU given to somebody else is gone for days; 12h for one that is only released over night"),
    ),
    "money": (
        ("currency", str, "USD", "currency that every sum is in; prices in others need an exchange rate in the price table",
         "that of the built-in catalog"),
        ("prices", _file, "", "CSV file with the site's own prices; empty: the built-in catalog of public list prices",
         "list prices say what a cloud asks on demand, not what a site pays: see docs/money.md"),
        ("owners", _file, "", "CSV file that says which team a user, account or namespace belongs to"),
        ("offers", _file, "", "CSV file with what GPUs could be bought, reserved or rented for; `fallow prices --import` fills it",
         "prices say what was paid, offers what could be: see docs/money.md"),
        ("provider", _name, "this site", "who provides the GPUs and bills them, in `fallow ledger --focus`"),
        ("goals", _file, "", "CSV file with goals: the unused share or the waste of a week, for all, a pool or a team, by a day"),
        ("energy_price_per_kwh", _not_negative, "0.12", "price of a kilowatt-hour, in money.currency; the default is in USD",
         "between what industry (8.72 cents) and commerce (12.82 cents) paid in the US East North Central division in April 2025 (EIA)"),
        ("pue", _positive, "1.54", "power usage effectiveness: what the site draws over what its machines draw",
         "mean of the Uptime Institute's Global Data Center Survey 2025"),
        ("grid_kg_per_kwh", _not_negative, "0.445", "carbon dioxide per kilowatt-hour of the grid, in kg",
         "the world's mean in 2024 (IEA, Electricity 2025); yours may be a tenth or twice of it"),
    ),
    "report": (
        ("language", _one_of("en", "fr"), "en", "language of the report"),
        ("timezone", str, "UTC", "IANA time zone of the report's weeks, hours and dates, such as Europe/Paris",
         "the ledger itself is in UTC"),
        ("to", str, "",
         "targets of `fallow report send` without --to, separated by commas; see docs/delivering.md",
         "the variable keeps a webhook's address, which is a secret, out of the list of processes"),
        ("contacts", _file, "", "CSV file with the mail addresses of users, accounts, namespaces and teams"),
        ("opt_out", _file, "", "CSV file with those who get no nudges"),
        ("cool_down", parse_duration_ms, "7d", "how long an owner is not told of the same finding again",
         "a reminder a week is read, one a day is filtered away"),
        ("quiet_hours", str, "20:00-07:00", "hours in which no nudge is sent, in report.timezone; empty: none",
         "a nudge asks somebody to do something"),
        ("quiet_days", str, "sat,sun", "days on which no nudge is sent: mon to sun, separated by commas; empty: none"),
        ("nudge_deadline", _working_days, "1",
         "working days to give unused GPUs back, to say until when they are needed, or to look at a fault; report.quiet_days are none",
         "the GPUs cost money meanwhile, and the answer is one click"),
        ("nudge_deadline_change", _working_days, "5",
         "the same to move work to another card or to use it better", "that takes a look at the work"),
        ("nudge_deadline_return", _working_days, "10",
         "the same for operators to give cards back to whoever lends them", "contracts and hosts have to be looked at"),
        ("operators", str, "",
         "targets, as in report.to, of what nobody but operators can do: faults, cards to give back, work that has lost its owner",
         "whoever holds a GPU cannot repair it, and is never told of it"),
    ),
    "plan": (
        ("lead_time", parse_duration_ms, "12w", "how long GPUs take from the order until they can be used",
         "a quarter of a year; no default fits every supplier: ask yours, or give `fallow plan forecast --lead-time`"),
        ("lost_per_interruption", parse_duration_ms, "1h",
         "work that is lost each time a spot GPU is taken away: what was done since the last checkpoint, and the new start",
         "half of a checkpoint interval of an hour and half an hour to start again; yours may be minutes or many hours"),
        ("replay_error_pct", _positive, "25",
         "by how much the replay of today may be off what was observed before `fallow plan replay` says nothing of waits"),
        ("requests", _file, "", "CSV file in which teams ask for GPUs; see docs/planning.md"),
        ("carbon", _file, "",
         "CSV file with the grid's carbon dioxide by the hour, or one number in g/kWh; see docs/planning.md",
         "empty: `money.grid_kg_per_kwh` for every hour"),
    ),
    "mail": (
        ("server", str, "", "SMTP server as host or host:port; the port is 587, 465 or 25, by mail.security"),
        ("security", _one_of("starttls", "tls", "none"), "starttls",
         "encryption of the connection to the server; `none` never sends a password",
         "what RFC 6409 servers offer; a server without it is an error: there is no fallback to plain text"),
        ("from", str, "", "sender, as `GPU team <gpu@example.org>` or the address alone"),
        ("reply_to", str, "", "where answers go; empty: to the sender"),
        ("user", str, "", "name to log in with; empty: no login"),
        ("password_file", _file, "", "file with the password; without one it is that of the variable FALLOW_SMTP_PASSWORD"),
        ("ca_file", _file, "", "PEM file with the authority that signed the server's certificate; empty: the system's"),
        ("timeout", parse_duration_ms, "30s", "how long the server may take for each answer; for a whole message ten times as long"),
    ),
    "webhook": (
        ("kind", _one_of("auto", "slack", "mattermost", "teams", "generic"), "auto",
         "what an https:// target expects", "auto: by the host for Slack and Teams, else generic"),
        ("ca_file", _file, "", "PEM file with the authority that signed the receivers' certificates; empty: the system's"),
        ("timeout", parse_duration_ms, "10s", "how long a receiver may take for each answer"),
    ),
    "dashboard": (
        ("address", str, "",
         "where people reach the pages, such as https://gpus.example.org: links in mails begin with it"),
        ("link_key_file", _file, "",
         "file with at least 32 bytes that links in nudges are signed with, readable by who sends and by who serves; empty: no links",
         "whoever has the key can answer for anybody"),
        ("hosts", str, "",
         "names by which browsers ask for the pages, separated by commas; this machine's own name and addresses always count",
         "a foreign site can point a name of its own at these pages"),
        ("proxy_header", str, "", "header in which a reverse proxy names who asks, such as X-Forwarded-User"),
        ("proxies", str, "",
         "addresses and networks of the proxies that may set it, separated by commas; nobody else is answered",
         "whoever reaches the pages past the proxy could call themselves anything"),
        ("oidc_issuer", str, "", "address of the OpenID Connect provider to sign in with"),
        ("oidc_client_id", str, "", "client id of these pages at the provider"),
        ("oidc_client_secret_file", _file, "", "file with the secret that the provider gave; empty: none"),
        ("oidc_scopes", str, "openid profile email", "scopes to ask the provider for, separated by spaces"),
        ("oidc_user_claim", str, "preferred_username", "claim with the name of the user, as in dashboard.people",
         "`sub` never changes, and nobody can type it"),
        ("oidc_groups_claim", str, "groups", "claim with the groups of the user; it may be missing"),
        ("oidc_ca_file", _file, "", "PEM file with the authority that signed the provider's certificate; empty: the usual ones"),
        ("session", parse_duration_ms, "12h", "how long a sign-in lasts",
         "a working day; the provider may still know the user and ask nothing"),
        ("session_idle", parse_duration_ms, "15min", "how long a sign-in lasts without a request",
         "an open page asks every minute; a copied cookie is worth little"),
        ("state", str, "",
         "folder in which sign-ins are kept, for all processes and replicas; empty: a new one at every start, which ends every sign-in",
         "signing out ends a sign-in on the server, and a restart must not bring it back"),
        ("audit", str, "",
         ("file that gets a JSON line for all that somebody does, or `syslog`; nothing is done or taken along that it does not get; "
         "empty: standard error alone, as text")),
        ("session_key_file", _file, "",
         "file with at least 32 bytes that sign-ins are signed with; empty: a new key at every start, which ends every sign-in"),
        ("people", _file, "", "CSV file with the roles and teams of users and groups"),
        ("memory", parse_bytes, "0",
         "memory that the pages may use, shared by --workers; 0: half of what the container, the unit or the machine allows",
         "windows that were looked at are kept until it is used, and go the least recently used first"),
        ("default_role", _one_of("none", "viewer", "planner", "admin"), "none",
         "role of those who are not in that file; none: they are refused"),
        ("insecure_role", _one_of("viewer", "planner", "admin"), "viewer", "role of everybody with --insecure"),
        ("connections", _count, "400", "connections that one process keeps open; above it the one that has waited longest is closed",
         "each takes up to three file descriptors, and many systems allow 1,024"),
        ("connections_per_address", _count, "100",
         "connections of one address, except this machine and dashboard.proxies; above it its own oldest is closed",
         "a browser opens six"),
        ("requests_per_minute", _count, "1200",
         "requests of one person in each process, as many at once as in a minute; above it they are asked to wait",
         "opening a page takes about sixty"),
        ("sign_ins_per_minute", _count, "300",
         "requests without a sign-in from one address in each process, sign-ins among them; above it they are asked to wait",
         "hundreds of people may come through one proxy on a Monday morning"),
    ),
}  # fmt: skip
"""By section: the other fields of each setting."""

SETTINGS = tuple(Setting(section, *each) for section, own in _SETTINGS.items() for each in own)


@dataclass(frozen=True)
class Config:
    """The values in force, each with where it came from."""

    values: Mapping[str, Value]
    origins: Mapping[str, str]

    def text(self, name: str) -> str:
        return str(self.values[name])

    def integer(self, name: str) -> int:
        """A setting in whole milliseconds or bytes."""
        value = self.values[name]
        if not isinstance(value, int):
            raise TypeError(name)
        return value

    def switch(self, name: str) -> bool:
        return bool(self.values[name])

    def texts(self, name: str) -> tuple[str, ...]:
        """A setting that is a list of texts; empty where it is not set."""
        return tuple(item for each in self.text(name).split(",") if (item := each.strip()))

    def number(self, name: str) -> float:
        return float(self.values[name])

    def require(self, name: str, flag: str) -> str:
        """A text setting that has to be there; UsageError naming the flag and the variable otherwise."""
        if not (value := self.text(name)):
            raise UsageError(
                f"{flag} is missing", f"give {flag}, set {_NAMES[name].variable} or {name} in the config file"
            )
        return value


def load(
    flags: Mapping[str, str | None], path: str | None = None, environment: Mapping[str, str] = os.environ
) -> Config:
    """The settings in force, given the flags that were used (`section.key` -> text, None where not given).

    Raises ConfigError for an unreadable file, an unknown key (naming the nearest one) or a value that does not parse.
    """
    from_file = _read_file(path or environment.get("FALLOW_CONFIG") or None)
    values: dict[str, Value] = {}
    origins: dict[str, str] = {}
    _check_environment(environment)
    for setting in SETTINGS:
        text, origin = setting.default, "default"
        if setting.name in from_file:
            text, origin = from_file[setting.name]
        if setting.variable in environment:
            text, origin = environment[setting.variable], setting.variable
        flag = flags.get(setting.name)
        if flag is not None:
            text, origin = flag, "flag"
        values[setting.name], origins[setting.name] = _parse(setting, text, origin), origin
    return Config(values, origins)


def _parse(setting: Setting, text: str, origin: str) -> Value:
    try:
        return setting.parse(text)
    except UsageError as error:
        where = f"--{setting.key.replace('_', '-')}" if origin == "flag" else f"{setting.name} (from {origin})"
        kind = UsageError if origin == "flag" else ConfigError
        raise kind(f"{where}: {error.message}", error.hint) from error


def _read_file(path: str | None) -> dict[str, tuple[str, str]]:
    file = path or DEFAULT_FILE
    try:
        content = tomllib.loads(given_text("the config file", file, SETTINGS_BYTES))
    except ConfigError as error:
        if path is None and isinstance(error.__cause__, FileNotFoundError):
            return {}
        raise
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the config file {file} is not TOML: {error}", "correct that line") from error
    found = {}
    for section, entries in content.items():
        if not isinstance(entries, dict):
            raise _unknown(section, file)
        for key, value in entries.items():
            name = f"{section}.{key}"
            if name not in _NAMES:
                raise _unknown(name, file)
            found[name] = (_as_text(value, f"{name} in {file}"), file)
    return found


def _as_text(value: object, where: str) -> str:
    """A TOML value as a flag would give it: switches as on and off, lists of texts with commas."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    if not isinstance(value, str | int | float):
        raise ConfigError(f"{where} is neither text nor a number", "write it as in docs/configuration.md")
    return str(value)


_NAMES = {setting.name: setting for setting in SETTINGS}
_VARIABLES = {setting.variable: setting for setting in SETTINGS}

# what Kubernetes puts into every pod beside a service that is called fallow-agent
_SERVICE_LINK = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")


def _unknown(name: str, where: str) -> ConfigError:
    from difflib import get_close_matches  # with the error, not before

    of_section = [each for each in _NAMES if each.startswith(f"{name}.")][:1]
    near = of_section or get_close_matches(name, [*_NAMES, *_VARIABLES], n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "docs/configuration.md lists every setting"
    return ConfigError(f"{where} sets {name}, which is not a setting", hint)


def _check_environment(environment: Mapping[str, str]) -> None:
    """Raises ConfigError for a misspelt variable. Only names that begin with a section are checked."""
    sections = tuple({f"FALLOW_{setting.section}_".upper() for setting in SETTINGS})
    for variable in environment:
        if variable.startswith(sections) and variable not in _VARIABLES and not _SERVICE_LINK.fullmatch(variable):
            raise _unknown(variable, "the environment")
