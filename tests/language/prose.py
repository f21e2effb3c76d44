"""Counts words to avoid and long sentences in docs, messages and docstrings, by folder: `make lint-prose`.

A report, not a gate: it exits with 0. `PROSE_ARGS="--list PART"` shows the places whose file has PART in its path.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from babel.messages.pofile import read_po

from tests.conftest import REPOSITORY

AVOID = {
    "anew": "again",
    "as far as": "what is known, or the condition",
    "for want of": "because ... are missing",
    "give back": "release, reclaim",
    "given back": "released, reclaimed",
    "holder": "user",
    "is to be done": "the action",
    "lately": "in the last 7 days",
    "nobody": "no user, no job",
    "otherwise than": "unlike",
    "piece": "segment, part",
    "put off": "snooze",
    "said": "reported, stated",
    "so many": "the number",
    "somebody": "a user, a person",
    "spell": "idle interval",
    "stretch": "segment",
    "take back": "reclaim",
    "taken back": "reclaimed",
    "thereof": "of it, named",
    "told": "reported, shown",
    "whoever": "the person who, the user",
    "whom": "the user",
    "wind-down": "ending",
}
"""Words to avoid, with the words that replace them. Plurals count too."""

LONGEST = 30
"""Words of a sentence; a longer one is counted."""

CODE = ("fallow", "agent", "analytics", "dashboard", "benchmarks", "tests")
CATALOGUES = "analytics/language/catalogues/fr"
"""Every message is in the French catalogues under its English text."""

_AVOIDED = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(AVOID)))})s?\b", re.IGNORECASE)
_SENTENCE_END = re.compile(
    r"(?<=[.!?:])[*)]*\s+(?=[A-Z0-9*{\[(]|fallow\b)|\n\s*\n|\n(?=\s*(?:[-*|#>]|\d+\.)\s)|\s\|\s|<br>|; "
)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_MARK_UP = re.compile(r"<!--.*?-->|!\[[^\]]*\]\([^)]*\)|\]\([^)]*\)|`[^`\n]*`", re.DOTALL)


@dataclass(frozen=True)
class Text:
    """A text that people read: the folder that counts it, the file, and the line where it starts."""

    folder: str
    path: str
    line: int
    text: str


@dataclass(frozen=True)
class Fault:
    """A word to avoid, or a long sentence, at a line of a text's file."""

    text: Text
    line: int
    kind: str
    shown: str


def texts() -> Iterator[Text]:
    """Yield the README and the docs, the messages, the help texts and the docstrings."""
    for path in sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]):
        prose = _MARK_UP.sub(_blank, _FENCED.sub(_blank, path.read_text(encoding="utf-8")))
        name = str(path.relative_to(REPOSITORY))
        yield Text("docs" if name.startswith("docs/") else name, name, 1, prose)
    for path in sorted((REPOSITORY / CATALOGUES).glob("*.po")):
        with path.open("rb") as file:
            for message in read_po(file, locale="fr"):
                forms = [message.id] if isinstance(message.id, str) else list(message.id)
                name = str(path.relative_to(REPOSITORY))
                yield from (Text("messages", name, message.lineno or 1, form) for form in forms)
    for package in CODE:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            yield from _code_texts(path)


def _blank(found: re.Match[str]) -> str:
    """Return one word for what is not prose, with its line ends, so that lines keep their numbers."""
    return " Code " + "\n" * found[0].count("\n")


def _code_texts(path: Path) -> Iterator[Text]:
    """Yield docstrings, those of fields included, and help texts."""
    name = str(path.relative_to(REPOSITORY))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr):
            kind, value = "docstrings", node.value
        elif isinstance(node, ast.keyword) and node.arg == "help":
            kind, value = "help", node.value
        else:
            continue
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            text = _MARK_UP.sub(_blank, value.value)
            yield Text(f"{kind} in {path.relative_to(REPOSITORY).parts[0]}", name, value.lineno, text)


def faults(text: Text) -> Iterator[Fault]:
    """Yield the words to avoid and the sentences of more than LONGEST words."""
    for found in _AVOIDED.finditer(text.text):
        yield Fault(text, text.line + text.text.count("\n", 0, found.start()), "words to avoid", found[0].lower())
    start = 0
    for end in [*_SENTENCE_END.finditer(text.text), None]:
        sentence = text.text[start : end.start() if end else None]
        if len(words := re.findall(r"[^\W_][\w'-]*", sentence)) > LONGEST:
            line = text.line + text.text.count("\n", 0, start + len(sentence) - len(sentence.lstrip()))
            yield Fault(text, line, "long sentences", f"{len(words)} words: {' '.join(words[:12])} ...")
        start = end.end() if end else start


def main() -> None:
    """Print the counts by folder and by word, or the places with `--list`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", metavar="PART", help="show the places in files with PART in their path")
    part = parser.parse_args().list
    every = list(texts())
    found = [fault for text in every for fault in faults(text)]
    if part is not None:
        for fault in found:
            if part in fault.text.path:
                hint = f" ({AVOID[fault.shown]})" if fault.shown in AVOID else ""
                print(f"{fault.text.path}:{fault.line}: {fault.kind}: {fault.shown}{hint}")
        return
    counts = Counter((fault.text.folder, fault.kind) for fault in found)
    print(f"{'':<28}{'words':>9}{'to avoid':>10}{f'over {LONGEST} words':>15}")
    for folder in dict.fromkeys(text.folder for text in every):
        words = sum(len(text.text.split()) for text in every if text.folder == folder)
        print(f"{folder:<28}{words:>9,}{counts[folder, 'words to avoid']:>10}{counts[folder, 'long sentences']:>15}")
    avoided = Counter(fault.shown for fault in found if fault.kind == "words to avoid")
    print("\n" + ", ".join(f"{word} {count}" for word, count in avoided.most_common()))


if __name__ == "__main__":
    main()
