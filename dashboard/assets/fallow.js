// What only the browser knows: the colour scheme that its user prefers, and where the pointer is.

(function () {
    "use strict";
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    const scheme = () => (dark.matches ? "dark" : "light");

    dark.addEventListener("change", () => {
        window.dash_clientside.set_props("scheme", {data: scheme()});
    });

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        fallow: {
            scheme: () => scheme(),

            // Says what lies under the pointer in the film strip.
            tooltip: (hover, words) => {
                const point = hover && hover.points && hover.points[0];
                if (!point || !words) {
                    return [false, window.dash_clientside.no_update, window.dash_clientside.no_update];
                }
                // midnight comes without its time
                const [day, time] = String(point.x).split(/[ T]/);
                const text = [words.rows[point.y], `${day} ${(time || "00:00").slice(0, 5)} UTC`,
                    words.states[point.z]].join("\n");
                return [true, point.bbox, text];
            },
        },
    });
})();
