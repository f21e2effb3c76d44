"""What labels say of fallow: how much they cover, which rules were right, which promises were kept, and which states agree."""

from __future__ import annotations

from collections.abc import Iterator

from analytics.evaluation.evaluate import Evaluation, GradeScore, RuleScore
from analytics.evaluation.verdicts import LABELLED_MIN, Proportion
from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Moment, Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.ledger.summary import ratio
from analytics.tables.table import Cell, Column, Table
from fallow.schema import STATES

_NAMED = 3
"""Unknown GPUs that are named."""


def evaluation_sections(found: Evaluation) -> tuple[Table, ...]:
    """The chapters of `fallow evaluate`."""
    return _coverage(found), _rules(found), _promises(found), _reliability(found), _states(found)


def _coverage(found: Evaluation) -> Table:
    labels, states = found.labels, found.states
    lines = [
        tr_many(
            "{judged} of {number} finding has a label",
            "{judged} of {number} findings have a label",
            found.findings, judged=Number(found.judged),
        ),
        tr_many(
            "{judged} of {number} GPU to take back has a label that says whether it could be",
            "{judged} of {number} GPUs to take back have a label that says whether they could be",
            found.takeable.gpus, judged=Number(found.takeable.takeable.judged),
        ),
        tr(
            "{labelled} of {total} GPU-hours have a labelled state ({share}), {judged} of them were observed",
            labelled=GpuHours(states.labelled_ms), total=GpuHours(states.total_ms),
            share=Share(ratio(states.labelled_ms, states.total_ms)), judged=GpuHours(states.judged_ms),
        ),
    ]  # fmt: skip
    if labels.strangers:
        names = ", ".join(plain(name) for name in labels.strangers[:_NAMED])
        lines.append(
            tr_many(
                "{number} GPU of the labels is not in the lake: {names}",
                "{number} GPUs of the labels are not in the lake, such as {names}",
                len(labels.strangers), names=names,
            )
        )  # fmt: skip
    windows = tr_many("{number} window", "{number} windows", found.windows)
    return Table(
        name="labels",
        title=tr("How much do the labels cover?"),
        question=tr("How much of what was concluded can these labels judge?"),
        headline=tr(
            "{lines} over {gpus}; {windows} from {since} to {until}.",
            lines=tr_many("{number} label", "{number} labels", labels.lines),
            gpus=tr_many("{number} GPU", "{number} GPUs", labels.gpus),
            windows=windows, since=Moment(found.since_ms), until=Moment(found.until_ms),
        ),
        lines=tuple(lines),
        notes=(tr("What no label speaks of counts neither as right nor as wrong."),),
    )  # fmt: skip


def _rules(found: Evaluation) -> Table:
    total = Proportion(
        sum(each.precision.right for each in found.rules), sum(each.precision.judged for each in found.rules)
    )
    return Table(
        name="rules",
        title=tr("Which rules were right?"),
        question=tr("How many of each rule's findings were right, and how much of what it ought to find did it find?"),
        headline=_headline(total),
        columns=(
            Column("rule", tr("rule"), "name"),
            Column("findings", tr("findings"), "count"),
            *_columns("right", tr("right"), "precision", tr("precision")),
            *_columns("found", tr("found"), "recall", tr("recall")),
        ),
        rows=tuple(_rule_row(each) for each in found.rules),
        notes=(*_unwatched(found), tr(
            "A finding is right if no label contradicts it: its rule ought to have found its GPUs, and those to take back could "
            "be. A label that a rule ought not to fire counts where it covers {share} of the finding's time. Found counts GPUs: "
            "those that a label wants found by the rule and a finding of it names.", share=Share(LABELLED_MIN, 0)
        )),
    )  # fmt: skip


def _headline(total: Proportion) -> str:
    if not total.judged:
        return tr("No label speaks of any finding.")
    return tr(
        "{of} findings that labels speak of were right ({share}).", of=_of(total), share=Share(total.share)
    )  # fmt: skip


def _unwatched(found: Evaluation) -> Iterator[str]:
    if number := sum(each.unwatched for each in found.rules):
        yield tr_many(
            "{number} GPU that a rule ought to find was not observed long enough to be judged.",
            "{number} GPUs that a rule ought to find were not observed long enough to be judged.",
            number,
        )


def _rule_row(score: RuleScore) -> tuple[Cell, ...]:
    return score.rule, Number(score.findings), *_cells(score.precision), *_cells(score.recall)


def _columns(count: str, counted: str, share: str, said: str) -> tuple[Column, Column, Column]:
    """Those of `_cells`: names and headings of the counts and of the share."""
    return (
        Column(count, counted, "count"),
        Column(share, said, "share"),
        Column(f"{share}_interval", tr("90 % interval"), "share"),
    )


def _cells(proportion: Proportion) -> tuple[Cell, Cell, Cell]:
    interval = proportion.interval
    if interval is None:
        return None, None, None
    bounds = tr("{low} to {high}", low=Share(interval[0], 0), high=Share(interval[1], 0))
    return _of(proportion), Share(proportion.share), bounds


def _of(proportion: Proportion) -> str:
    return tr("{right} of {judged}", right=Number(proportion.right), judged=Number(proportion.judged))


def _promises(found: Evaluation) -> Table:
    recall = found.takeable_recall
    return Table(
        name="takeable",
        title=tr("Could the GPUs be taken back?"),
        question=tr("Of the GPUs that findings want to take back, how many could have been?"),
        headline=(
            tr("No label says whether GPUs to take back could be.")
            if found.takeable.takeable.share is None
            else tr(
                "{of} GPUs to take back could be taken back ({share}).",
                of=_of(found.takeable.takeable), share=Share(found.takeable.takeable.share),
            )
        ),
        columns=(
            Column("confidence", tr("confidence"), "grade"),
            Column("gpus", tr("GPUs to take back"), "count"),
            *_columns("right", tr("right"), "precision", tr("precision")),
        ),
        rows=tuple(_grade_row(each) for each in found.grades),
        notes=(
            *(
                [tr("{of} GPUs that a label says could be taken back at a window's end are named by a finding ({share}).",
                    of=_of(recall), share=Share(recall.share))]
                if recall.judged else []
            ),
            tr("The label counts that covers the last moment of the window. Each GPU counts once in a window and confidence. The "
               "surplus of a pool is a number of GPUs and is not judged by single ones."),
        ),
    )  # fmt: skip


def _grade_row(score: GradeScore) -> tuple[Cell, ...]:
    return tr(score.grade), Number(score.gpus), *_cells(score.takeable)


def _reliability(found: Evaluation) -> Table:
    said = found.reliability
    worst = max(said, key=lambda each: each.promised - (each.takeable.share or 0.0), default=None)
    return Table(
        name="reliability",
        title=tr("Were the probabilities right?"),
        question=tr("How often was it kept that a GPU would stay unused, by the probability that was promised?"),
        headline=(
            tr("No label speaks of a GPU that has a probability.")
            if worst is None
            else tr(
                "Furthest below its promise: {share} of those promised with {promised}.",
                share=Share(worst.takeable.share), promised=Share(worst.promised),
            )
        ),
        columns=(
            Column("probability", tr("probability"), "share"),
            Column("promised", tr("promised"), "share"),
            *_columns("right", tr("right"), "precision", tr("kept")),
        ),
        rows=tuple(
            (
                tr("{low} to {high}", low=Share(each.low, 0), high=Share(each.high, 0)),
                Share(each.promised),
                *_cells(each.takeable),
            )
            for each in said
        ),
    )  # fmt: skip


def _states(found: Evaluation) -> Table:
    states = found.states
    return Table(
        name="states",
        title=tr("Do the states agree?"),
        question=tr("In which state does the ledger have the time that a label names another state of?"),
        headline=(
            tr("No observed time has a labelled state.")
            if not states.judged_ms
            else tr(
                "{agreed} of {judged} labelled and observed GPU-hours agree ({share}).",
                agreed=GpuHours(states.agreed_ms), judged=GpuHours(states.judged_ms),
                share=Share(ratio(states.agreed_ms, states.judged_ms)),
            )
        ),
        columns=(
            Column("label", tr("label"), "state"),
            Column("agreed", tr("agreed"), "share"),
            *(Column(state, tr(state), "gpu_hours") for state in STATES),
        ),
        rows=tuple(_state_row(found, label) for label in states.labels),
        notes=(
            tr("GPU-hours by label, and by the state that the ledger has. Unknown time is not judged; used is low or active, "
               "unused free, reserved or held."),
        ) if states.labels else (),
    )  # fmt: skip


def _state_row(found: Evaluation, label: str) -> tuple[Cell, ...]:
    states = found.states
    return (
        tr(label),
        Share(ratio(*states.labelled(label))),
        *(GpuHours(states.time_ms[label, state]) if (label, state) in states.time_ms else "" for state in STATES),
    )
