"""The mix that costs least is the optimum of the linear program over all hours at once."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest

from analytics.money.offers import GpuOffer, OfferKind
from analytics.plan.purchase_mix import Hours, Option, cheapest_mix
from analytics.solver import one_thread_solver

HOURS = 24


def option(kind: OfferKind, fixed: float, used: float) -> Option:
    return Option(GpuOffer(kind, "somebody", "H100 SXM", Decimal(0), None, "test"), fixed, used)


def least_cost(need: Hours, firm: Hours, options: list[Option]) -> float:
    """The linear program: so many GPUs of each committed option, and in each hour who does how much of the firm and of the other work."""
    solver = one_thread_solver()
    capacity = {
        at: solver.addVariable(lb=0, obj=each.fixed * len(need)) for at, each in enumerate(options) if each.is_committed
    }
    for needed, kept in zip(need, firm, strict=True):
        does = {
            kind: {
                at: solver.addVariable(lb=0, obj=each.used)
                for at, each in enumerate(options)
                if kind == "other" or each.offer.kind != "spot"
            }
            for kind in ("firm", "other")
        }
        solver.addConstr(sum(does["firm"].values()) == float(kept))
        solver.addConstr(sum(does["other"].values()) == float(needed - kept))
        for at, most in capacity.items():
            solver.addConstr(does["firm"][at] + does["other"][at] <= most)
    solver.run()
    return float(solver.getObjectiveValue())


@pytest.mark.parametrize("seed", range(40))
def test_it_costs_what_the_linear_program_says(seed: int) -> None:
    """Random needs and prices, also such as no market has: spot that is cheaper than the electricity of a bought GPU."""
    random = np.random.default_rng(seed)
    need = random.integers(0, 12, HOURS).astype(float)
    firm = np.floor(need * random.random(HOURS))
    options = [option("on_demand", 0.0, random.uniform(2, 5)), option("spot", 0.0, random.uniform(0.1, 4))]
    options += [option("reserved", random.uniform(0.5, 4), 0.0), option("buy", random.uniform(0.3, 3), random.uniform(0, 1)),
                option("buy", random.uniform(0.3, 3), random.uniform(0, 1))]  # fmt: skip
    mix = cheapest_mix(need, firm, options)
    assert mix is not None
    assert mix.cost == pytest.approx(least_cost(need, firm, options), rel=1e-9)
    assert sum(part.gpu_hours for part in mix.parts) == pytest.approx(need.sum())
    assert mix.cost == pytest.approx(
        sum(part.option.fixed * part.gpus * HOURS + part.option.used * part.gpu_hours for part in mix.parts)
    )
