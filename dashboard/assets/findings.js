// The findings' table and its address: what is filtered, sorted, shown and chosen can be shared, and stepped back through.
// The address is what counts; the table follows it, and writes into it what its reader does. No word of it goes to the server.

(function () {
    "use strict";
    const GRID = "findings-grid", PATH = "/findings";
    const OWN = ["finding", "filter", "sort", "show"];
    const LONGEST = 300;  // of a value of the address: query.py
    const TYPING_MS = 2000;  // what is typed at one go is one step back
    const SETTLED_MS = 20;  // the grid lets go of all rows before it chooses others
    const CHOOSING_MS = 3000;  // dash has chosen the rows of the address by then, or they are none

    const {kinds: KINDS, filters, text, order, ordered, fields} = window.fallowFilters;  // filters.js

    // The address.

    function asked() {
        const address = new URLSearchParams(window.location.search);
        return Object.fromEntries(OWN.map((name) => [name, address.get(name) || ""]));
    }

    function others(href) {
        const address = new URL(href);
        OWN.forEach((name) => address.searchParams.delete(name));
        return address.href;
    }

    function addressOf(own) {
        const name = (part) => part.split("=")[0];
        const rest = window.location.search.replace(/^\?/, "").split("&").filter((part) => part && !OWN.includes(name(part)));
        const readable = (value) => encodeURIComponent(value).replace(/%20/g, "+")
            .replace(/%(3A|2C|7C)/g, (sign) => decodeURIComponent(sign));
        const said = OWN.filter((each) => own[each]).map((each) => `${each}=${readable(own[each])}`);
        const search = [...rest, ...said].join("&");
        return window.location.origin + window.location.pathname + (search ? `?${search}` : "");
    }

    // The table.

    let api = null;  // of the table that stands on the page now
    let showing = false;  // whether findings of low confidence and snoozed ones are listed
    let shown = "";  // the address that the table follows
    let place = null;  // which rows are chosen, and which page is open, at which address
    let step = {what: "", at: 0};  // what was written into the address last, and when
    let busy = false;  // while the table is made to follow the address
    let wanted = null;  // the rows that dash is about to choose, and since when
    let made = 0;  // when the table was made, until its reader filters or sorts
    let coming = null;  // the filter that the grid is about to have: fields for days take their time
    let waiting = null;

    const isHere = () => api && !api.isDestroyed() && window.location.pathname === PATH;
    const kindOf = (column) => {
        const definition = api.getColumnDef(column);
        return definition ? KINDS[definition.filter] : undefined;
    };
    const chosen = () => api.getSelectedNodes().map((node) => node.id);

    function listed() {
        const found = new Map();
        api.forEachNodeAfterFilterAndSort((node) => found.set(node.id, node));
        return found;
    }

    function choose(ids) {
        const rows = listed();
        const kept = ids.filter((each) => rows.has(each));
        const now = chosen();
        if (kept.length !== now.length || kept.some((each) => !now.includes(each))) {
            window.dash_clientside.set_props(GRID, {selectedRows: kept.map((each) => rows.get(each).data)});
        }
        return kept;
    }

    function pressed() {
        const button = document.getElementById("findings-hidden");
        if (button) {
            button.setAttribute("aria-pressed", String(showing));
        }
    }

    function arrange(said) {
        if (said.filter) {
            fields(GRID, true);
        }
        api.setFilterModel(filters(said.filter, kindOf) || null);
        api.applyColumnState({state: order(said.sort, kindOf), defaultState: {sort: null, sortIndex: null}});
    }

    // Dash puts the filters that a new table began with, none, over those of the address, sooner or later: not for long.
    function isNew() {
        return Date.now() - made < CHOOSING_MS;
    }

    function hold(event) {
        if (event.source === "columnFilter" || String(event.source).startsWith("ui")) {
            made = 0;
            coming = null;
            return;
        }
        const said = asked();
        const is = [text(api.getFilterModel()), ordered(api.getColumnState())];
        const wants = [text(filters(said.filter, kindOf)), ordered(order(said.sort, kindOf))];
        if (!isNew() || busy) {
            return;
        }
        const again = is.join() !== wants.join();
        setTimeout(() => {
            if (isHere() && isNew()) {
                if (again) { arrange(asked()); }
                turn(own());
            }
        }, SETTLED_MS);
    }

    // A new filter or order shows the first page again: back to the page of the chosen row.
    function turn(ids) {
        const first = ids.length && listed().get(ids[0]);
        if (first) {
            api.paginationGoToPage(Math.floor(first.rowIndex / api.paginationGetPageSize()));
        }
    }

    function follow() {
        if (!isHere()) {
            return;
        }
        busy = true;
        const said = asked(), named = said.finding && api.getRowNode(said.finding);
        showing = said.show === "all" || Boolean(named && named.data.aside);
        pressed();
        arrange(said);
        api.onFilterChanged();
        const before = place && place.href === window.location.href ? place : null;
        const ids = choose(before ? before.ids : said.finding ? [said.finding] : []);
        if (before) {
            api.paginationGoToPage(before.page);
        } else {
            turn(ids);
        }
        shown = window.location.href;
        wanted = {ids, since: Date.now()};
        coming = {filter: text(filters(said.filter, kindOf)), since: Date.now()};
        arrived();
        remember(ids);
        busy = false;
    }

    function remember(ids) {
        if (isHere()) {
            place = {href: window.location.href, ids, page: api.paginationGetCurrentPage()};
        }
    }

    function arrived() {
        if (coming && (coming.filter === text(api.getFilterModel()) || Date.now() - coming.since > CHOOSING_MS)) {
            coming = null;
        }
    }

    // The rows that are chosen, or are about to be.
    function own() {
        const now = chosen();
        if (wanted && (wanted.ids.length === now.length && wanted.ids.every((each) => now.includes(each))
            || Date.now() - wanted.since > CHOOSING_MS)) {
            wanted = null;
        }
        return wanted ? wanted.ids : now;
    }

    // Which finding is chosen takes the place of the one before; a filter, an order and the switch are steps to go back by.
    function write() {
        waiting = null;
        if (busy || !isHere()) {
            return;
        }
        const ids = choose(own());  // no button works on rows that a filter hides
        const before = asked();
        const now = {...before, finding: ids.length === 1 ? ids[0] : "", show: showing ? "all" : ""};
        const filter = text(api.getFilterModel()), sort = ordered(api.getColumnState());
        const same = coming || isNew() || filter === text(filters(before.filter, kindOf));
        now.filter = same || filter.length > LONGEST ? before.filter : filter;
        now.sort = isNew() || sort === ordered(order(before.sort, kindOf)) ? before.sort : sort;
        const what = ["filter", "sort", "show"].filter((name) => now[name] !== before[name]).join();
        const href = addressOf(now);
        if (what || now.finding !== before.finding) {
            const goes = what && !(what === "filter" && step.what === what && Date.now() - step.at < TYPING_MS);
            window.history[goes ? "pushState" : "replaceState"](window.history.state, "", href);
            step = what ? {what, at: Date.now()} : step;
            const wrong = document.getElementById("findings-wrong");
            if (what && wrong) {
                wrong.hidden = true;
            }
        }
        shown = window.location.href;
        remember(ids);
    }

    function later() {
        if (!busy && waiting === null) {
            waiting = setTimeout(write, SETTLED_MS);
        }
    }

    function connect(found) {
        api = found;
        made = Date.now();
        for (const name of ["filterChanged", "sortChanged"]) {
            api.addEventListener(name, (event) => {
                if (api !== found || !isHere()) {
                    return;  // the last words of a table that is taken away
                }
                hold(event);
                arrived();
                later();
            });
        }
        api.addEventListener("rowDataUpdated", () => {
            if (isHere() && isNew() && !busy) { turn(own()); }
            later();
        });
        api.addEventListener("selectionChanged", (event) => {
            wanted = String(event.source).startsWith("api") ? wanted : null;  // somebody has chosen otherwise
            later();
        });
        api.addEventListener("paginationChanged", () => { if (!busy && isHere()) { remember(own()); } });
        follow();
    }

    // A step within the table is the table's own; dash would ask the server for the page again.
    window.addEventListener("popstate", (event) => {
        if (isHere() && others(window.location.href) === others(shown || window.location.href)) {
            event.stopImmediatePropagation();
        }
        step = {what: "", at: 0};
        follow();
    });
    window.addEventListener("_dashprivate_pushstate", follow);

    window.dashAgGridFunctions = Object.assign(window.dashAgGridFunctions || {}, {
        fallowHidesSome: () => !showing,
        fallowLists: (node) => !node.data.aside,
    });

    // A field for a day gets the browser's own picker, in its user's language; without this script it takes the day as text.
    function days(root) {
        for (const field of root.querySelectorAll("input.day, .day input")) {
            if (field.type !== "date") {
                field.type = "date";
            }
        }
    }

    new MutationObserver((changes) => {
        for (const change of changes) {
            for (const node of change.addedNodes) {
                if (node.querySelectorAll) {
                    days(node.parentNode || node);
                }
            }
        }
    }).observe(document.documentElement, {childList: true, subtree: true});

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        findings: {
            ready: (id) => {
                window.dash_ag_grid.getApiAsync(id).then(connect);
                return window.dash_clientside.no_update;
            },
            // Which findings are chosen.
            choose: (rows) => (rows || []).map((row) => row.id),
            // Whether there is nothing to press a button for.
            idle: (rows) => !(rows && rows.length),

            show: (presses) => {
                if (presses && isHere()) {
                    showing = !showing;
                    pressed();
                    api.onFilterChanged();
                }
            },
        },
    });
})();
