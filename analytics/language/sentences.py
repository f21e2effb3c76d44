"""Text that knows how it was made, so that it can be said in another language."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from analytics.language.quantities import Quantity

    Value: TypeAlias = str | int | float | Quantity


class Sentence(str):
    """English text; `template` and `values` say it in another language (analytics.language.languages).

    To everything that knows nothing of languages it is the English string: it is compared, stored and printed as such.
    """

    __slots__ = ("many", "number", "template", "values")

    template: str
    """The English form with names in braces: what catalogues are keyed by."""
    values: Mapping[str, Value]
    number: int | None
    """What decides between the forms for one and for many; None where there is one form."""
    many: str | None
    """The English form for any other number than one."""

    def __new__(
        cls, template: str, values: Mapping[str, Value], number: int | None = None, many: str | None = None
    ) -> Self:
        """The sentence; `many` is the English form for any other number than one."""
        form = template if many is None or number == 1 else many
        self = super().__new__(cls, form.format_map({name: str(value) for name, value in values.items()}))
        self.template, self.values, self.number, self.many = template, dict(values), number, many
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles as the plain English text: what leaves the process is read by machines."""
        return (str, (str(self),))


def say(template: str, **values: Value) -> Sentence:
    """The template with its values filled in; `{name}` stands for `name=`. Values may be sentences themselves."""
    return Sentence(template, values)


def say_many(one: str, many: str, number: int, **values: Value) -> Sentence:
    """The form for the number, which both forms have as `{number}`."""
    from analytics.language.quantities import Number  # quantities import languages

    return Sentence(one, {"number": Number(number), **values}, number, many)


class Listed(str):
    """Sentences behind one another, each said for itself."""

    __slots__ = ("between", "parts")

    parts: tuple[str, ...]
    between: str

    def __new__(cls, parts: Iterable[str], between: str = "; ") -> Self:
        """The parts with `between` between them."""
        kept = tuple(parts)
        self = super().__new__(cls, between.join(kept))
        self.parts, self.between = kept, between
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles as the plain English text."""
        return (str, (str(self),))
