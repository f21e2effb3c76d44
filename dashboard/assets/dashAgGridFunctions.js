// What the tables' columns ask the browser for. Named functions only: nothing here or in a column is evaluated from a string.

(function () {
    "use strict";

    window.dashAgGridFunctions = Object.assign(window.dashAgGridFunctions || {}, {
        // The text that the server has made of the value.
        fallowShown: (params) => (params.data ? params.data[`${params.colDef.field}_text`] : ""),

        // Tab is the browser's own: from one row of heads to the next, to the rows, and out of the table.
        fallowLeaves: () => false,

        fallowByNumber: (one, other) => (one ?? -Infinity) - (other ?? -Infinity) || 0,

        // Words in the order that the server says; AG Grid gives the rows, not the column: that is the one with these words.
        fallowByRank: (one, other, rowOne, rowOther) => {
            const field = Object.keys(rowOne.data).find(
                (name) => `${name}_rank` in rowOne.data && rowOne.data[name] === one && rowOther.data[name] === other);
            return field ? rowOne.data[`${field}_rank`] - rowOther.data[`${field}_rank`] : 0;
        },

        // The day of a moment on the calendar of the reader's zone, which may be another than the browser's.
        fallowDayOf: (params) => (params.data ? params.data[`${params.colDef.field}_day`] : null),

        // A day of the calendar that somebody has chosen beside that of a row: before it, on it, after it.
        fallowDay: (midnight, day) => {
            if (!day) {
                return -1;
            }
            const two = (number) => String(number).padStart(2, "0");
            const chosen = `${midnight.getFullYear()}-${two(midnight.getMonth() + 1)}-${two(midnight.getDate())}`;
            return day < chosen ? -1 : Number(day > chosen);
        },
    });
})();
