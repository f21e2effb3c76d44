// Keeps the chosen finding in the address, without asking the server for the page again.

(function () {
    "use strict";
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
