// What the tables' columns ask the browser for. Named functions only: nothing here or in a column is evaluated from a string.

(function () {
    "use strict";
    const DAY_MS = 86400000;

    window.dashAgGridFunctions = Object.assign(window.dashAgGridFunctions || {}, {
        // The text that the server has made of the value.
        fallowShown: (params) => (params.data ? params.data[`${params.colDef.field}_text`] : ""),

        fallowByNumber: (one, other) => (one ?? -Infinity) - (other ?? -Infinity) || 0,

        // Words in the order that the server says; AG Grid gives the rows, not the column: that is the one with these words.
        fallowByRank: (one, other, rowOne, rowOther) => {
            const field = Object.keys(rowOne.data).find(
                (name) => `${name}_rank` in rowOne.data && rowOne.data[name] === one && rowOther.data[name] === other);
            return field ? rowOne.data[`${field}_rank`] - rowOther.data[`${field}_rank`] : 0;
        },

        // A moment beside a day of the calendar: before it, on it, after it.
        fallowDay: (midnight, moment) => {
            if (moment === null || moment === undefined) {
                return -1;
            }
            const from = midnight.getTime();
            return moment < from ? -1 : moment >= from + DAY_MS ? 1 : 0;
        },
    });
})();
