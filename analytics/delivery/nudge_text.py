"""What a holder is told: their findings with evidence, how to answer, and how never to be told again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.delivery.edition_message import line
from analytics.delivery.model import Brief, Parcel
from analytics.language.plain_text import PAGE_COLUMNS, plain, wrap
from analytics.language.quantities import Moment
from analytics.language.sentences import Listed, say, say_many
from analytics.sections.evidence_text import evidence

if TYPE_CHECKING:
    from analytics.delivery.nudges import Nudge
    from analytics.language.languages import Language
    from analytics.workloads.model import Finding

_MOST_GPUS = 8
_WIDTH = min(PAGE_COLUMNS, 78)
_INTRO = say(
    "fallow watches how the GPUs of this site are used. These look as if you could give them back, or use them better. "
    "It may be wrong: you know your work, it does not."
)
_ANSWER = say("If you need them, answer this mail, or say so yourself, and nobody asks again:")
_END = say(
    "You get this because a GPU was given to you or a process of yours was on it. To get no more of it, answer this mail."
)


def pack_nudge(nudge: Nudge, language: Language, day: str, window_ms: tuple[int, int]) -> Parcel:
    """One mail to one address; `day` is that on which it goes out, `window_ms` what the findings were computed over."""
    subject = language.say(
        say_many("Your GPUs: {number} finding by fallow", "Your GPUs: {number} findings by fallow", len(nudge.findings))
    )
    names = ", ".join(plain(name) for name in nudge.names)
    blocks = [
        "\n".join(_wrapped(language.say(say("Findings about: {names}", names=names)))),
        "\n".join(_wrapped(language.say(_INTRO))),
        *("\n".join(_finding(finding, nudge.told[finding.finding_id], language)) for finding in nudge.findings),
        "\n".join([*_wrapped(language.say(_ANSWER)), *_answers(nudge)]),
        "\n".join(_wrapped(language.say(_END))),
    ]
    lines = tuple(line(finding, language) for finding in nudge.findings)
    return Parcel(
        subject=subject,
        language=language.code,
        text="\n\n".join(blocks) + "\n",
        html=None,
        picture=None,
        attachments=(),
        brief=Brief(subject, day, (), "", lines, ""),
        week=day,
        scope="",
        since_ms=window_ms[0],
        until_ms=window_ms[1],
        finding_ids=tuple(finding.finding_id for finding in nudge.findings),
    )


def _finding(finding: Finding, told: int, language: Language) -> list[str]:
    """What it says, what it costs, how sure that is, and what to type."""
    shown = line(finding, language)
    rows = [
        *_wrapped(f"* {shown.text}", "  "),
        *_row(say("GPUs: {gpus}", gpus=_gpus(finding)), language),
        *(_row(say("job: {job}", job=plain(finding.job)), language) if finding.job else []),
        *_row(say("since {when}", when=Moment(finding.since_ms)), language),
        *_row(_sureness(finding, language), language),
        *_row(say("evidence: {evidence}", evidence=language.say(evidence(finding))), language),
        *(_row(say_many("told {number} time before", "told {number} times before", told), language) if told else []),
    ]
    # a command on one line, however long: it is there to be copied
    if finding.next_command:
        rows += [*_row(say("next:"), language), f"    {plain(finding.next_command, 1000)}"]
    return rows


def _gpus(finding: Finding) -> str:
    shown = [plain(gpu) for gpu in finding.gpus[:_MOST_GPUS]]
    return ", ".join(shown) + (" ..." if len(finding.gpus) > _MOST_GPUS else "")


def _sureness(finding: Finding, language: Language) -> str:
    grade, failed = language.say(finding.confidence.grade), finding.confidence.failed
    if not failed:
        return say("confidence: {grade}", grade=grade)
    return say("confidence: {grade} ({why})", grade=grade, why=Listed(failed))


def _answers(nudge: Nudge) -> list[str]:
    return [f"    fallow findings ack {finding.finding_id} --reason '...'" for finding in nudge.findings]


def _row(text: str, language: Language) -> list[str]:
    return _wrapped(language.say(text), "  ", "  ")


def _wrapped(text: str, rest: str = "", first: str = "") -> list[str]:
    return wrap(plain(text, 2000), _WIDTH, first, rest)
