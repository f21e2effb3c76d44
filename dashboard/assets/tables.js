// The library of tables is half of all scripts: it comes with the first table. Until then a stand-in has its name.

(function () {
    "use strict";
    const address = document.currentScript.dataset.grid;
    let library = null, come, lost;
    const coming = new Promise((resolve, reject) => { come = resolve; lost = reject; });

    function fetched() {
        if (!document.getElementById("grid-library")) {
            const script = document.createElement("script");
            script.id = "grid-library";
            script.src = address;
            script.onerror = lost;
            document.head.append(script);
        }
        return coming;
    }

    const Table = window.React.lazy(() => fetched().then((found) => ({default: found.AgGrid})));

    const element = window.React.createElement;

    function AgGrid(properties) {
        const fallback = element("div", {className: "coming", style: properties.style});
        return element(window.React.Suspense, {fallback}, element(Table, properties));
    }
    AgGrid.dashRenderType = true;
    AgGrid.dashPersistence = {persisted_props: ["selectedRows"], persistence_type: "local"};

    const standIn = {
        AgGrid,
        getApi: (id) => library.getApi(id),
        getApiAsync: (id) => coming.then(() => library.getApiAsync(id)),
    };
    Object.defineProperty(window, "dash_ag_grid", {
        get: () => standIn,
        // a later part of the library sets what it finds here
        set: (found) => {
            library = library || found;
            come(library);
        },
    });

    // A press on a row's box must not focus its cell. The browser scrolls to a focused cell at the edge of the window; the click
    // would then end beside the box and choose this row alone.
    for (const press of ["pointerdown", "mousedown"]) {
        document.addEventListener(press, (event) => {
            if (event.target.closest(".ag-selection-checkbox")) {
                event.stopPropagation();
            }
        }, true);
    }
})();
