"""Findings and their sentences, and the input and output of a rule."""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import update_wrapper
from typing import Generic, Literal, TypeVar

import polars as pl

from analytics.capacity.jobs import PoolModel
from analytics.inventory import Inventory
from analytics.language.sentences import Number, Sentence, SentenceList, Share, plain, tr, tr_many
from analytics.ledger.build import Ledger
from analytics.ledger.rollups import Rollups
from analytics.ledger.sampled import Basis, IdleFloors
from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.money.costs import Costs
from analytics.money.owners import Owners
from analytics.names import JOINER
from analytics.workloads.process_lists import ProcessUsers
from fallow.clock import HOUR_MS, Window
from fallow.lake import Lake


def of_gpus(one: str, many: str = "") -> str:
    """Return a rule's sentence for one GPU and for several; `many` also serves languages that need two forms."""
    return Sentence(one, {}, 2, many or one)


def agreeing(sentence: str, gpus: int) -> str:
    """Return a rule's sentence for a number of GPUs."""
    if not isinstance(sentence, Sentence) or sentence.many is None:
        return sentence
    return Sentence(sentence.template, sentence.values, gpus, sentence.many)


def gpus_of(number: int) -> Sentence:
    return tr_many("{number} {GPU|GPUs}", number)


_HOSTS_NAMED = 3
"""Up to this number, hosts are named."""


def gpus_on_hosts(number: int, host: str) -> Sentence:
    """Return `8 GPUs on node-07`; with more than three hosts (joined in `host`), only their number."""
    gpus = gpus_of(number)
    hosts = host.split(JOINER) if host else []
    if not hosts:
        return gpus
    several = tr_many("{number} {host|hosts}", len(hosts))
    where = SentenceList([plain(each) for each in hosts], ", ") if len(hosts) <= _HOSTS_NAMED else several
    return tr("{gpus} on {where}", gpus=gpus, where=where)


def joined_by_and(names: Sequence[str]) -> str:
    shown = names[0]
    for name in names[1:]:
        shown = tr("{name} and {other}", name=shown, other=name)
    return shown


def at_most_below(share: float) -> Share:
    """Return the share with one decimal, never rounded up."""
    return Share(math.floor(10 * (100 * share)) / 1000)


def floored(value: float) -> Number:
    """Return the number with one digit, never rounded up."""
    return Number(math.floor(10 * value) / 10, 1)


def whole_gpus(value: float | str | None) -> Number:
    """Return a number of GPUs; fractions occur only with split cards."""
    if value is None:
        return Number(None)
    number = round(float(value), 1)
    return Number(number, 0 if number.is_integer() else 1)


EvidenceValue = int | float | str | bool | None
"""A value in the evidence; None is unknown."""

CATEGORIES = ("reclaim", "right_size", "efficiency", "demand", "coverage")
"""Purposes of findings.

GPUs to reclaim, a smaller or older card, work that could use its GPU better (never reclaimable), requests for GPUs, and
unobserved GPUs.
"""


@dataclass(frozen=True)
class FindingSettings:
    """The thresholds of rules that a site sets (`fallow settings`). The rules have the others, with their sources.

    Days are days of `zone`.
    """

    held_min_ms: int
    never_used_min_ms: int
    horizon_ms: int
    lead_days: int
    """Days from the order of GPUs to their use."""
    zone: tzinfo


@dataclass(frozen=True)
class Context:
    """The data that a rule may read: nothing after the window, so a report on last month stays the same."""

    whole: Ledger
    """The ledger known at the window's end."""
    inside: Ledger
    """The ledger cut to the window."""
    rollups: Rollups
    """The hourly tables up to the window's end."""
    window: Window
    since_ms: int
    """Start of the observed time inside the window."""
    until_ms: int
    """End of the observed time."""
    inventory: Inventory
    users: ProcessUsers
    owners: Owners
    costs: Costs
    settings: FindingSettings
    latest: bool
    """True if the lake has no newer row, so that processes may still be there."""
    lake: Lake
    jobs: Callable[[], pl.DataFrame]
    """Returns every job of the lake, with JOB_SCHEMA; read once for this window and the one a week before."""
    now_ms: int = 0
    """The wall clock's time."""
    ahead: frozenset[str] = frozenset()
    """Hosts whose clock is ahead. Their rows at that moment do not describe it."""
    floors: IdleFloors | None = None
    """The values that confirm point samples at 0; None without any."""

    @property
    def fell_silent(self) -> bool:
        """Return whether the requested end has passed and was not observed. The state of GPUs then is unknown."""
        asked_ms = self.window.until_ms
        return asked_ms is not None and self.until_ms < min(asked_ms, self.now_ms) - SILENT_AFTER_MS


HIGH_MIN, MEDIUM_MIN = 0.95, 0.80
"""Least probability of a promise with high and with medium confidence."""


@dataclass(frozen=True)
class Outlook:
    """The probability that GPUs idle for `age_ms` stay unused for `horizon_ms` more, and for one day more.

    All are None if one of the GPUs was in use or not observed at the end of the window: then there is no promise.
    """

    probability: float | None
    age_ms: int | None
    horizon_ms: int
    day_probability: float | None = None

    @property
    def is_doubtful(self) -> bool:
        """Return whether the probability is below that of medium confidence."""
        return self.probability is None or self.probability < MEDIUM_MIN


GRADES = ("high", "medium", "low")
"""Grades of confidence, the surest first."""


@dataclass(frozen=True)
class Confidence:
    """Confidence: `high` with no failed condition, `medium` with one, `low` with more; each failure as a sentence.

    With an outlook, `high` also needs at least HIGH_MIN, and `medium` MEDIUM_MIN, for the outlook's horizon.
    """

    failed: tuple[str, ...]
    outlook: Outlook | None = None

    @property
    def grade(self) -> str:
        # a promise below `high` counts as a failed condition; a promise below `medium` counts twice
        is_doubtful = self.outlook is not None and self.outlook.is_doubtful
        return GRADES[min(len(self.failed) + is_doubtful, 2)]

    @property
    def is_low(self) -> bool:
        """Return whether the confidence is too low to be listed by default or to count in a headline."""
        return self.grade == "low"

    @property
    def day_grade(self) -> str | None:
        """Return the grade by the probability of staying unused for one day, not the horizon; None without one."""
        if self.outlook is None or self.outlook.day_probability is None:
            return None
        others = len(self.failed) - (self.outlook.probability is None or self.outlook.probability < HIGH_MIN)
        lacks = sum(self.outlook.day_probability < least for least in (HIGH_MIN, MEDIUM_MIN))
        return GRADES[min(others + lacks, 2)]


@dataclass(frozen=True)
class Evidence:
    """Figures (names carry units) and the interval that they cover."""

    since_ms: int
    until_ms: int
    numbers: Mapping[str, EvidenceValue]


Says = Literal["stalled", "work", "nothing"]


@dataclass(frozen=True)
class Witness:
    """A witness of whether kernels do work: its name and what it measured."""

    name: str
    value: float | None
    """None: not measured."""
    unit: str
    most: float | None
    """The largest value without work; None where there is no limit or it is unknown."""
    says: Says | None
    """What the value speaks for; None without a value."""


@dataclass(frozen=True)
class Finding:
    """Evidence for a recommendation."""

    rule: str
    category: str
    sentence: str
    subject: str
    """Distinguishes the rule's findings (of a host, if the rule works per host) and stays the same next week: a user, a
    job's name, a GPU or nothing."""
    gpus: tuple[str, ...]
    host: str
    id_host: str
    """Empty if the rule looks at the whole fleet."""
    user: str | None
    since_ms: int
    gpu_ms: float
    """GPU time of the finding inside the window."""
    energy_kwh: float | None
    confidence: Confidence
    reclaimable_gpus: tuple[str, ...]
    evidence: Evidence
    next_command: str
    simulated: bool
    team: str | None = None
    job: str | None = None
    cost: float | None = None
    """None if a price is missing."""
    currency: str | None = None
    status: str = "standing"
    """From the lifecycle; `standing` without one."""
    notes: tuple[str, ...] = field(default=())
    witnesses: tuple[Witness, ...] = ()
    """Of stalled time, in the order of a reader's interest; empty for other findings."""
    pool: PoolModel | None = None
    """Pool and model of a release."""
    beside_unknown: bool = False
    """True if an unnamed user may have a part in its work."""

    @property
    def finding_id(self) -> str:
        """Return an id that is stable over weeks: from rule and subject, and the host if the rule works per host."""
        return "F-" + hashlib.sha256(f"{self.rule}\0{self.id_host}\0{self.subject}".encode()).hexdigest()[:10]

    @property
    def unconfirmed(self) -> float:
        """Return the share of the finding's time that is idle by point samples only."""
        share = self.evidence.numbers.get("unconfirmed")
        return float(share) if isinstance(share, int | float) else 0.0

    @property
    def basis(self) -> Basis | None:
        """Return the basis of the idle time; None for running work and for unobserved time."""
        if self.category not in ("reclaim", "demand"):
            return None
        likely = self.evidence.numbers.get("very_likely")
        return Basis.of(self.unconfirmed, float(likely) if isinstance(likely, int | float) else 0.0)

    @property
    def without_user(self) -> str:
        """Return the words for a finding without a user's name: no user, or an unknown user."""
        return "no user" if self.evidence.numbers.get("user_source", "") == "" else "not known"

    @property
    def reclaimable(self) -> bool:
        """Return whether any GPU can be reclaimed at the end of the window."""
        return bool(self.reclaimable_gpus)

    @property
    def gpu_hours(self) -> float:
        return self.gpu_ms / HOUR_MS


Value = int | float | str | bool
"""A known value in the evidence."""


@dataclass(frozen=True)
class Label:
    """Words for evidence values that appear together, mostly a single value.

    `words` gets the known values of `keys`, by key, and the finding; it returns nothing for values that only programs
    need.
    """

    keys: tuple[str, ...]
    words: Callable[[Mapping[str, Value], Finding], Iterable[str]]


Result = TypeVar("Result")


class OncePerContext(Generic[Result]):
    """A function of a context whose results are cached for the lifetime of the context.

    Contexts hold frames, which cannot be hashed, so the cache key is the object itself. Two threads that come first at
    the same time both compute, and get equal results.
    """

    def __init__(self, compute: Callable[[Context], Result]) -> None:
        update_wrapper(self, compute)
        self._compute = compute
        self._kept: dict[int, Result] = {}

    def __call__(self, context: Context) -> Result:
        if id(context) not in self._kept:
            self.give(context, self._compute(context))
        return self._kept[id(context)]

    def give(self, context: Context, result: Result) -> None:
        """Cache a result that is known from elsewhere."""
        self._kept[id(context)] = result
        weakref.finalize(context, self._kept.pop, id(context), None).atexit = False


def once_per_context(compute: Callable[[Context], Result]) -> OncePerContext[Result]:
    return OncePerContext(compute)
