"""Settings: the names, their meanings and defaults, the values in force, and their origins.

Flags beat environment variables (`FALLOW_<SECTION>_<KEY>`) beat the file (`--config`, else `$FALLOW_CONFIG`, else
`/etc/fallow/fallow.toml` if it exists) beat the defaults below.
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
    """Return the path of a file that `fallow.given_file` reads."""
    return text


def _name(text: str) -> str:
    if not text.strip():
        raise UsageError("the name is empty")
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


def _whole_number(most: int, of: str = "") -> Callable[[str], int]:
    """Return a parser of a whole number from 1 on."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text[:12]) <= most:
            raise UsageError(f"'{text}' is not a whole number{of} from 1 to {most:,}")
        return int(text)

    return parse


_working_days, _count = _whole_number(60, " of working days"), _whole_number(10**9)


def _count_or_auto(text: str) -> int:
    """Return the number; 0 for auto."""
    if text != "auto" and (not text.isdecimal() or not 1 <= int(text) <= 1024):
        raise UsageError(f"'{text}' is neither auto nor a whole number from 1 to 1024")
    return 0 if text == "auto" else int(text)


def _duration_or_unknown(text: str) -> int:
    """Return the milliseconds; 0 for unknown."""
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
    """Return a parser of a retention time in milliseconds; 0 stands for ever."""

    def parse(text: str) -> int:
        kept_ms = 0 if text.strip() in ("0", "forever") else parse_duration_ms(text)
        if 0 < kept_ms < parse_duration_ms(least):
            raise UsageError(
                f"'{text}' is less than the {least} that reports read", f"give 0 (for ever), or at least {least}"
            )
        return kept_ms

    return parse


_samples, _hourly = _kept_at_least("14d"), _kept_at_least("182d")


@dataclass(frozen=True)
class Setting:
    """A setting: its parser, its default as text, its meaning, and the reason for the default."""

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
        """True if the value is the path of a file that fallow reads."""
        return self.parse is _file

    @property
    def variable(self) -> str:
        return f"FALLOW_{self.section}_{self.key}".upper()


_SETTINGS: dict[str, tuple[tuple[Any, ...], ...]] = {
    "lake": (
        ("path", str, "", "location of the lake: a folder or an object store",
         "no default, because a guess could be wrong"),
        ("id", str, "", "id of the only lake into which the agent publishes; empty: the id at the first publication",
         "the agent records the id at its first publication"),
    ),
    "agent": (
        ("spool", str, "", "folder for rows that are not in the lake yet",
         "no default, because a guess could be wrong"),
        ("host", str, "", "name of this host in the lake; empty: the machine's host name"),
        ("pool", str, "", "name of the pool of hosts that this host belongs to"),
        ("expected_gpus", _count_or_auto, "auto",
         "number of GPUs that this host should have; auto: as many as the agent has observed or the PCI bus shows",
         "a GPU that is dead at the first start of the agent would be invisible"),
        ("interval", parse_duration_ms, "10s", "length of the interval of a row",
         "short enough for events of a minute, long enough for a negligible cost"),
        ("process_interval", parse_duration_ms, "30s", "how often process lists are read",
         "listing takes global driver locks; a change of memory by 64 MiB triggers a reading at once"),
        ("publish_every", parse_duration_ms, "5min", "how often finished rows are published to the lake",
         "each small file costs every query 0.4 ms"),
        ("slow_interval", parse_duration_ms, "5min", "how often error counters and the inventory are read",
         "they change with repairs and configuration, not with work"),
        ("call_timeout", parse_duration_ms, "5s", "how long a driver call may block before the GPU counts as wedged",
         "a healthy call takes micro- to milliseconds, and the sample rings of the other GPUs hold ten seconds"),
        ("stalled_after", parse_duration_ms, "7min",
         "how long kernels run without work, by two witnesses at least, before a GPU is a stalled suspect",
         "ranks of a job wait for one another for seconds, and for minutes while one of them writes a checkpoint"),
        ("command_arguments", _switch, "off", "record command lines, with secrets masked",
         "arguments contain secrets and names of people"),
        ("pseudonymise_users", _switch, "off",
         "replace users by keyed pseudonyms in everything that is recorded and shown; applies to imports too",
         "teams and findings work by name; a site that may not record names loses little with pseudonyms"),
        ("pseudonym_key_file", _file, "",
         ("file with the key of the pseudonyms: at least 32 bytes, the same on all hosts, not readable or writable by "
          "others"),
         "with the key, a reader can match pseudonyms to names that the reader knows"),
        ("sees_all_processes", _one_of("auto", "yes", "no"), "auto",
         "the agent's PID namespace contains every process that may use a GPU",
         "auto: yes in the host's namespace; in others the driver hides processes and their number is unknown"),
        ("spool_max", parse_bytes, "2GB",
         "largest size of the spool; from three quarters on, the agent samples less often",
         "a week of eight GPUs without a lake takes about 0.9 GB"),
        ("keep_published", parse_duration_ms, "1h",
         "how long published rows stay in the spool, in case the lake loses them",
         "a network file system may confirm rows that a crash of its server then loses"),
        ("machine_id", _file, "/etc/machine-id",
         "file with the machine's id; its hash distinguishes hosts with the same name",
         "a container may have another path"),
        ("proc", str, "/proc", "mount point of the host's /proc", "a container may have another path"),
        ("sys", str, "/sys", "mount point of the host's /sys", "a container may have another path"),
        ("log_format", _one_of("text", "json"), "text", "format of the log on standard error"),
        ("log_level", _one_of("debug", "info", "warning", "error"), "info", "lowest severity in the log"),
    ),
    "compaction": (
        ("own", _one_of("days", "hours", "off"), "days",
         "which of its own files the agent merges: files of past hours and days, of past hours only, or none",
         ("each small file costs every query 2 ms, and a day has 288 files a table. `hours` leaves days to `fallow "
          "lake compact`, and saves the 25 MiB that merging a day of eight GPUs takes for a second")),
        ("grace", parse_duration_ms, "1h", "how long files remain after a merged file has replaced them",
         "longer than a reader takes from its listing to its last file; the same as agent.keep_published"),
        ("lateness", parse_duration_ms, "15min",
         "how long after midnight (UTC) an agent waits for late rows of the day; each host adds up to an hour",
         "three times agent.publish_every; hosts must not merge their days at the same moment"),
        ("look_back", parse_duration_ms, "7d",
         "how far back an agent with a new spool merges the files of earlier agents",
         "a week's report reads as far back"),
    ),
    "retention": (
        ("gpu", _samples, "0", "how long `fallow lake expire` keeps rows of `gpu`; 0: for ever, else 14d or more",
         ("deletion needs a request; 90d keeps a quarter. At least two weeks: allocations arrive late, and pages draw "
          "readings")),
        ("process", _samples, "0", "like retention.gpu, for rows of `process`"),
        ("host", _samples, "0", "like retention.gpu, for rows of `host`"),
        ("serving", _samples, "0", "like retention.gpu, for rows of `serving`"),
        ("event", _hourly, "0", "like retention.gpu, for rows of `event`; 182d or more",
         "reports list the events of their window"),
        ("agent", _samples, "0", "like retention.gpu, for rows of `agent`"),
        ("process_day", _hourly, "0", "like retention.gpu, for rows of `process_day`; 182d or more",
         "reports compare 13 weeks with the 13 before"),
        ("hourly", _hourly, "0",
         "like retention.gpu, for rows of `hourly`, `host_hourly` and `serving_hourly`; 182d or more",
         "reports compare 13 weeks with the 13 before; 400 times smaller than the samples"),
    ),
    "metrics": (
        ("listen", str, "", "address:port for /metrics and /healthz; empty: off",
         "off: a listener needs a request"),
        ("health_listen", str, "", "address:port for /healthz alone, without token and TLS; empty: off",
         "a kubelet probes the address of the pod, where /metrics is not needed"),
        ("token_file", _file, "", "file with the bearer token that /metrics requires; empty: none"),
        ("tls_certificate", _file, "", "PEM file with the certificate; empty: no TLS"),
        ("otlp_endpoint", str, "",
         ("address of an OpenTelemetry collector that receives each interval over OTLP/HTTP, such as "
          "http://127.0.0.1:4318; empty: off"),
         "off: sending data from the host needs a request"),
        ("otlp_headers_file", _file, "",
         "file with headers for metrics.otlp_endpoint, such as `Authorization: Bearer ...`, one per line; empty: none",
         "a file, because settings and process lists would show a secret"),
        ("otlp_ca_file", _file, "", "PEM file with the CA of metrics.otlp_endpoint; empty: the system's CAs"),
        ("tls_key", _file, "", "PEM file with the certificate's key"),
    ),
    "kubernetes": (
        ("pod_resources", str, "/var/lib/kubelet/pod-resources/kubelet.sock",
         "the kubelet's pod-resources socket, used if it exists; empty: not used"),
        ("kubelet_url", str, "",
         "address of the kubelet, such as https://127.0.0.1:10250, for pod labels and container ids; empty: not used"),
        ("kubelet_token_file", _file, "/var/run/secrets/kubernetes.io/serviceaccount/token",
         "file with the bearer token for the kubelet"),
        ("kubelet_ca_file", _file, "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
         "PEM file with the kubelet's CA"),
    ),
    "slurm": (
        ("scontrol", str, "scontrol", "command that returns a job's account, used if it exists; empty: not used"),
        ("cluster", str, "",
         ("name of the cluster whose agents write to this lake: its jobs keep plain ids, a job of another is "
          "CLUSTER/ID")),
    ),
    "serving": (
        ("endpoints", str, "",
         ("metrics addresses of inference servers on this host, separated by commas, such as "
          "http://127.0.0.1:8000/metrics")),
        ("pod_namespaces", str, "",
         ("namespaces whose pods on this host are scraped, separated by commas; needs kubernetes.kubelet_url; empty: "
          "none"),
         "a server outside the allowed namespaces is never asked"),
        ("interval", parse_duration_ms, "30s", "how often inference servers are scraped",
         "a scrape of some servers has 200 kB"),
    ),
    "import": (
        ("max_bytes", parse_bytes, "256MiB", "largest size of an input file, unpacked",
         "five weeks of eight GPUs every ten seconds; 3 MB of gzip can stand for gigabytes"),
        ("max_record", parse_bytes, "8MiB",
         "largest size of a line, a JSON document or an XML document in an input file",
         "a document of a host with many processes is smaller than 1 MB"),
        ("max_rows", _count, "5000000", "most rows in an input file",
         "as many short lines as fit into import.max_bytes"),
    ),
    "prometheus": (
        ("url", str, "", "address of the metrics server, such as https://prometheus.example.org:9090/prefix"),
        ("match", str, "", 'PromQL label matchers for the series to read: cluster="a",pool=~"x|y"'),
        ("cluster_label", str, "",
         "label of the cluster, where clusters share names of hosts: hosts become HOST@CLUSTER"),
        ("mapping", _file, "", "TOML files with the site's mappings, separated by commas; see docs/prometheus.md"),
        ("token_file", _file, "",
         "file with the bearer token for the server; empty: the variable FALLOW_PROM_TOKEN"),
        ("user", str, "", "user name for basic authentication; empty: none"),
        ("password_file", _file, "",
         "file with the password; empty: the variable FALLOW_PROM_PASSWORD"),
        ("headers", str, "", "headers of each request, as `Name: value`, separated by commas"),
        ("tenant", str, "", "tenant of Mimir, Cortex or a Thanos proxy (X-Scope-OrgID); empty: none"),
        ("ca_file", _file, "", "PEM file with the server's CA; empty: the system's CAs"),
        ("certificate", _file, "", "PEM file with the client certificate; empty: none"),
        ("key", _file, "", "PEM file with the key of the client certificate"),
        ("concurrency", _count, "4", "concurrent requests to the server", "people's dashboards use the server too"),
        ("rate", _positive, "20", "most requests to the server per second"),
        ("collect_interval", _duration_or_unknown, "",
         "how often the exporters read the driver; empty: as their values show, else their default",
         "a scrape that repeats a reading is not a second reading"),
        ("every", parse_duration_ms, "5min", "how often `fallow follow prometheus` reads new samples",
         "like agent.publish_every: small files slow every query"),
        ("late", parse_duration_ms, "10min", "how far back `fallow follow prometheus` reads again for late samples",
         "remote-write queues and HA pairs lag by minutes at most"),
    ),
    "otlp": (
        ("listen", str, "127.0.0.1:4318", "address:port where `fallow follow otlp` receives metrics",
         "OTLP's port, on loopback: a collector on the same host pushes there"),
        ("spool", str, "", "folder for received metrics that are not in the lake yet",
         "no default, because a guess could be wrong"),
        ("max_spool", parse_bytes, "1GiB", "largest size of otlp.spool; beyond it senders are asked to retry later",
         "hours of a large site without a lake"),
        ("max_body", parse_bytes, "4MiB", "largest request, unpacked",
         "a collector's batch of 8,192 points is about 2 MB"),
        ("every", parse_duration_ms, "5min", "how often received metrics are published to the lake",
         "like agent.publish_every: small files slow every query"),
        ("token_file", _file, "", "file with the bearer token that senders need; empty: none"),
    ),
    "follow": (
        ("listen", str, "127.0.0.1:9478", "address:port where `fallow follow` serves /metrics and /healthz; empty: off",
         "loopback: access from other hosts needs a request; the metrics have counts and no names"),
    ),
    "ledger": (
        ("idle_after", parse_duration_ms, "5min", "how long a user may run no kernel before the time is `held`",
         "shorter idle intervals come from input waits and checkpoints"),
        ("stalled_after", parse_duration_ms, "7min",
         "how long kernels may do no work, by witnesses that agree, before the time is `stalled`",
         ("shorter ones come from barriers and checkpoints; a hang is reported within 10 minutes, also from rows of "
          "one minute")),
        ("low_below_pct", _positive, "10", "mean utilization of a segment below which it is `low`"),
        ("held_min_bytes", parse_bytes, "1GB",
         "memory in use that counts as a user if no process list is known",
         "the driver itself keeps well under 1 GB"),
        ("workers", _count_or_auto, "auto", "processes that build the ledger; auto: one per CPU, 1: in this process",
         "the days of a host are independent"),
        ("executor", str, "",
         "dask://host:port of a Dask scheduler whose workers build the ledger; empty: this machine",
         "one machine builds the days of thousands of GPUs (docs/dask.md)"),
    ),
    "findings": (
        ("held_min", parse_duration_ms, "60min", "shortest `held` segment that a finding counts",
         "after 60 idle minutes, 42 % of idle intervals last another hour; after 5 minutes only 4.7 %"),
        ("never_used_min", parse_duration_ms, "7d", "observed time without use after which a GPU is `never_used`",
         "a whole week, so that a weekend never looks like a surplus"),
        ("horizon", parse_duration_ms, "7d",
         "how long GPUs must stay unused for a finding that reclaims them to be right",
         "a GPU that another user gets is gone for days; 12h fits a release overnight"),
    ),
    "money": (
        ("currency", str, "USD",
         "currency of all sums; prices in other currencies need an exchange rate in the price table",
         "the currency of the built-in catalog"),
        ("prices", _file, "", "CSV file with the site's prices; empty: the built-in catalog of public list prices",
         "list prices are what a cloud charges on demand, not what a site pays: see docs/money.md"),
        ("owners", _file, "", "CSV file with the team of each user, account and namespace"),
        ("offers", _file, "", "CSV file with offers to buy, reserve or rent GPUs; `fallow prices --import` fills it",
         "prices are what a site pays, offers what it could pay: see docs/money.md"),
        ("provider", _name, "this site", "provider that bills the GPUs, in `fallow ledger --focus`"),
        ("goals", _file, "",
         "CSV file with goals for the unused share or the weekly waste, of all GPUs, a pool or a team, by a date"),
        ("energy_price_per_kwh", _not_negative, "0.12",
         "price of a kilowatt-hour, in money.currency; the default is in USD",
         ("between the industrial (8.72 cents) and commercial price (12.82 cents) in the US East North Central "
          "division in April 2025 (EIA)")),
        ("pue", _positive, "1.54", "power usage effectiveness: power of the site divided by power of its machines",
         "mean of the Uptime Institute's Global Data Center Survey 2025"),
        ("grid_kg_per_kwh", _not_negative, "0.445", "carbon dioxide per kilowatt-hour of the grid, in kg",
         "the world's mean in 2024 (IEA, Electricity 2025); your grid may have a tenth or twice as much"),
    ),
    "report": (
        ("language", _one_of("en", "fr"), "en", "language of the report"),
        ("timezone", str, "UTC", "IANA time zone of the report's weeks, hours and dates, such as Europe/Paris",
         "the ledger is in UTC"),
        ("to", str, "",
         "targets of `fallow report send` without --to, separated by commas; see docs/delivering.md",
         "the variable keeps a webhook's secret address out of process lists"),
        ("contacts", _file, "", "CSV file with the mail addresses of users, accounts, namespaces and teams"),
        ("opt_out", _file, "", "CSV file with the users, accounts, namespaces and teams that get no nudges"),
        ("cool_down", parse_duration_ms, "7d", "shortest time between two nudges about the same finding",
         "people read a weekly reminder and filter a daily one"),
        ("quiet_hours", str, "20:00-07:00", "hours in which no nudge is sent, in report.timezone; empty: none",
         "a nudge asks a person to act"),
        ("quiet_days", str, "sat,sun", "days on which no nudge is sent: mon to sun, separated by commas; empty: none"),
        ("nudge_deadline", _working_days, "1",
         ("working days to return unused GPUs, to state how long they are needed, or to check a fault; "
          "report.quiet_days do not count"),
         "the GPUs cost money meanwhile, and an answer takes one click"),
        ("nudge_deadline_change", _working_days, "5",
         "working days to move work to another card or to use a card better", "the owner has to study the work"),
        ("nudge_deadline_return", _working_days, "10",
         "working days for operators to release cards to their lender", "operators have to check contracts and hosts"),
        ("operators", str, "",
         "targets, as in report.to, of recommendations for operators: faults, cards to release, work without an owner",
         "a user cannot repair a GPU and gets no nudge about a fault"),
    ),
    "plan": (
        ("lead_time", parse_duration_ms, "12w", "time from the order of GPUs to their use",
         "a quarter of a year; no default fits every supplier: ask yours, or use `fallow plan forecast --lead-time`"),
        ("lost_per_interruption", parse_duration_ms, "1h",
         "work lost at each reclaim of a spot GPU: the work since the last checkpoint, and the restart",
         "half of an hourly checkpoint interval and half an hour to restart; your value may be minutes or many hours"),
        ("replay_error_pct", _positive, "25",
         "largest error of the replay of today with which `fallow plan replay` still reports waits"),
        ("requests", _file, "", "CSV file of GPU requests by team; see docs/planning.md"),
        ("carbon", _file, "",
         "CSV file with the grid's hourly carbon dioxide, or a number in g/kWh; see docs/planning.md",
         "empty: `money.grid_kg_per_kwh` for every hour"),
    ),
    "mail": (
        ("server", str, "", "SMTP server as host or host:port; the default port is 587, 465 or 25, by mail.security"),
        ("security", _one_of("starttls", "tls", "none"), "starttls",
         "encryption of the connection; with `none`, no password is sent",
         "RFC 6409 servers offer it; a server without it is an error, and plain text is no fallback"),
        ("from", str, "", "sender, as `GPU team <gpu@example.org>` or the address alone"),
        ("reply_to", str, "", "address for replies; empty: the sender"),
        ("user", str, "", "user name of the login; empty: no login"),
        ("password_file", _file, "", "file with the password; empty: the variable FALLOW_SMTP_PASSWORD"),
        ("ca_file", _file, "", "PEM file with the server's CA; empty: the system's CAs"),
        ("timeout", parse_duration_ms, "30s",
         "longest wait for an answer of the server; for a whole message ten times as long"),
    ),
    "webhook": (
        ("kind", _one_of("auto", "slack", "mattermost", "teams", "generic"), "auto",
         "message format of https:// targets", "auto: by the host for Slack and Teams, else generic"),
        ("ca_file", _file, "", "PEM file with the receivers' CA; empty: the system's CAs"),
        ("timeout", parse_duration_ms, "10s", "longest wait for an answer of a receiver"),
    ),
    "dashboard": (
        ("address", str, "",
         "address of the pages for people, such as https://gpus.example.org; links in mails start with it"),
        ("link_key_file", _file, "",
         ("file with a key of at least 32 bytes that signs links in nudges, readable by the sender and by the pages; "
          "empty: no links"),
         "with the key, a person can answer for any user"),
        ("hosts", str, "",
         "host names of the pages, separated by commas; this machine's name and addresses are always allowed",
         "a foreign site can point one of its names at these pages"),
        ("proxy_header", str, "", "header in which a reverse proxy names the user, such as X-Forwarded-User"),
        ("proxies", str, "",
         ("addresses and networks of the proxies that may set the header, separated by commas; other clients get no "
          "answer"),
         "a client that bypasses the proxy could use any name"),
        ("oidc_issuer", str, "", "address of the OpenID Connect provider to sign in with"),
        ("oidc_client_id", str, "", "client id of these pages at the provider"),
        ("oidc_client_secret_file", _file, "", "file with the client secret; empty: none"),
        ("oidc_scopes", str, "openid profile email", "requested scopes, separated by spaces"),
        ("oidc_user_claim", str, "preferred_username", "claim with the name of the user, as in dashboard.people",
         "`sub` never changes, but people cannot type it"),
        ("oidc_groups_claim", str, "groups", "claim with the groups of the user; it may be missing"),
        ("oidc_ca_file", _file, "", "PEM file with the provider's CA; empty: the usual CAs"),
        ("session", parse_duration_ms, "12h", "how long a sign-in lasts",
         "a working day; the provider may still know the user and ask for nothing"),
        ("session_idle", parse_duration_ms, "15min", "how long a sign-in lasts without a request",
         "an open page sends a request every minute; a stolen cookie soon expires"),
        ("state", str, "",
         ("folder of the sign-ins, shared by all processes and replicas; empty: a new folder at every start, which "
          "ends all sign-ins"),
         "a restart must not restore a sign-in that its user ended"),
        ("audit", str, "",
         ("file for a JSON line about each action of a user, or `syslog`; an action or download that cannot be logged "
          "is refused; empty: only standard error, as text")),
        ("session_key_file", _file, "",
         ("file with a key of at least 32 bytes that signs sign-ins; empty: a new key at every start, which ends all "
          "sign-ins")),
        ("people", _file, "", "CSV file with the roles and teams of users and groups"),
        ("memory", parse_bytes, "0",
         "memory of the pages, shared by --workers; 0: half of the limit of the container, the unit or the machine",
         "opened windows stay in memory up to this limit; the least recently used leave first"),
        ("default_role", _one_of("none", "viewer", "planner", "admin"), "none",
         "role of people who are not in dashboard.people; none: they are refused"),
        ("insecure_role", _one_of("viewer", "planner", "admin"), "viewer", "role of all users with --insecure"),
        ("connections", _count, "400",
         "most open connections of a process; beyond it the connection that has waited longest is closed",
         "a connection takes up to three file descriptors, and many systems allow 1,024"),
        ("connections_per_address", _count, "100",
         ("most connections of an address, except this machine and dashboard.proxies; beyond it the oldest of the "
          "address is closed"),
         "a browser opens six"),
        ("requests_per_minute", _count, "1200",
         "most requests of a person per process, in a minute or at once; beyond it the person is asked to wait",
         "opening a page takes about sixty requests"),
        ("sign_ins_per_minute", _count, "300",
         ("most requests without a sign-in, sign-ins included, per address and process; beyond it the client is asked "
          "to wait"),
         "hundreds of people may come through one proxy on a Monday morning"),
    ),
}  # fmt: skip
"""The other fields of each setting, by section."""

SETTINGS = tuple(Setting(section, *each) for section, own in _SETTINGS.items() for each in own)


@dataclass(frozen=True)
class Config:
    """The values in force, with their origins."""

    values: Mapping[str, Value]
    origins: Mapping[str, str]

    def text(self, name: str) -> str:
        return str(self.values[name])

    def integer(self, name: str) -> int:
        """Return the value of a setting in milliseconds or bytes, or of a number."""
        value = self.values[name]
        if not isinstance(value, int):
            raise TypeError(name)
        return value

    def switch(self, name: str) -> bool:
        return bool(self.values[name])

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the texts of a setting that is a list; empty without a value."""
        return tuple(item for each in self.text(name).split(",") if (item := each.strip()))

    def number(self, name: str) -> float:
        return float(self.values[name])

    def require(self, name: str, flag: str = "") -> str:
        """Return a text setting; raises UsageError, which names its flag and its variable, if it is empty."""
        if not (value := self.text(name)):
            give = f"give {flag}, " if flag else ""
            raise UsageError(
                f"{flag or name} is missing", f"{give}set {_NAMES[name].variable} or {name} in the config file"
            )
        return value


def load(
    flags: Mapping[str, str | None], path: str | None = None, environment: Mapping[str, str] = os.environ
) -> Config:
    """Return the settings in force, given the flags (`section.key` to text, None for a flag without a value).

    Raises ConfigError for an unreadable file, a wrong value, and an unknown key, with the nearest key as its hint.
    """
    from_file = _read_file(path or environment.get("FALLOW_CONFIG") or None)
    values: dict[str, Value] = {}
    origins: dict[str, str] = {}
    # Only variables that start with a section's name are checked.
    sections = tuple({f"FALLOW_{setting.section}_".upper() for setting in SETTINGS})
    for variable in environment:
        if variable.startswith(sections) and variable not in _VARIABLES and not _SERVICE_LINK.fullmatch(variable):
            raise _unknown(variable, "the environment")
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
    """Return a TOML value as the text of a flag: switches as on and off, lists with commas."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    if not isinstance(value, str | int | float):
        raise ConfigError(f"{where} is neither text nor a number", "write it as in docs/configuration.md")
    return str(value)


_NAMES = {setting.name: setting for setting in SETTINGS}
_VARIABLES = {setting.variable: setting for setting in SETTINGS}

# variables that Kubernetes sets in pods beside a service with the name fallow-agent
_SERVICE_LINK = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")


def _unknown(name: str, where: str) -> ConfigError:
    from difflib import get_close_matches  # with the error, not before

    of_section = [each for each in _NAMES if each.startswith(f"{name}.")][:1]
    near = of_section or get_close_matches(name, [*_NAMES, *_VARIABLES], n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "`fallow settings` lists every setting"
    return ConfigError(f"{where} sets {name}, which is not a setting", hint)
