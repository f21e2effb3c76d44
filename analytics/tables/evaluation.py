"""The evaluation by labels: their coverage, which rules were right, which promises were kept and which states agree."""

from __future__ import annotations

from operator import attrgetter
from typing import Literal

from analytics.evaluation.evaluate import LABELLED_MIN, Evaluation, Proportion, StateAgreement
from analytics.glossary import state_label
from analytics.language.sentences import GpuHours, Moment, Share, plain, tr, tr_many
from analytics.ledger.summary import ratio
from analytics.tables.names import RULE
from analytics.tables.table import Column, Table, column, fact, for_programs, single
from fallow.schema import STATES

_NAMED = 3
"""Most unknown GPUs with names."""


def evaluation_tables(found: Evaluation) -> tuple[Table, ...]:
    """Return the tables of `fallow evaluate`; the last three are for programs."""
    people = (_coverage(found), _rules(found), _promises(found), _reliability(found), _states(found))
    return *people, _rule_grades(found), _recorded_states(found), _counts(found)


def _coverage(found: Evaluation) -> Table:
    labels, states = found.labels, found.states
    lines = [
        tr_many("{judged} of {number} {finding has|findings have} a label", found.findings, judged=found.judged),
        tr_many(
            "{judged} of {number} {GPU|GPUs} to reclaim {has|have} a label",
            found.takeable.gpus,
            judged=found.takeable.takeable.judged,
        ),
        tr(
            "{labelled} of {total} GPU-hours have a labelled state ({share}); {judged} of these were observed",
            labelled=GpuHours(states.labelled_ms),
            total=GpuHours(states.total_ms),
            share=Share(ratio(states.labelled_ms, states.total_ms)),
            judged=GpuHours(states.judged_ms),
        ),
    ]
    if labels.strangers:
        names = ", ".join(plain(name) for name in labels.strangers[:_NAMED])
        lines.append(
            tr_many(
                "{number} {GPU|GPUs} of the labels {is|are} not in the {lake:|lake, such as} {names}",
                len(labels.strangers),
                names=names,
            )
        )
    return Table(
        name="labels",
        title=tr("How much do the labels cover?"),
        question=tr("What share of the conclusions can these labels judge?"),
        headline=tr(
            "{lines} over {gpus}; {windows} from {since} to {until}.",
            lines=tr_many("{number} {label|labels}", labels.lines),
            gpus=tr_many("{number} {GPU|GPUs}", labels.gpus),
            windows=tr_many("{number} {window|windows}", found.windows),
            since=Moment(found.since_ms),
            until=Moment(found.until_ms),
        ),
        lines=tuple(lines),
        notes=(tr("Findings, GPUs and time without a label count neither as right nor as wrong."),),
    )


def _rules(found: Evaluation) -> Table:
    unwatched = sum(each.unwatched for each in found.rules)
    not_judged = tr_many(
        "{number} {GPU|GPUs} that a rule should find {was|were} not observed long enough to be judged.", unwatched
    )
    total = Proportion(
        sum(each.precision.right for each in found.rules), sum(each.precision.judged for each in found.rules)
    )
    return Table(
        name="rules",
        title=tr("Which rules were right?"),
        question=tr("How many findings of each rule were right, and how many of the expected GPUs were found?"),
        headline=tr(
            "{of} labelled findings were right ({share})." if total.judged else "No finding has a label.",
            of=_of(total),
            share=Share(total.share),
        ),
        columns=(
            RULE,
            column("findings", tr("findings"), "count"),
            *_proportion("precision", tr("right"), tr("precision")),
            *_proportion("recall", tr("found"), tr("recall")),
            *_proportion("takeable"),
            fact("expected_but_unobserved", "count", "unwatched"),
        ),
        rows=found.rules,
        notes=(
            *([not_judged] if unwatched else []),
            tr(
                "A finding is right if no label contradicts it: the rule should find its GPUs, and the GPUs to reclaim"
                " could be reclaimed. A label against a rule counts if it covers {share} of the finding's time. Found:"
                " the GPUs that a label expects from the rule and that one of its findings names.",
                share=Share(LABELLED_MIN, 0),
            ),
        ),
    )


def _proportion(path: str, counted: str = "", share: str = "") -> tuple[Column, ...]:
    """Return columns of the proportion at `path`: counts, share and interval. Columns for programs have no heading."""
    key, of = path.rpartition(".")[2], attrgetter(path)
    audience: Literal["all", "programs"] = "all" if share else "programs"
    return (
        column(
            f"{key}_right",
            counted,
            "count",
            lambda row: _of(of(row)) if of(row).judged else None,
            f"{path}.right",
            audience=audience,
        ),
        fact(f"{key}_judged", "count", f"{path}.judged"),
        column(f"{key}_share", share, "share", f"{path}.share", audience=audience),
        column(
            f"{key}_interval_90",
            tr("90 % interval"),
            "share",
            lambda row: _interval(of(row)),
            f"{path}.interval",
            json_type="array",
            audience=audience,
        ),
    )


def _interval(proportion: Proportion) -> str | None:
    if proportion.interval is None:
        return None
    low, high = proportion.interval
    return tr("{low} to {high}", low=Share(low, 0), high=Share(high, 0))


def _of(proportion: Proportion) -> str:
    return tr("{right} of {judged}", right=proportion.right, judged=proportion.judged)


def _promises(found: Evaluation) -> Table:
    recall = found.takeable_recall
    named = tr(
        "A finding names {of} GPUs that could be reclaimed at the end of a window, by their label ({share}).",
        of=_of(recall),
        share=Share(recall.share),
    )
    return Table(
        name="takeable",
        title=tr("Could the GPUs be reclaimed?"),
        question=tr("How many of the GPUs that findings want to reclaim could be reclaimed?"),
        headline=tr(
            "No label says whether a GPU could be reclaimed."
            if found.takeable.takeable.share is None
            else "{of} GPUs to reclaim could be reclaimed ({share}).",
            of=_of(found.takeable.takeable),
            share=Share(found.takeable.takeable.share),
        ),
        columns=(
            column("confidence", tr("confidence"), "grade", lambda score: tr(score.grade), "grade"),
            column("gpus", tr("GPUs to reclaim"), "count"),
            *_proportion("takeable", tr("right"), tr("precision")),
        ),
        rows=found.grades,
        notes=(
            *([named] if recall.judged else []),
            tr(
                "The label at the last moment of the window counts. A GPU counts once per window and confidence. The"
                " releasable GPUs of a pool are a number and are not judged by single GPUs."
            ),
        ),
    )


def _reliability(found: Evaluation) -> Table:
    classes = found.reliability
    worst = max(classes, key=lambda row: row.promised - (row.takeable.share or 0.0), default=None)
    return Table(
        name="reliability",
        title=tr("Were the probabilities right?"),
        question=tr("How often did a GPU stay unused, compared with the promised probability?"),
        headline=(
            tr("No GPU with a probability has a label.")
            if worst is None
            else tr(
                "The largest gap: {share} of the GPUs stayed unused where {promised} was promised.",
                share=Share(worst.takeable.share),
                promised=Share(worst.promised),
            )
        ),
        columns=(
            column(
                "probability",
                tr("probability"),
                "share",
                lambda each: tr("{low} to {high}", low=Share(each.low, 0), high=Share(each.high, 0)),
                lambda row: [row.low, row.high],
                json_type="array",
            ),
            column("promised_share", tr("promised"), "share", "promised"),
            *_proportion("takeable", tr("right"), tr("kept")),
        ),
        rows=classes,
    )


def _states(found: Evaluation) -> Table:
    states = found.states
    return Table(
        name="states",
        title=tr("Do the states agree?"),
        question=tr("Where does the state in the ledger differ from the label?"),
        headline=tr(
            "{agreed} of {judged} labelled and observed GPU-hours agree ({share})."
            if states.judged_ms
            else "No observed time has a labelled state.",
            agreed=GpuHours(states.agreed_ms),
            judged=GpuHours(states.judged_ms),
            share=Share(ratio(states.agreed_ms, states.judged_ms)),
        ),
        columns=(
            column(
                "label", tr("label"), "state", lambda label: state_label(label) if label in STATES else tr(label), str
            ),
            column("agreed_share", tr("agreed"), "share", lambda label: Share(ratio(*states.labelled(label)))),
            fact("agreed_gpu_hours", "gpu_hours", lambda label: states.labelled(label)[0]),
            fact("judged_gpu_hours", "gpu_hours", lambda label: states.labelled(label)[1]),
            *(_state_column(states, state) for state in STATES),
        ),
        rows=states.labels,
        notes=(
            (
                tr(
                    "GPU-hours by label and by the ledger's state. Time that was not observed is not judged. Used: low"
                    " or active. Unused: free, reserved or held."
                ),
            )
            if states.labels
            else ()
        ),
    )


def _state_column(states: StateAgreement, state: str) -> Column:
    return column(
        f"{state}_gpu_hours", state_label(state), "gpu_hours", lambda label: states.time_ms.get((label, state), "")
    )


def _rule_grades(found: Evaluation) -> Table:
    columns = (
        fact("rule", "name"),
        fact("confidence", "grade", "grade"),
        fact("findings", "count"),
        *_proportion("precision"),
    )
    rows = (grade for rule in found.rules for grade in rule.by_grade)
    return for_programs("rules_by_confidence", columns, rows)


def _recorded_states(found: Evaluation) -> Table:
    """Return the labelled time in each state of the ledger, and the part that agrees with its labels."""
    recorded = found.states.recorded
    columns = (
        fact("state", "state", str),
        fact("agreed_gpu_hours", "gpu_hours", lambda state: recorded(state)[0]),
        fact("labelled_gpu_hours", "gpu_hours", lambda state: recorded(state)[1]),
        fact("agreed_share", "share", lambda state: ratio(*recorded(state))),
    )
    rows = (state for state in STATES[1:] if recorded(state)[1])
    return for_programs("recorded_states", columns, rows)


def _counts(found: Evaluation) -> Table:
    columns = (
        fact("windows", "count"),
        fact("labels", "count", "labels.lines"),
        fact("labelled_gpus", "count", "labels.gpus"),
        column("gpus_not_in_the_lake", "", "words", "labels.strangers", "labels.strangers", json_type="array"),
        fact("findings", "count"),
        fact("judged_findings", "count", "judged"),
        fact("takeable_gpus", "count", "takeable.gpus"),
        *_proportion("takeable.takeable"),
        *_proportion("takeable_recall"),
        fact("gpu_hours", "gpu_hours", "states.total_ms"),
        fact("observed_gpu_hours", "gpu_hours", "states.observed_ms"),
        fact("labelled_gpu_hours", "gpu_hours", "states.labelled_ms"),
        fact("judged_gpu_hours", "gpu_hours", "states.judged_ms"),
        fact("agreed_gpu_hours", "gpu_hours", "states.agreed_ms"),
        fact("agreed_share", "share", lambda row: ratio(row.states.agreed_ms, row.states.judged_ms)),
    )
    return single("evaluation", columns, found)
