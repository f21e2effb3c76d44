"""CUDA toolkits on this host: does what they compile run here?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.doctor import catalog
from agent.doctor.finding import Facts, Finding, error, skipped, warning
from agent.doctor.judge import Fit, judge_driver
from agent.doctor.remedies import (
    NO_VERSION,
    best_cuda,
    cards_text,
    cuda_for,
    fit_facts,
    runs,
    too_new,
    unknown_cards,
    ways_out,
)
from agent.doctor.toolkits import Toolkit, find_toolkits
from agent.doctor.versions import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.case import Case


def look(case: Case) -> Iterator[Finding]:
    """Each toolkit: does the driver run what it compiles, and can it compile for these cards?"""
    toolkits = find_toolkits(case.host)
    if not toolkits:
        yield skipped("no CUDA toolkit here; programs from wheels and containers need none")
    for toolkit in toolkits:
        yield _judge(case, toolkit)


def _judge(case: Case, toolkit: Toolkit) -> Finding:
    title = f"CUDA toolkit {shown(toolkit.version)} in {toolkit.folder}"
    subject = str(toolkit.folder)
    facts: Facts = {"version": shown(toolkit.version), "active": toolkit.active}
    if case.driver_version is None:
        needs = catalog.FULL_DRIVER.get(toolkit.version)
        comes_with = f" comes with driver {shown(needs)};" if needs else ":"
        return skipped(f"{title}{comes_with} {NO_VERSION}", facts, subject=subject)
    fit = judge_driver(toolkit.version, case.driver_version)
    facts |= fit_facts(fit)
    strangers = unknown_cards(case, toolkit.version)
    if fit.fit is Fit.TOO_NEW:
        # one that only lies about breaks nothing
        how = error if toolkit.active else warning
        instead = f"a toolkit of CUDA {best_cuda(case)} or older"
        remedy = ways_out(case, toolkit.version, fit, instead)
        return how(f"{title} {too_new(case, fit)}", remedy, "nvidia-smi; nvcc --version", facts, subject=subject)
    if strangers:
        return warning(
            f"{title} cannot compile for {cards_text(strangers)}",
            f"for these cards use a toolkit of CUDA {cuda_for(strangers)}",
            f"{toolkit.folder}/bin/nvcc --list-gpu-arch",
            facts,
            subject=subject,
        )
    return runs(title, case, fit, facts, subject)
