// Keeps the chosen finding in the address, without asking the server for the page again.

(function () {
    "use strict";

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
        d3: {
            address: (rows) => {
                const address = new URL(window.location.href);
                if (rows && rows.length === 1) {
                    address.searchParams.set("finding", rows[0].id);
                } else {
                    address.searchParams.delete("finding");
                }
                if (address.href !== window.location.href) {
                    window.history.replaceState(window.history.state, "", address.href);
                }
            },
        },
    });
})();
