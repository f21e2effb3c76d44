"""The ledger's money as cost rows of FOCUS 1.2, the FinOps Foundation's open specification of bills.

One row per GPU, UTC day, state, user and price. Columns and possible nulls: focus.finops.org/focus-specification/v1-2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

import polars as pl

from analytics.intervals import SPAN_MS
from analytics.inventory import Inventory
from analytics.money.costs import Costs
from analytics.money.priced_segments import UNNAMED, unused_amount
from analytics.money.window_money import Money
from analytics.states import AT_REST
from fallow.clock import HOUR_MS, Window
from fallow.outside_text import json_text

FOCUS_VERSION = "1.2"

_COST, _HOURS = pl.Decimal(38, 8), pl.Decimal(38, 10)
"""Digits of a cost: whole microcents, as in the ledger. A GPU-hour is exact to the millisecond."""

_MOMENT = pl.Datetime("ms", "UTC")

_KINDS: Mapping[pl.DataType, str] = {
    _COST: "BilledCost ContractedCost EffectiveCost ListCost x_UnconfirmedCost x_UnusedCost",
    _HOURS: "ConsumedQuantity ContractedUnitPrice ListUnitPrice PricingQuantity",
    _MOMENT: "BillingPeriodEnd BillingPeriodStart ChargePeriodEnd ChargePeriodStart",
    pl.Float64(): "x_CoverageRatio x_SampledRatio",
    pl.String(): """
        BillingAccountId BillingAccountName BillingCurrency ChargeCategory ChargeClass ChargeDescription
        ChargeFrequency ConsumedUnit InvoiceId InvoiceIssuerName PricingCategory PricingUnit ProviderName PublisherName
        ResourceId ResourceName ResourceType ServiceCategory ServiceName ServiceSubcategory SkuId SkuMeter
        SkuPriceDetails SkuPriceId SubAccountId SubAccountName SubAccountType Tags x_PriceSource x_State
    """,
}
SCHEMA = dict(sorted((name, kind) for kind, names in _KINDS.items() for name in names.split()))
"""Columns in the order of the file: FOCUS' own columns by name, then fallow's."""

_TAGS = ("state", "user", "team", "organisation", "account", "job", "pool", "host")
_PRICES = {"gpu": pl.String(), "since": pl.Int64(), "hourly": _HOURS, "source": pl.String()}
_KEYS = ("gpu", "day", "model", "since", *_TAGS)


@dataclass(frozen=True)
class Biller:
    """The provider of the GPUs and issuer of the bill, and the billed account: the lake."""

    provider: str
    account_id: str
    account_name: str


def focus_rows(
    money: Money, segments: pl.DataFrame, inventory: Inventory, biller: Biller, window: Window
) -> pl.DataFrame:
    """Return columns of SCHEMA, by day and GPU.

    Time without a price has a null cost, which FOCUS does not allow, and never 0. `segments` are the ledger's rows of
    the money, `window` is their window. A charge period is its day inside the window.
    """
    rows = (
        _sums(money.accounts.pieces)
        .join(_prices(money.costs), on=("gpu", "since"), how="left", nulls_equal=True)
        .join(_observed(segments), on=("gpu", "day"), how="left")
        .join(_resource_names(segments, inventory), on=("gpu", "host"), how="left")
        .sort("day", "gpu", *_TAGS, "since", nulls_last=True)
    )
    columns = {
        **_costs(money.currency),
        **_periods(window),
        **_resource(),
        **_payer(biller),
        "Tags": pl.lit(pl.Series(_tags(rows, inventory), dtype=pl.String)),
    }
    return rows.select(columns[name].cast(kind).alias(name) for name, kind in SCHEMA.items())


def _sums(pieces: pl.DataFrame) -> pl.DataFrame:
    """Return GPU time and amounts in microcents per row of the file; words for missing names are null."""
    state = pl.col("state")
    unused = pl.when(state == "low").then(unused_amount()).when(state.is_in(AT_REST)).then("amount")
    names = [
        pl.when(~pl.col(name).is_in(UNNAMED)).then(pl.col(name)).alias(name)
        for name in ("user", "account", "team", "organisation", "pool", "model")
    ]
    amounts = [
        pl.when(pl.col("amount").null_count() == 0).then(pl.col(name).sum()).alias(name)
        for name in ("amount", "open_amount", "unused")
    ]
    sums = (
        pieces.with_columns(*names, unused=unused)
        .group_by(_KEYS)
        .agg(*amounts, pl.col("gpu_ms").sum(), pl.col("instance").first())
    )
    # unknown time may be used or unused
    return sums.with_columns(unused=pl.when(state != "unknown").then("unused"))


def _prices(costs: Costs) -> pl.DataFrame:
    """Return `hourly` and `source` of every term with a price."""
    priced = [
        (gpu, term.since_ms, term.price.hourly, " ".join(filter(None, (term.price.source, str(term.price.date or "")))))
        for gpu, terms in costs.terms.items()
        for term in terms
        if term.price is not None
    ]
    return pl.DataFrame(priced, schema=_PRICES, orient="row")


def _observed(segments: pl.DataFrame) -> pl.DataFrame:
    """Return by GPU and day the observed share of the time, and its sampled share: null if nothing was observed."""
    seen = SPAN_MS.filter(pl.col("state") != "unknown").sum()
    sampled = pl.col("sampled_ms").sum() / pl.when(seen > 0).then(seen)
    day = pl.from_epoch("time", "ms").dt.strftime("%Y-%m-%d")
    return segments.group_by("gpu", day.alias("day")).agg(coverage=seen / SPAN_MS.sum(), sampled=sampled)


def _resource_names(segments: pl.DataFrame, inventory: Inventory) -> pl.DataFrame:
    """Return `resource`, such as `gn001/3`, of the GPUs whose number on their host is known."""
    names = []
    for gpu, host in segments.select("gpu", "host").unique().iter_rows():
        device = inventory.device(gpu, host)
        if device.gpu_index is not None and device.parent_gpu is None:
            names.append((gpu, host, f"{host}/{device.gpu_index}"))
    return pl.DataFrame(names, schema=dict.fromkeys(("gpu", "host", "resource"), pl.String), orient="row")


def _costs(currency: str) -> dict[str, pl.Expr]:
    """Return the amount paid, and for which quantity. List, contract and bill are the same, as a site has one price."""
    hours = (pl.col("gpu_ms") / HOUR_MS).round(10)
    costs = dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), _money("amount"))
    return {
        **costs,
        **dict.fromkeys(("ContractedUnitPrice", "ListUnitPrice"), pl.col("hourly")),
        **dict.fromkeys(("ConsumedQuantity", "PricingQuantity"), hours),
        **dict.fromkeys(("ConsumedUnit", "PricingUnit"), pl.lit("GPU-Hours")),
        "BillingCurrency": pl.lit(currency),
        "PricingCategory": pl.lit("Standard"),
        "x_UnconfirmedCost": _money("open_amount"),
        "x_UnusedCost": _money("unused"),
        "x_PriceSource": pl.col("source"),
    }


def _money(name: str) -> pl.Expr:
    """Return microcents as units of the currency."""
    return pl.col(name).cast(_COST) * pl.lit(Decimal("0.00000001"), _COST)


def _periods(window: Window) -> dict[str, pl.Expr]:
    day = pl.col("day").str.to_datetime("%Y-%m-%d", time_unit="ms", time_zone="UTC")
    month = day.dt.truncate("1mo")
    ends = [pl.lit(each, pl.Int64).cast(_MOMENT) for each in (window.since_ms, window.until_ms)]
    return {
        "BillingPeriodStart": month,
        "BillingPeriodEnd": month.dt.offset_by("1mo"),
        "ChargePeriodStart": pl.max_horizontal(day, ends[0]),
        "ChargePeriodEnd": pl.min_horizontal(day.dt.offset_by("1d"), ends[1]),
    }


def _resource() -> dict[str, pl.Expr]:
    """Return the GPU and its state, in words of FOCUS and of fallow."""
    model, state = pl.col("model"), pl.col("state")
    card = model.fill_null("GPU of an unknown model")
    price = pl.format("{} at {}", model, pl.col("hourly").cast(pl.String))
    return {
        "ChargeCategory": pl.lit("Usage"),
        "ChargeClass": pl.lit(None),
        "ChargeDescription": pl.format(
            "{}: {}, {} on {}", card, state, pl.col("user").fill_null("unknown user"), "host"
        ),
        "ChargeFrequency": pl.lit("Usage-Based"),
        "ResourceId": pl.col("gpu"),
        "ResourceName": pl.col("resource"),
        "ResourceType": pl.when("instance").then(pl.lit("MIG instance")).otherwise(pl.lit("GPU")),
        "ServiceCategory": pl.lit("Compute"),
        "ServiceName": pl.lit("GPU time"),
        "ServiceSubcategory": pl.lit("Virtual Machines"),
        "SkuId": model,
        "SkuMeter": pl.when(model.is_not_null()).then(pl.lit("GPU time")),
        "SkuPriceDetails": pl.when(price.is_not_null()).then(pl.lit('{"GpuCount": 1}')),
        "SkuPriceId": price,
        "x_CoverageRatio": pl.col("coverage"),
        "x_SampledRatio": pl.col("sampled"),
        "x_State": state,
    }


def _payer(biller: Biller) -> dict[str, pl.Expr]:
    """Return the team of the owners table, else the account or namespace; empty for time without a user."""
    team, account = pl.col("team"), pl.col("account")
    kind = pl.when(team.is_not_null()).then(pl.lit("Team")).when(account.is_not_null()).then(pl.lit("Account"))
    name = pl.coalesce(team, account)
    return {
        "BillingAccountId": pl.lit(biller.account_id),
        "BillingAccountName": pl.lit(biller.account_name),
        "InvoiceId": pl.lit(None),
        **dict.fromkeys(("InvoiceIssuerName", "ProviderName", "PublisherName"), pl.lit(biller.provider)),
        "SubAccountId": pl.format("{}/{}", kind.str.to_lowercase(), name),
        "SubAccountName": name,
        "SubAccountType": kind,
    }


def _tags(rows: pl.DataFrame, inventory: Inventory) -> Iterator[str]:
    """Return JSON objects. Unknown values have no key; `simulated` has none for real GPUs."""
    simulated = [gpu for gpu in rows["gpu"].unique() if inventory.simulated(gpu)]
    is_simulated = pl.when(pl.col("gpu").is_in(simulated)).then(pl.lit(value=True))
    tagged = rows.select(*_TAGS, coverage=pl.col("coverage").round(6), simulated=is_simulated)
    for row in tagged.iter_rows(named=True):
        yield json_text({f"fallow/{name}": value for name, value in row.items() if value is not None}, None)
