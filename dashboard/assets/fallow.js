// What only the browser knows: the colour scheme that its user prefers, where the pointer is, and the address.

(function () {
    "use strict";
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    const KEY = "fallow-scheme";

    function chosen() {
        try {
            return window.localStorage.getItem(KEY);
        } catch (error) {
            return null;  // storage is switched off
        }
    }

    function current() {
        return chosen() || (dark.matches ? "dark" : "light");
    }

    function show(scheme) {
        document.documentElement.dataset.theme = scheme;
        return scheme;
    }

    show(current());

    // dash hides a field of its lists from readers' programs and leaves it in the order of tab stops
    new MutationObserver(() => {
        for (const each of document.querySelectorAll("input.dash-dropdown-focus-target[tabindex='0']")) {
            each.tabIndex = -1;
        }
    }).observe(document.documentElement, {childList: true, subtree: true});

    dark.addEventListener("change", () => {
        if (!chosen()) {
            window.dash_clientside.set_props("scheme", {data: show(current())});
        }
    });

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        fallow: {
            // A click turns the scheme round and keeps it for the next visit.
            scheme: (clicks, shown) => {
                if (!clicks) {
                    return show(current());
                }
                const next = shown === "dark" ? "light" : "dark";
                try {
                    window.localStorage.setItem(KEY, next);
                } catch (error) {
                    // storage is switched off: it stays for this visit
                }
                return show(next);
            },

            // The address with what somebody has chosen in the bar since the server filled it; none where nobody has.
            ask: (span, pool, model, team, zone, lang, shown, search) => {
                const values = {span, pool, model, team, zone, lang};
                const chosen = Object.keys(values).filter(name => shown && (values[name] || "") !== (shown[name] || ""));
                if (!chosen.length) {
                    return window.dash_clientside.no_update;
                }
                const address = new URLSearchParams(search || "");
                for (const name of chosen) {
                    if (values[name]) {
                        address.set(name, values[name]);
                    } else {
                        address.delete(name);
                    }
                }
                if (chosen.includes("span")) {
                    address.delete("since");
                    address.delete("until");
                }
                const after = address.toString();
                return after ? `?${after}` : "";
            },
        },
    });
})();
