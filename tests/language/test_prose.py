"""What `make lint-prose` counts: words to avoid and long sentences of prose, at their lines, and nothing of code."""

from __future__ import annotations

from tests.language.prose import LONGEST, Text, faults


def _found(text: str) -> list[tuple[int, str, str]]:
    return [(fault.line, fault.kind, fault.shown[:8]) for fault in faults(Text("docs", "docs/page.md", 10, text))]


def test_words_to_avoid_are_found_at_their_lines() -> None:
    assert _found("A user.\nNobody holds\nthe pieces; misspelled is none.") == [
        (11, "words to avoid", "nobody"),
        (12, "words to avoid", "pieces"),
    ]


def test_a_sentence_ends_at_its_stop_a_cell_and_a_list_item() -> None:
    words = "Word " * LONGEST
    assert _found(f"{words}end.") == [(10, "long sentences", "31 words")]
    assert _found(f"{words}. {words}\n- {words}\n\n{words}| {words}") == []
    assert _found(f"Short.\nA {words}") == [(11, "long sentences", "31 words")]
