// The opportunities' page and its address: the chosen decision and the reserve that is tried out can be shared.

(function () {
    "use strict";
    const PATH = "/opportunities";

    function say(name, value) {
        if (window.location.pathname !== PATH) {
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

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        opportunities: {
            choose: (rows) => say("opportunity", rows && rows.length ? String(rows[0].id).split("/")[0] : ""),
            reserve: (place, reserves) => say("reserve", reserves[place]),
        },
    });
})();
