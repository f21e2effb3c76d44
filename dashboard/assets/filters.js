// A table's filters and order as text, and back: what an address says of them (grid.py) in the grid's own form.

(function () {
    "use strict";
    const TEXT = {"": "contains", without: "notContains", is: "equals", not: "notEqual", begins: "startsWith", ends: "endsWith"};
    const NUMBER = {"": "equals", not: "notEqual", below: "lessThan", above: "greaterThan", most: "lessThanOrEqual",
        least: "greaterThanOrEqual", between: "inRange"};
    const DAY = {"": "equals", not: "notEqual", before: "lessThan", after: "greaterThan", between: "inRange"};
    const EITHER = {unknown: "blank", known: "notBlank"};
    const isDay = (text) => /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(Date.parse(text))
        && new Date(text).toISOString().startsWith(text);
    const KINDS = {
        agTextColumnFilter: {name: "text", words: {...TEXT, ...EITHER}, read: (text) => text || null},
        agNumberColumnFilter: {
            name: "number", words: {...NUMBER, ...EITHER},
            read: (text) => (/^-?\d{1,15}(\.\d{1,15})?$/.test(text) ? Number(text) : null),
        },
        agDateColumnFilter: {
            name: "date", words: {...DAY, ...EITHER},
            read: (text) => (isDay(text) ? `${text} 00:00:00` : null),
        },
    };

    // Text <-> the grid's own form of its filters; null where the text is none (grid.py says what is wrong with it).

    function split(text) {
        const parts = [[""]];
        for (let at = 0; at < text.length; at += 1) {
            const part = parts[parts.length - 1];
            if (text[at] === ",") {
                parts.push([""]);
            } else if (text[at] === "|") {
                part.push("");
            } else {
                at += text[at] === "\\" ? 1 : 0;
                if (at === text.length) {
                    return null;
                }
                part[part.length - 1] += text[at];
            }
        }
        return parts;
    }

    function condition(text, kind) {
        const colon = text.indexOf(":");
        const head = colon < 0 ? text : text.slice(0, colon);
        const dot = head.indexOf(".");
        const word = dot < 0 ? "" : head.slice(dot + 1);
        const type = Object.hasOwn(kind.words, word) && kind.words[word];
        const made = {filterType: kind.name, type};
        if (!type || word in EITHER) {
            return type && colon < 0 ? made : null;
        }
        const values = (word === "between" ? text.slice(colon + 1).split("..") : [text.slice(colon + 1)]).map(kind.read);
        if (colon < 0 || values.includes(null) || values.length !== (word === "between" ? 2 : 1)) {
            return null;
        }
        const [from, to] = kind.name === "date" ? ["dateFrom", "dateTo"] : ["filter", "filterTo"];
        return {...made, [from]: values[0], ...(values.length > 1 ? {[to]: values[1]} : {})};
    }

    function filters(text, kindOf) {
        const found = {}, parts = text ? split(text) : [];
        for (const part of parts || [[""]]) {
            const column = part[0].split(":")[0].split(".")[0];
            const kind = kindOf(column);
            const conditions = kind ? part.map((each) => condition(each, kind)) : [null];
            const known = (found[column] && (found[column].conditions || [found[column]])) || [];
            if (conditions.includes(null) || part.some((each) => each.split(":")[0].split(".")[0] !== column)
                || known.length + conditions.length > 2) {
                return null;
            }
            const all = [...known, ...conditions];
            found[column] = all.length > 1
                ? {filterType: kind.name, operator: part.length > 1 ? "OR" : "AND", conditions: all} : all[0];
        }
        return found;
    }

    function written(column, made) {
        const words = Object.values(KINDS).find((kind) => kind.name === made.filterType).words;
        const word = Object.keys(words).find((each) => words[each] === made.type);
        const head = word ? `${column}.${word}` : column;
        if (word in EITHER) {
            return head;
        }
        const values = made.filterType === "date" ? [made.dateFrom, made.dateTo].map((each) => each && each.slice(0, 10))
            : [made.filter, made.filterTo];
        const said = word === "between" ? `${values[0]}..${values[1]}` : String(values[0]);
        return `${head}:${said.replace(/[\\,|]/g, "\\$&")}`;
    }

    function text(model) {
        // in one order, whichever the grid has them in
        return Object.entries(model || {}).sort().map(([column, made]) => (made.conditions || [made])
            .map((each) => written(column, each)).join(made.operator === "OR" ? "|" : ",")).join(",");
    }

    function order(said, kindOf) {
        const found = (said ? said.split(",") : []).map((each, place) => ({
            colId: each.replace(/^-/, ""), sort: each.startsWith("-") ? "desc" : "asc", sortIndex: place}));
        const names = found.map((each) => each.colId);
        return names.every((each, place) => kindOf(each) && names.indexOf(each) === place) ? found : [];
    }

    function ordered(states) {
        return states.filter((each) => each.sort).sort((one, other) => (one.sortIndex || 0) - (other.sortIndex || 0))
            .map((each) => (each.sort === "desc" ? "-" : "") + each.colId).join(",");
    }

    // The fields of a grid's columns are there once somebody asks for them, or an address filters.
    function fields(grid, shown) {
        const api = window.dash_ag_grid.getApi(grid);
        const definition = api.getGridOption("defaultColDef");
        if (Boolean(definition.floatingFilter) !== shown) {
            api.setGridOption("defaultColDef", {...definition, floatingFilter: shown});
        }
        document.getElementById(grid).closest(".grid").classList.toggle("filtering", shown);
        const button = document.querySelector(`[data-filters="${grid}"]`);
        if (button) {
            button.setAttribute("aria-pressed", String(shown));
        }
    }

    document.addEventListener("click", (event) => {
        const button = event.target.closest("[data-filters]");
        if (button) {
            fields(button.dataset.filters, button.getAttribute("aria-pressed") !== "true");
        }
    });

    window.fallowFilters = {kinds: KINDS, filters, text, order, ordered, fields};
})();
