"""What AG Grid itself says, in the reader's language; its keys are those of its `localeText`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.language.sentences import say

if TYPE_CHECKING:
    from analytics.language.languages import Language

_WORDS = {
    "page": say("Page"),
    "to": say("to"),
    "of": say("of"),
    "more": say("more"),
    "firstPage": say("First page"),
    "previousPage": say("Previous page"),
    "nextPage": say("Next page"),
    "lastPage": say("Last page"),
    "pageSizeSelectorLabel": say("Rows per page"),
    "ariaPageSizeSelectorLabel": say("Rows per page"),
    "noRowsToShow": say("Nothing to list."),
    "noMatchingRows": say("No row fits the filters."),
    "loadingOoo": say("Loading…"),
    "filterOoo": say("Filter…"),
    "textFilter": say("Text filter"),
    "numberFilter": say("Number filter"),
    "dateFilter": say("Date filter"),
    "empty": say("Choose one"),
    "equals": say("is"),
    "notEqual": say("is not"),
    "lessThan": say("is below"),
    "greaterThan": say("is above"),
    "lessThanOrEqual": say("is at most"),
    "greaterThanOrEqual": say("is at least"),
    "inRange": say("lies between"),
    "inRangeStart": say("from"),
    "inRangeEnd": say("up to"),
    "contains": say("contains"),
    "notContains": say("does not contain"),
    "startsWith": say("begins with"),
    "endsWith": say("ends with"),
    "blank": say("is unknown"),
    "notBlank": say("is known"),
    "before": say("before"),
    "after": say("after"),
    "andCondition": say("and"),
    "orCondition": say("or"),
    "dateFormatOoo": say("yyyy-mm-dd"),
    "ariaChecked": say("chosen"),
    "ariaUnchecked": say("not chosen"),
    "ariaIndeterminate": say("some chosen"),
    "ariaColumnFiltered": say("column is filtered"),
    "ariaDateFilterInput": say("Date filter"),
    "ariaFilterColumn": say("Press Ctrl+Enter to open the filter"),
    "ariaFilterFromValue": say("Filter: lowest value"),
    "ariaFilterToValue": say("Filter: highest value"),
    "ariaFilterInput": say("Filter"),
    "ariaFilterValue": say("Filter: value"),
    "ariaFilterMenuOpen": say("Open the filter"),
    "ariaFilteringOperator": say("Filter: condition"),
    "ariaHeaderSelection": say("Choose rows"),
    "ariaLabelColumnFilter": say("Filter of the column"),
    "ariaLabelTooltip": say("Hint"),
    "ariaRowSelectAll": say("Press Space to choose all rows or none"),
    "ariaRowToggleSelection": say("Press Space to choose the row or not"),
    "ariaRowSelect": say("Press Space to choose this row"),
    "ariaRowDeselect": say("Press Space not to choose this row"),
    "ariaRowSelectionDisabled": say("This row cannot be chosen"),
    "ariaSortableColumn": say("Press Enter to sort"),
    "ariaLabelSelectField": say("Choose one"),
}
_SAMPLE = (1234.5, 1)
"""A number with both marks: what stands behind its first figure, and before its last."""


def grid_words(language: Language) -> dict[str, str]:
    """Every word of the grid's own, and how the language writes the numbers of its pages."""
    shown = language.number(*_SAMPLE)
    marks = {"thousandSeparator": shown[1], "decimalSeparator": shown[-2]}
    return {key: language.say(words) for key, words in _WORDS.items()} | marks
