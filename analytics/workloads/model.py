"""What a finding is and how its sentence reads, and what a rule is given and gives back."""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Literal, TypeVar

from analytics.inventory import Inventory
from analytics.language.language import Sentence, SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.ledger.build import Ledger
from analytics.ledger.rollups import Rollups
from analytics.ledger.sampled import IdleFloors
from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.money.costs import Costs
from analytics.money.owners import Owners
from analytics.names import JOINER
from analytics.workloads.process_lists import ProcessHolders
from analytics.workloads.surplus import PoolSurplus
from analytics.workloads.waste import WasteKind
from fallow.clock import HOUR_MS, Window
from fallow.lake import Lake


def of_gpus(one: str, many: str = "") -> str:
    """A rule's sentence, said of one GPU and of several; the second form is for languages too where English has one."""
    return Sentence(one, {}, 2, many or one)


def agreeing(sentence: str, gpus: int) -> str:
    """A rule's sentence as it is said of so many GPUs."""
    if not isinstance(sentence, Sentence) or sentence.many is None:
        return sentence
    return Sentence(sentence.template, sentence.values, gpus, sentence.many)


def gpus_of(number: int) -> Sentence:
    return tr_many("{number} GPU", "{number} GPUs", number)


_HOSTS_NAMED = 3
"""Hosts up to which each is named."""


def gpus_on_hosts(number: int, host: str) -> Sentence:
    """`8 GPUs on node-07`; of more than three hosts, which `host` joins, only how many."""
    gpus = gpus_of(number)
    hosts = host.split(JOINER) if host else []
    if not hosts:
        return gpus
    several = tr_many("{number} host", "{number} hosts", len(hosts))
    where = SentenceList([plain(each) for each in hosts], ", ") if len(hosts) <= _HOSTS_NAMED else several
    return tr("{gpus} on {where}", gpus=gpus, where=where)


def joined_by_and(names: Sequence[str]) -> str:
    shown = names[0]
    for name in names[1:]:
        shown = tr("{name} and {other}", name=shown, other=name)
    return shown


def at_most_below(share: float) -> Share:
    """The share with one decimal, never rounded up."""
    return Share(math.floor(10 * (100 * share)) / 1000)


def floored(value: float) -> Number:
    """The number with one digit, never rounded up."""
    return Number(math.floor(10 * value) / 10, 1)


def hours_by_threshold(gpu_hours: Mapping[int, float]) -> Sentence:
    """`4.0 / 3.0 / 2.0 GPU-hours in intervals of at least 30 / 60 / 120 min`."""
    return tr(
        "{sums} GPU-hours in intervals of at least {minutes} min",
        sums=SentenceList((tr("{sum}", sum=Number(hours, 1)) for hours in gpu_hours.values()), " / "),
        minutes=" / ".join(map(str, gpu_hours)),
    )


def whole_gpus(value: float | str | None) -> Number:
    """A number of GPUs; parts of one only where a split card leaves them."""
    if value is None:
        return Number(None)
    number = round(float(value), 1)
    return Number(number, 0 if number.is_integer() else 1)


EvidenceValue = int | float | str | bool | None
"""A value in the evidence; None is unknown."""

CATEGORIES = ("reclaim", "right_size", "efficiency", "demand", "coverage")
"""What a finding is for: GPUs to take back, a smaller or older card, work that could use its GPU better (never
reclaimable), how GPUs are asked for, and what nobody saw."""


@dataclass(frozen=True)
class FindingSettings:
    """The rules' thresholds that a site sets; see docs/configuration.md. Others stand in the rules, with their sources."""

    held_min_ms: int
    never_used_min_ms: int
    horizon_ms: int


@dataclass(frozen=True)
class Context:
    """What a rule may look at: nothing that came after the window, so that a report on last month stays the same.

    `inside` is the ledger cut to the window, `whole` all that was known at its end; `rollups` are the hourly tables up to
    the window's end; `latest` says whether the lake knows nothing newer, so that processes may still be there.
    `until_ms` is the end of what was seen, `since_ms` its start inside the window. `ahead` are hosts whose clock is ahead: what
    they said of that moment is not what was the case then. `floors` are what confirms point samples at 0, where there are any.
    `now_ms` is the wall clock's time.
    """

    whole: Ledger
    inside: Ledger
    rollups: Rollups
    window: Window
    since_ms: int
    until_ms: int
    inventory: Inventory
    holders: ProcessHolders
    owners: Owners
    costs: Costs
    settings: FindingSettings
    latest: bool
    lake: Lake
    now_ms: int = 0
    ahead: frozenset[str] = frozenset()
    floors: IdleFloors | None = None

    @property
    def fell_silent(self) -> bool:
        """Whether nothing was seen at the end that was asked for, as far as that has passed: how GPUs stood then nobody knows."""
        asked_ms = self.window.until_ms
        return asked_ms is not None and self.until_ms < min(asked_ms, self.now_ms) - SILENT_AFTER_MS


HIGH_MIN, MEDIUM_MIN = 0.95, 0.80
"""What a promise of high and of medium confidence must be worth."""


@dataclass(frozen=True)
class Outlook:
    """The probability that GPUs which have been idle for `age_ms` stay unused for `horizon_ms` more.

    Both are None where one of the GPUs was in use or not observed at the end of the window: nothing can be promised of it.
    """

    probability: float | None
    age_ms: int | None
    horizon_ms: int

    @property
    def is_doubtful(self) -> bool:
        """Whether it is not even worth medium confidence."""
        return self.probability is None or self.probability < MEDIUM_MIN


GRADES = ("high", "medium", "low")
"""Of confidence, the surest first."""


@dataclass(frozen=True)
class Confidence:
    """How sure: `high` with no failed condition, `medium` with one, `low` with more; each failure in words.

    Where there is an outlook, `high` also promises at least HIGH_MIN, and `medium` MEDIUM_MIN.
    """

    failed: tuple[str, ...]
    outlook: Outlook | None = None

    @property
    def grade(self) -> str:
        # a promise that is not worth `high` is one of those that failed; one that is not worth `medium` counts twice
        is_doubtful = self.outlook is not None and self.outlook.is_doubtful
        return GRADES[min(len(self.failed) + is_doubtful, 2)]


@dataclass(frozen=True)
class Evidence:
    """Numbers (names carry units) and the interval that they cover."""

    since_ms: int
    until_ms: int
    numbers: Mapping[str, EvidenceValue]


@dataclass(frozen=True)
class Finding:
    """One thing that somebody could act on. `gpu_ms` is the GPU time inside the window that it is about.

    `subject` tells it from the rule's other findings (on `id_host`, where the rule looks at each host for itself) and is the
    same next week: a holder, a job's name, a GPU or nothing. `id_host` is empty where the rule looks at the fleet. `cost` is None where a price is missing. `status` is given by the lifecycle, `standing` without one. `surplus` is what the rule of that name found, typed. `beside_unknown`: somebody without a name may have a part in its work.
    """

    rule: str
    category: str
    sentence: str
    subject: str
    gpus: tuple[str, ...]
    host: str
    id_host: str
    holder: str | None
    since_ms: int
    gpu_ms: float
    energy_kwh: float | None
    confidence: Confidence
    reclaimable_gpus: tuple[str, ...]
    evidence: Evidence
    next_command: str
    simulated: bool
    team: str | None = None
    job: str | None = None
    cost: float | None = None
    currency: str | None = None
    status: str = "standing"
    notes: tuple[str, ...] = field(default=())
    surplus: PoolSurplus | None = None
    beside_unknown: bool = False

    @property
    def finding_id(self) -> str:
        """Stable over weeks: from rule and subject, and the host where the rule looks at each host for itself."""
        return "F-" + hashlib.sha256(f"{self.rule}\0{self.id_host}\0{self.subject}".encode()).hexdigest()[:10]

    @property
    def unconfirmed(self) -> float:
        """The share of its time that point samples alone call idle."""
        share = self.evidence.numbers.get("unconfirmed")
        return float(share) if isinstance(share, int | float) else 0.0

    @property
    def without_holder(self) -> str:
        """What stands for the holder where there is no name: nobody at all, or somebody unknown."""
        return "nobody" if self.evidence.numbers.get("holder_source", "") == "" else "not known"

    @property
    def reclaimable(self) -> bool:
        """Whether anything of it can be taken back at the end of the window."""
        return bool(self.reclaimable_gpus)

    @property
    def gpu_hours(self) -> float:
        return self.gpu_ms / HOUR_MS


Value = int | float | str | bool
"""A known value in the evidence."""


@dataclass(frozen=True)
class Label:
    """How some values of the evidence read that stand beside each other, mostly one.

    `words` gets those of `keys` that are known, by key, and the finding; it gives nothing for what machines alone need.
    """

    keys: tuple[str, ...]
    words: Callable[[Mapping[str, Value], Finding], Iterable[str]]


@dataclass(frozen=True)
class HistoryNeed:
    """What has to be known before a rule can find anything: so long a time, so long as a setting says, so many GPU-hours."""

    span_ms: int = 0
    setting: Literal["held_min_ms", "never_used_min_ms"] | None = None
    gpu_hours: float = 0.0

    def least_ms(self, settings: FindingSettings, gpus: int) -> int:
        """How long a fleet of so many GPUs has to be observed at the least."""
        by_setting = 0 if self.setting is None else getattr(settings, self.setting)
        return max(self.span_ms, by_setting, round(self.gpu_hours * HOUR_MS / max(gpus, 1)))


@dataclass(frozen=True)
class Rule:
    """One rule, one file: what it finds, and what becomes of that. `name` is that of its module."""

    name: str
    category: str
    sentence: str
    """Said of the finding's GPUs."""
    kinds: tuple[WasteKind, ...]
    """The kinds of wasted time that its findings claim, in the order of `waste.PRECEDENCE`."""
    precedence: int
    """Of rules that claim the same time the lowest number has it."""
    thresholds: Mapping[str, str]
    """The numbers that it depends on, each with its source, for people to read."""
    history: HistoryNeed
    """What has to be known before it can find anything."""
    find: Callable[[Context], Iterable[Finding]]
    """The query that yields its findings, in no order."""
    per_host: bool = False
    """Whether it looks at each host for itself, so that a subject may come up on several, in a finding for each."""
    of_machine: bool = False
    """A fault of the machine: operators repair it, and the user of the GPU neither can nor reads of it."""
    of_part: bool = False
    """About a part of a card: its user cannot split the card, nor find who takes the rest."""
    of_pool: bool = False
    """About how many GPUs of a pool are needed: one of them at work does not refute it."""
    advice: str = ""
    """What the user is asked to change in work that runs, or operators to do about a machine. Users are not asked where it is empty."""
    has_lost_user: Callable[[Finding], bool] = lambda _: False
    """Whether the work of a finding has lost the user who started it, so that operators end it."""
    labels: tuple[Label, ...] = ()
    """Of the evidence that only this rule has; the others are `finding_parts.SHARED_LABELS`."""


Result = TypeVar("Result")


def once_per_context(compute: Callable[[Context], Result]) -> Callable[[Context], Result]:
    """Keeps what a function makes of a context for as long as the context lives.

    Contexts hold frames, which cannot be hashed, so it is the object itself that is remembered. Two threads that come
    first at once both compute, and get equal results.
    """
    kept: dict[int, Result] = {}

    @wraps(compute)
    def remembered(context: Context) -> Result:
        key = id(context)
        if key not in kept:
            kept[key] = compute(context)
            weakref.finalize(context, kept.pop, key, None).atexit = False
        return kept[key]

    return remembered
