// The recommendations' page and its address: the chosen decision and the reserve that is tried out can be shared.

(function () {
    "use strict";
    const PATH = "/recommendations", GRID = "recommendations-grid";
    const BESIDE = window.matchMedia("(min-width: 1200px)");  // style_recommendations.css

    const isHere = () => window.location.pathname === PATH;

    function say(name, value) {
        if (!isHere()) {
            return;
        }
        const address = new URL(window.location.href);
        if (value) {
            address.searchParams.set(name, value);
        } else {
            address.searchParams.delete(name);
        }
        if (address.href !== window.location.href) {
            window.history.replaceState(window.history.state, "", address.href);
        }
    }

    const recommendationOf = (row) => String(row.id).split("/")[0];

    // Whether the table has a row of it: one that is put off or only to be looked at has none.
    function listed(id) {
        let found = false;
        try {
            window.dash_ag_grid.getApi(GRID).forEachNode((node) => { found = found || recommendationOf(node.data) === id; });
        } catch {
            // the table is not there yet
        }
        return found;
    }

    // Dash names no slider, and says places instead of what stands below them.
    function nameSlider() {
        const handle = document.querySelector("#reserve [role=slider]");
        if (!handle) {
            return;
        }
        const mark = document.querySelectorAll("#reserve .dash-slider-mark")[Number(handle.getAttribute("aria-valuenow"))];
        const wanted = {"aria-labelledby": "reserve-label", "aria-valuetext": mark ? mark.textContent : ""};
        for (const [name, text] of Object.entries(wanted)) {
            if (handle.getAttribute(name) !== text) {
                handle.setAttribute(name, text);
            }
        }
    }

    new MutationObserver(nameSlider).observe(
        document.documentElement, {childList: true, subtree: true, attributeFilter: ["aria-valuenow"]},
    );

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        recommendations: {
            // What was put off leaves the table and stays chosen, so that it can be reopened.
            choose: (rows, before) => {
                const id = rows && rows.length ? recommendationOf(rows[0]) : "";
                if (id === before || (!id && before && !listed(before))) {
                    return window.dash_clientside.no_update;
                }
                say("recommendation", id);
                return id;
            },

            // Where the panel is below the table, the page goes to what was chosen, once.
            arrive: () => {
                const id = isHere() && new URLSearchParams(window.location.search).get("recommendation") || "";
                const panel = document.getElementById("recommendation-detail");
                const is_new = panel && panel.dataset.arrived !== id;
                if (panel) {
                    panel.dataset.arrived = id;
                }
                if (is_new && id && !BESIDE.matches) {
                    setTimeout(() => {
                        const heading = document.getElementById("recommendation-heading");
                        if (heading) {
                            heading.focus({preventScroll: true});
                            heading.scrollIntoView({block: "start"});
                        }
                    });
                }
                return window.dash_clientside.no_update;
            },

            // The slider says so too when it is only made again.
            reserve: (place, reserves, before) => {
                if (place === before) {
                    return window.dash_clientside.no_update;
                }
                say("reserve", reserves[place]);
                return place;
            },
        },
    });
})();
