// The page What if and its address: what is tried out can be shared and saved as a view. Its sliders say their marks, not their places.

(function () {
    "use strict";
    const PATH = "/what-if";

    function name(group) {
        const handle = group.querySelector("[role=slider]");
        if (!handle) {
            return;
        }
        const mark = group.querySelectorAll(".dash-slider-mark")[Number(handle.getAttribute("aria-valuenow"))];
        const wanted = {"aria-labelledby": group.getAttribute("aria-labelledby"), "aria-valuetext": mark ? mark.textContent : ""};
        for (const [attribute, text] of Object.entries(wanted)) {
            if (handle.getAttribute(attribute) !== text) {
                handle.setAttribute(attribute, text);
            }
        }
    }

    new MutationObserver(() => document.querySelectorAll(".named-slider").forEach(name)).observe(
        document.documentElement, {childList: true, subtree: true, attributeFilter: ["aria-valuenow"]},
    );

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
