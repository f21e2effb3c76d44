"""The opportunities of a view, made once for all who see the same."""

from __future__ import annotations

from analytics.decide.opportunities import Opportunities
from dashboard.view import View


def opportunities_of(view: View) -> Opportunities:
    """Those of the view's scope; the decisions on which they rest are made once for all scopes of a window."""
    window = view.whole.ledger.window

    def make() -> Opportunities:
        # one thread makes them, the others wait
        if view.report.scope.is_personal:
            view.made.of(("decisions for people", window), lambda: view.whole.decisions_for_people)
        else:
            view.made.of(("decisions", window), lambda: view.whole.decisions)
        return view.whole.opportunities(view.report.scope, view.part)

    return view.made.of(("opportunities", *view.key_of_figures), make)  # type: ignore[no-any-return]
