"""Cards for a model: its memory need, the cards that fit it, and their upper bounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

from analytics.language.sentences import Amount, Bytes, Number, Sentence, Share, plain, tr, tr_many
from analytics.plan.fit import FittedOption, ModelFit
from analytics.plan.model_needs import ERROR, MemoryNeed, Serving, Training
from analytics.plan.seen_work import CardOption
from analytics.tables.names import NAME_MOST, amount_column
from analytics.tables.table import Cell, Column, Table, column, fact, single

_TITLE = tr("Memory that the model needs")
_QUESTION = tr("How much memory does this model need?")
_UNPRICED = 8
"""Cards without a known price that a document lists after the cards with one."""
_PARTS = {
    "weights": tr("weights"),
    "gathered": tr("layers gathered from other cards"),
    "kv_cache": tr("keys and values (KV cache)"),
    "working": tr("working memory"),
    "gradients": tr("gradients"),
    "optimizer": tr("optimizer"),
    "adapters": tr("adapters"),
    "activations": tr("activations"),
    "logits": tr("word scores (logits)"),
    "free": tr("free blocks of the allocator"),
    "updating": tr("copies while the optimizer works"),
    "runtime": tr("runtime"),
    "together": tr("total"),
    "for_sure": tr("safe size"),
}
_METHOD_WORDS = {"full": tr("full training"), "lora": "LoRA", "qlora": "QLoRA"}

CARD = column("card", tr("cards"), "name", lambda row: option_words(row.option), "option.card.name")
FITS = column("fits", tr("fits"), "words", lambda row: tr("tight") if row.option.is_tight else tr("yes"))
SOFTWARE = column("software", tr("software"), "words", "option.card.software")
IN_FLEET = column("in_fleet", tr("in the fleet"), "count", "option.there")
OPTION_FACTS = (
    fact("count", "count", "option.count"),
    fact("mig_profile", "name", "option.part.profile.name"),
    fact("link", "name", "option.link"),
    fact("need_bytes", "number", "option.need.total"),
    fact("formats", "words", "option.card.formats", "array"),
    fact("price_origin", "words", "option.origin"),
)
"""Columns over rows with an `option`: cards that fit the workload."""

_PRICE_KINDS = {
    "site": tr("own price"),
    "on_demand": tr("on demand"),
    "spot": tr("spot"),
    "lowest": tr("lowest of a marketplace"),
}
_SOFTWARE = {
    "CUDA": tr(
        "CUDA: vLLM, SGLang, TensorRT-LLM and llama.cpp serve, PyTorch with bitsandbytes, FSDP and DeepSpeed trains."
        " vLLM needs a card of Volta (2017) or later."
    ),
    "ROCm": tr(
        "ROCm: vLLM, SGLang and llama.cpp serve, PyTorch with bitsandbytes and FSDP trains, in their ROCm builds."
        " TensorRT-LLM and other CUDA programs do not run."
    ),
    "Gaudi": tr(
        "Gaudi: vLLM serves with Intel's plugin, PyTorch trains by Optimum for Habana. Other servers and CUDA programs"
        " must be ported."
    ),
    "oneAPI": tr(
        "oneAPI: vLLM serves on its XPU backend, llama.cpp with SYCL, and PyTorch's XPU backend trains. CUDA programs"
        " do not run."
    ),
    "MPS": tr(
        "MPS: llama.cpp and MLX serve, vLLM with a plugin for Metal; MLX and PyTorch train. CUDA programs do not run."
        " The GPU shares the host's memory: macOS lets it take two thirds up to 32 GB and three quarters above."
    ),
}
"""What runs on the cards of each software, and what that means for a model's server."""


def hourly(currency: str | None) -> tuple[Column, Column]:
    """Return the price of an hour of all cards of an option, and the kind of price."""
    return (
        amount_column("hourly", tr("cost per hour"), currency, "option.hourly"),
        column("price_kind", tr("price"), "words", lambda row: _PRICE_KINDS.get(row.option.basis, ""), "option.basis"),
    )


def software_notes(options: Iterable[CardOption]) -> tuple[Sentence, ...]:
    """Return what runs on some cards."""
    found = {option.card.software for option in options}
    return tuple(words for software, words in _SOFTWARE.items() if software in found)


def memory_table(found: ModelFit) -> Table:
    """Return the memory need of the model per card, by part, in the requested form and in the others."""
    columns = [_memory_column(form, need) for form, need in found.forms]
    return Table(
        name="memory",
        title=_TITLE,
        question=_QUESTION,
        headline=_need_sentence(found),
        columns=(column("part", tr("used for"), "words", _PARTS.get, str), *columns),
        rows=tuple(part for part in _PARTS if any(each.value(part) is not None for each in columns)),
        notes=tuple(_memory_notes(found)),
        wide=True,
    )


def _memory_column(form: Serving | Training, need: MemoryNeed) -> Column:
    sizes = {**dict(need.parts), "together": need.total, "for_sure": need.high}
    key, title = (
        (f"bits_{form.bits}_bytes", tr("{bits} bits", bits=form.bits))
        if isinstance(form, Serving)
        else (f"{form.method}_bytes", _METHOD_WORDS[form.method])
    )
    return column(key, title, "number", lambda part: Bytes(sizes[part]) if part in sizes else "", sizes.get)


def fitted_model(found: ModelFit) -> Table:
    """Return for programs the model, the requested workload, and its need per card."""
    return single(
        "fit_model",
        (
            fact("name", "name", "shape.name"),
            fact("is_typical_layout", "words", "shape.is_typical", "boolean"),
            fact("parameters", "count", "shape.parameters"),
            fact("active_parameters", "count", "shape.active"),
            fact("need_bytes", "number", "need.total"),
            fact("sure_bytes", "number", "need.high"),
            fact("work", "words", lambda each: asdict(each.work), "object"),
        ),
        found,
    )


def missing_model(name: str, lacks: Sequence[str], uneven: str | None) -> tuple[Table, Table]:
    """Return why a model is not estimated, in words and for programs."""
    called = plain(name, NAME_MOST)
    why = tr(
        "{name} lacks {keys}, so its memory is unknown. Give --params to use a typical layout of that size.",
        name=called,
        keys=", ".join(lacks),
    )
    if uneven:
        why = tr(
            "{name} is not estimated: no formula here knows layers with {key}. Give --params.", name=called, key=uneven
        )
    words = Table(name="memory", title=_TITLE, question=_QUESTION, headline=why)
    columns = (
        fact("name", "name", str),
        fact("missing_keys", "words", lambda _: list(lacks), "array"),
        fact("uneven_key", "words", lambda _: uneven),
    )
    return words, single("missing_model", columns, name)


def fleet_cards(found: ModelFit, currency: str | None) -> Table:
    """Return the cards of the fleet that fit."""
    return Table(
        name="fit_fleet",
        title=tr("Cards of this fleet that fit the model"),
        question=tr("Which of our cards fit the model, and which is cheapest?"),
        headline=_cheapest(found.fleet, currency, tr("No card of this fleet fits the model.")),
        columns=(
            *_fit_columns(found, currency),
            replace(_FORMAT, audience="programs"),
            column(
                "measured_cost_per_million",
                tr("per million, measured"),
                "money",
                lambda each: _measured_cost(each, currency),
                "measured.cost_per_million",
            ),
            fact("measured_model", "name", "measured.served"),
        ),
        rows=found.fleet,
        lines=tuple(map(_card_facts, {each.option.card.name: each.option for each in found.fleet}.values())),
        notes=(
            *_unknown_notes(found),
            *_price_notes(found.fleet, currency),
            *software_notes(each.option for each in found.fleet),
            _bounds_note(found),
            *_measured_notes(found.fleet),
        ),
        wide=True,
    )


def _measured_cost(each: FittedOption, currency: str | None) -> Cell:
    """Return the measured cost of a million tokens; empty where no such card was measured: a single whole card."""
    if each.measured is None or each.option.count > 1 or each.option.part is not None:
        return ""
    cost = each.measured.cost_per_million
    return None if cost is None else Amount(cost, currency)


def market_cards(found: ModelFit, currency: str | None) -> Table:
    """Return the cards that fit and that the fleet does not have."""
    shown = sum(each.option.hourly is not None for each in found.market) + _UNPRICED
    return Table(
        name="fit_market",
        title=tr("Other cards that fit the model"),
        question=tr("Which cards that we do not have fit the model, and which is cheapest?"),
        headline=_cheapest(found.market, currency, tr("No other known card fits the model, not even eight of them.")),
        columns=(*_fit_columns(found, currency), _FORMAT),
        rows=found.market,
        shown=shown,
        rest=tr_many("and {number} more without a known price", len(found.market) - shown),
        notes=(
            *_price_notes(found.market, currency),
            *software_notes(each.option for each in found.market),
            tr(
                "Prices come from the site's table, otherwise from public list prices; `fallow prices` shows their"
                " dates. GeForce cards are listed for sites that may run them."
            ),
        ),
        wide=True,
    )


_FORMAT = column("number_format", tr("number format"), "words", "bounds.number_format")


def _fit_columns(found: ModelFit, currency: str | None) -> tuple[Column, ...]:
    """Return columns over FittedOption: the cards, and their upper bounds."""
    return (
        CARD,
        FITS,
        SOFTWARE,
        column("tokens_per_s_at_most", tr("tokens/s"), "number", "bounds.per_s"),
        column(
            "prompt_tokens_per_s_at_most",
            tr("prompt tokens/s"),
            "number",
            "bounds.prompt_per_s",
            audience="programs" if isinstance(found.work, Training) else "all",
        ),
        column("kwh_per_million_at_power_limit", tr("energy, kWh"), "number", "bounds.kwh_per_million", digits=2),
        *hourly(currency),
        amount_column(
            "cost_per_million_at_least",
            tr("per million tokens"),
            currency,
            lambda each: each.bounds.cost_per_million(each.option.hourly),
        ),
        *OPTION_FACTS,
        replace(IN_FLEET, audience="programs"),
    )


def option_words(option: CardOption) -> str:
    """Return `2 x L40S, PCIe`, or the part of a card."""
    if option.part is not None:
        return tr("{card}, MIG {profile}", card=option.card.name, profile=option.part.profile.name)
    if option.link is None:
        return option.card.name
    return tr("{count} x {card}, {link}", count=option.count, card=option.card.name, link=option.link)


def _need_sentence(found: ModelFit) -> str:
    need: dict[str, str | Bytes] = {
        "model": _model_words(found),
        "size": Bytes(found.need.total),
        "low": Bytes(found.need.total * (1 - ERROR)),
        "high": Bytes(found.need.high),
    }
    if isinstance(found.work, Serving):
        return tr(
            "{model} in {bits} bits needs about {size} (within {share}: {low} to {high}) to serve {requests} requests"
            " of {tokens} tokens at once.",
            **need,
            bits=found.work.bits,
            share=Share(ERROR, 0),
            requests=found.work.requests,
            tokens=found.work.context,
        )
    return tr(
        "{model} needs about {size} on one card ({low} to {high}) for {method} on {batch} x {tokens} tokens.",
        **need,
        method=_METHOD_WORDS[found.work.method],
        batch=found.work.batch,
        tokens=found.work.sequence,
    )


def _model_words(found: ModelFit) -> str:
    size = found.shape.parameters
    billions = Number(size / 1e9, 1 if size >= 1e10 else 2 if size >= 1e8 else 3)
    if found.shape.is_typical:
        return tr("A model of {billions} billion parameters", billions=billions)
    return tr("{name} ({billions} billion parameters)", name=plain(found.shape.name, NAME_MOST), billions=billions)


def _memory_notes(found: ModelFit) -> list[Sentence]:
    """Return what is known of the layout, and what the model's files say of its weights."""
    shape = found.shape
    tokens = found.work.context if isinstance(found.work, Serving) else found.work.sequence
    notes = (
        shape.is_typical
        and tr(
            "Only the size is known. Layers, heads and vocabulary are those of {name} ({layers} layers, {kv} of {heads}"
            " heads keep keys and values). Give --config-json for the model's own layout.",
            name=shape.name,
            layers=shape.layers,
            kv=shape.kv_heads,
            heads=shape.heads,
        ),
        shape.experts > 1
        and tr(
            "{active} of {experts} experts work on each token: {billions} billion parameters. All experts are in"
            " memory.",
            experts=shape.experts,
            active=shape.active_experts,
            billions=Number(shape.active / 1e9, 1),
        ),
        shape.window_layers
        and tr(
            "{windowed} of {layers} layers keep keys and values of the last {window} tokens only. An engine that keeps"
            " them all needs more.",
            windowed=shape.window_layers,
            layers=shape.layers,
            window=shape.window,
        ),
        shape.state_layers
        and tr("{state} of {layers} layers keep a state, not tokens.", state=shape.state_layers, layers=shape.layers),
        shape.beside is None and tr("A part for pictures or sound is not counted: the file does not describe it."),
        shape.beside
        and tr(
            "Parts for pictures and sound, and embeddings of each layer, are counted in 16 bits: {billions} billion"
            " parameters. What they compute is not counted.",
            billions=Number(shape.beside / 1e9, 2),
        ),
        shape.most_tokens
        and tokens > shape.most_tokens
        and tr("By its file, the model takes at most {tokens} tokens at once.", tokens=shape.most_tokens),
        shape.file_bits
        and tr(
            "The model's files hold its weights in at most {bits} bits (quantization_config).", bits=shape.file_bits
        ),
        shape.is_file_quantized
        and not shape.file_bits
        and tr("The model's files hold quantized weights of unknown bits (quantization_config): give --bits."),
        shape.is_encoder and tr("The model is an encoder: it keeps no keys and values, and generates no tokens."),
        tr(
            "Estimated by the formulas in docs/fit.md, which compares them with published measurements, including"
            " misses."
        ),
    )
    return [each for each in notes if isinstance(each, Sentence)]


def _cheapest(options: Sequence[FittedOption], currency: str | None, nothing: str) -> str:
    if not options:
        return nothing
    first = options[0].option
    return tr(
        (
            "No card fits the model with certainty. {card} may fit it ({need} on each card)."
            if first.is_tight
            else (
                "{card} fits the model ({need} on each card). No price is known for any card that fits."
                if first.hourly is None
                else (
                    "The cheapest card that fits the model is {card}, at {price} an hour ({need} on each card). Kind of"
                    " price: {kind}."
                )
            )
        ),
        card=option_words(first),
        price=Amount(first.hourly, currency),
        need=Bytes(first.need.total),
        kind=_PRICE_KINDS[first.basis or "site"],
    )


def _price_notes(options: Sequence[FittedOption], currency: str | None) -> tuple[Sentence, ...]:
    """Return the cheapest option of each further kind of price: prices of two kinds are not compared."""
    firsts: dict[str | None, CardOption] = {}
    for each in options:
        if each.option.hourly is not None and not each.option.is_tight:
            firsts.setdefault(each.option.basis, each.option)
    return tuple(
        tr(
            "Kind of price: {kind}. The cheapest card is {card}, at {price} an hour. It is not compared with other"
            " kinds.",
            kind=_PRICE_KINDS[first.basis or "site"],
            card=option_words(first),
            price=Amount(first.hourly, currency),
        )
        for first in list(firsts.values())[1:]
    )


def _measured_notes(options: Sequence[FittedOption]) -> tuple[str, ...]:
    served = list(
        dict.fromkeys(plain(each.measured.served, NAME_MOST) for each in options if each.measured is not None)
    )
    if not served:
        return (
            tr("No server of a model of this size was measured here, so the cost per million tokens is only a bound."),
        )
    return (
        tr(
            "Measured: the cost of a million tokens of {models} here on a single card of that kind, including idle"
            " hours. The measured requests may be more numerous and shorter than the requests in question.",
            models=", ".join(served),
        ),
    )


def _unknown_notes(found: ModelFit) -> tuple[str, ...]:
    if not found.unknown:
        return ()
    names = ", ".join(plain(each, NAME_MOST) for each in found.unknown)
    return (tr("Left out, because they are not in the table of cards: {models}.", models=names),)


def _bounds_note(found: ModelFit) -> str:
    if isinstance(found.work, Training):
        return tr(
            "Tokens/s: at most, at the peak rate of the number format. Real steps reach a third to a half of it. kWh"
            " and cost are for a million tokens at that rate, with energy at the power limit."
        )
    return tr(
        "Tokens/s: at most, for all requests together at full length, by memory bandwidth and the peak rate of the"
        " number format. Prompt tokens/s: at most, by the peak rate alone. Real servers are slower, and communication"
        " between cards is not included. kWh and cost are for a million generated tokens at that rate and at the power"
        " limit. They are bounds, not measurements."
    )


def _card_facts(option: CardOption) -> str:
    card = option.card
    if card.link is None:
        link = tr("no link beside PCIe")
    elif card.link_gb_per_s is None:
        link = tr("{link} between {cards} cards", link=card.link, cards=card.link_cards)
    else:
        rate = Number(card.link_gb_per_s)
        link = tr("{link} {rate} GB/s between {cards} cards", link=card.link, rate=rate, cards=card.link_cards)
    return tr(
        "{card}: {there} in the fleet, {generation}, {formats}, {link}",
        card=card.name,
        there=option.there,
        generation=card.generation,
        formats=", ".join(card.formats),
        link=link,
    )
