// Writes the choices of the page What if into its address, which can be shared and saved as a view.

(function () {
    "use strict";
    const PATH = "/what-if";

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        whatif: {
            chosen: (text) => {
                if (window.location.pathname === PATH && typeof text === "string") {
                    const address = new URL(window.location.href);
                    if (text) {
                        address.searchParams.set("scenario", text);
                    } else {
                        address.searchParams.delete("scenario");
                    }
                    if (address.href !== window.location.href) {
                        window.history.replaceState(window.history.state, "", address.href);
                    }
                }
                return window.dash_clientside.no_update;
            },
        },
    });
})();
