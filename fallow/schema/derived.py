"""Tables that are computed from the observed ones and can be rebuilt at will."""

from __future__ import annotations

from fallow.schema.types import Column, Table, Type

_LEDGER = "analytics.ledger"
_TIME = Column("time", Type.TIMESTAMP, "start", _LEDGER, "UTC", "1 ms", key=True)
_GPU = Column("gpu", Type.STRING, "UUID of the GPU or MIG instance", "gpu table", key=True, dictionary=True)

LEDGER = Table(
    "ledger",
    "one stretch of one GPU in exactly one state, cut at UTC midnight; the stretches of a GPU neither overlap nor leave gaps",
    derived=True,
    columns=(
        _TIME,
        _GPU,
        Column("end", Type.TIMESTAMP, "end, exclusive", _LEDGER, "UTC", "1 ms"),
        Column("state", Type.STRING, "unknown, unavailable, free, reserved, held, low or active", _LEDGER, dictionary=True),
        Column("stretch_start", Type.TIMESTAMP, "start of the whole stretch, before the cut at midnight", _LEDGER, "UTC", "1 ms"),
        Column("stretch_end", Type.TIMESTAMP, "end of the whole stretch, before the cut at midnight", _LEDGER, "UTC", "1 ms"),
        Column("holder", Type.STRING, "who holds or claims the GPU: the users of its processes, joined by `+`",
               "process and claim tables", dictionary=True),
        Column("holder_source", Type.STRING, "process, claim, memory (in use: stands for a holder) or unwatched (neither processes nor memory were read)", _LEDGER,
               dictionary=True),
        Column("gpu_util_mean_pct", Type.DOUBLE, "time-weighted mean utilization", "gpu table", "%"),
        Column("gpu_util_max_pct", Type.DOUBLE, "largest utilization", "gpu table", "%"),
        Column("zero_ms", Type.INT64, "time at a measured utilization of 0", "gpu table", "ms", "1 ms"),
        Column("util_ms", Type.INT64, "time for which a utilization was measured", "gpu table", "ms", "1 ms"),
        Column("mem_used_max_bytes", Type.INT64, "largest memory in use", "gpu table", "bytes", "1 byte"),
        Column("power_mean_w", Type.DOUBLE, "time-weighted mean power", "gpu table", "W"),
        Column("energy_mj", Type.DOUBLE, "mean power times the time it was known for", "gpu table", "mJ"),
        Column("sample_count", Type.INT64, "rows of the gpu table that the stretch rests on", "gpu table", "1", "1"),
        Column("coverage_ratio", Type.DOUBLE,
               "share of the stretch in which utilization was really watched, by the rows' own coverage where they state it",
               "gpu table", "1"),
    ),
)  # fmt: skip

SPELL = Table(
    "spell",
    "one unbroken spell of measured zero utilization of one GPU, whoever holds it, cut at UTC midnight",
    derived=True,
    columns=(
        _TIME,
        _GPU,
        Column("end", Type.TIMESTAMP, "end, exclusive", _LEDGER, "UTC", "1 ms"),
        Column("spell_start", Type.TIMESTAMP, "start of the whole spell, before the cut at midnight", _LEDGER, "UTC", "1 ms"),
        Column("spell_end", Type.TIMESTAMP, "end of the whole spell, before the cut at midnight", _LEDGER, "UTC", "1 ms"),
    ),
)  # fmt: skip

HOURLY = Table(
    "hourly",
    "one GPU in one hour: what intervals cannot keep",
    derived=True,
    columns=(
        _TIME,
        _GPU,
        Column("observed_ms", Type.INT64, "time for which a utilization was measured", "gpu table", "ms", "1 ms"),
        Column("gpu_util_ms", Type.INT_LIST, "time at each whole percent of utilization, 0 to 100 (mergeable by adding)",
               "gpu table", "ms", "1 ms"),
        Column("sm_active_ms", Type.INT_LIST, "time at each whole percent of SM activity, 0 to 100", "gpu table", "ms", "1 ms"),
        Column("mem_used_max_bytes", Type.INT64, "largest memory in use", "gpu table", "bytes", "1 byte"),
        Column("power_mean_w", Type.DOUBLE, "time-weighted mean power", "gpu table", "W"),
        Column("energy_mj", Type.INT64, "energy counter's rise over the hour", "gpu table", "mJ", "1 mJ"),
    ),
)  # fmt: skip

FINDING = Table(
    "finding",
    "one finding as it stood at one time",
    derived=True,
    columns=(
        Column("time", Type.TIMESTAMP, "end of the window that the finding was computed over", "analytics", "UTC", "1 ms",
               key=True),
        Column("finding_id", Type.STRING, "stable over weeks: from rule, host and subject (a holder or a GPU)", "analytics.findings", key=True),
        Column("rule", Type.STRING, "the rule that fired", "analytics.rules", dictionary=True),
        Column("gpus", Type.STRING_LIST, "UUIDs of the GPUs", "ledger"),
        Column("host", Type.STRING, "host of the GPUs", "ledger", dictionary=True),
        Column("holder", Type.STRING, "who holds or claims the GPUs", "ledger", dictionary=True),
        Column("since", Type.TIMESTAMP, "when what the finding says began", "ledger", "UTC", "1 ms"),
        Column("gpu_hours", Type.DOUBLE, "GPU time that the finding is about, inside the window", "ledger", "h"),
        Column("energy_kwh", Type.DOUBLE, "energy spent in that time", "ledger", "kWh"),
        Column("cost", Type.DOUBLE, "price of that time; null while no price is known", "price table"),
        Column("confidence", Type.STRING, "high, medium or low", "analytics.findings", dictionary=True),
        Column("failed_conditions", Type.STRING_LIST, "each condition for high confidence that failed, in words",
               "analytics.findings"),
        Column("reclaimable_gpus", Type.STRING_LIST, "UUIDs of the GPUs that could be given to somebody else at the end",
               "rule"),
        Column("evidence", Type.STRING, "the numbers and the interval that they cover, as JSON", "rule"),
        Column("next_command", Type.STRING, "what to type next; fallow never runs it", "rule"),
        Column("status", Type.STRING, "new, notified, acknowledged, suppressed, closed or reversed", "analytics.findings",
               dictionary=True),
    ),
)  # fmt: skip
