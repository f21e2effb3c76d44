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

    // a page that is still being made asks again by itself, unless it is asking already
    setInterval(() => {
        const late = document.querySelector("#page [data-again]");
        if (late && !late.closest("[data-dash-is-loading=true]")) {
            document.getElementById("again").click();
        }
    }, 3000);

    // what is scrolled to stays clear of the bar, which is as high as its rows
    function measure() {
        const bar = document.getElementById("bar");
        if (bar) {
            new ResizeObserver(() => {
                document.documentElement.style.setProperty("--bar", `${bar.offsetHeight}px`);
            }).observe(bar);
        }
        return Boolean(bar);
    }
    new MutationObserver((_, watch) => { if (measure()) { watch.disconnect(); } })
        .observe(document.documentElement, {childList: true, subtree: true});

    // on a phone the pages and the filters fold into two buttons, of which at most one is open
    function unfold(name) {
        const bar = document.getElementById("bar");
        bar.dataset.open = name;
        for (const button of bar.querySelectorAll(".fold")) {
            button.setAttribute("aria-expanded", String(button.id === name));
        }
    }
    document.addEventListener("click", (event) => {
        const button = event.target.closest(".fold");
        if (button) {
            unfold(document.getElementById("bar").dataset.open === button.id ? "" : button.id);
        } else if (event.target.closest(":is(#nav, #pages) a, #page")) {
            unfold("");
        }
    });
    document.addEventListener("keydown", (event) => {
        const open = document.getElementById("bar")?.dataset.open;
        if (event.key === "Escape" && open && event.target.closest("#bar") && !event.target.closest("details[open]")) {
            unfold("");
            document.getElementById(open).focus();
        }
    });

    // on a phone sections that follow the answer come closed, behind their titles
    const phone = window.matchMedia("(max-width: 700px)");
    new MutationObserver((changes) => {
        const added = phone.matches ? changes.flatMap((each) => [...each.addedNodes]) : [];
        for (const node of added.filter((each) => each.querySelectorAll)) {
            node.querySelectorAll(".on-phones > details[open]").forEach((each) => { each.open = false; });
        }
    }).observe(document.documentElement, {childList: true, subtree: true});

    // a session that has ended: the page itself leads to the sign-in and back
    const ask = window.fetch;
    window.fetch = (...asked) => ask(...asked).then(answer => {
        if (answer.status === 401) {
            window.location.reload();
        }
        return answer;
    });

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

            // The address of what is on the page, to be handed to somebody; the button says when it has it.
            copy: clicks => {
                const button = document.getElementById("copy");
                if (!clicks) {
                    return;
                }
                const done = () => {
                    button.dataset.done = "yes";
                    setTimeout(() => delete button.dataset.done, 2000);
                };
                if (navigator.clipboard) {
                    navigator.clipboard.writeText(window.location.href).then(done);
                    return;
                }
                // on a plain address browsers have only the old way
                const field = document.createElement("textarea");
                field.value = window.location.href;
                document.body.append(field);
                field.select();
                if (document.execCommand("copy")) {
                    done();
                }
                field.remove();
                button.focus();
            },

            // The language of what the page says, for whoever has it read aloud.
            speak: code => {
                document.documentElement.lang = code || "en";
                return window.dash_clientside.no_update;
            },

            // The page, its scope and its window, for the tab, the history and bookmarks.
            title: said => {
                document.title = said || "fallow";
                return window.dash_clientside.no_update;
            },

            // The address with what somebody has chosen in the bar since the server filled it; none where nobody has.
            ask: (span, pool, model, team, zone, lang, shown) => {
                const values = {span, pool, model, team, zone, lang};
                const chosen = Object.keys(values).filter(name => shown && (values[name] || "") !== (shown[name] || ""));
                if (!chosen.length) {
                    return window.dash_clientside.no_update;
                }
                const address = new URLSearchParams(window.location.search);
                for (const name of chosen) {
                    if (values[name]) {
                        address.set(name, values[name]);
                    } else {
                        address.delete(name);
                    }
                }
                if (chosen.includes("span")) {
                    ["since", "until", "first", "last"].forEach(name => address.delete(name));
                }
                const after = address.toString();
                return after ? `?${after}` : "";
            },
        },
    });
})();
