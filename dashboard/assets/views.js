// Views that a reader has saved by name: addresses of these pages, kept by this browser for each person who uses it.

(function () {
    "use strict";
    const MOST = 50, LONGEST = 60;
    let said = {};  // the words, and who reads

    const key = () => `fallow-views:${said.person || ""}`;
    const isOurs = (address) => /^\/(?![/\\])/.test(address);

    function read() {
        try {
            const kept = JSON.parse(window.localStorage.getItem(key())) || [];
            return kept.filter((each) => each && typeof each.name === "string" && isOurs(String(each.address)));
        } catch (error) {
            return [];  // storage is switched off, or somebody else wrote there
        }
    }

    function write(views) {
        try {
            window.localStorage.setItem(key(), JSON.stringify(views));
            return true;
        } catch (error) {
            return false;
        }
    }

    function made(tag, look, text) {
        const element = document.createElement(tag);
        Object.assign(element, {className: look, textContent: text});
        return element;
    }

    function close(back) {
        const box = document.getElementById("views");
        if (box.open) {
            box.open = false;
            if (back) {
                document.getElementById("views-label").focus();
            }
        }
    }

    // As a link of the pages leads: without loading them anew.
    function go(event, address) {
        if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) {
            return;
        }
        event.preventDefault();
        close(true);
        window.history.pushState({}, "", address);
        window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
    }

    function row(view, place) {
        const item = made("li", "", ""), link = made("a", "", view.name), out = made("button", "button", "×");
        link.href = view.address;
        link.dir = "auto";
        link.addEventListener("click", (event) => go(event, view.address));
        if (view.address === window.location.pathname + window.location.search) {
            link.setAttribute("aria-current", "true");
        }
        out.type = "button";
        out.title = said.remove;
        out.setAttribute("aria-label", `${said.remove}: ${view.name}`);
        out.addEventListener("click", () => {
            const done = write(read().filter((each) => each.name !== view.name));
            draw(done ? said.removed : said.failed);
            const rest = document.querySelectorAll("#views-list button");
            (rest[Math.min(place, rest.length - 1)] || document.getElementById("views-name")).focus();
        });
        item.append(link, out);
        return item;
    }

    function draw(status) {
        const views = read().sort((one, other) => one.name.localeCompare(other.name, said.lang));
        document.getElementById("views-list").replaceChildren(...views.map(row));
        document.getElementById("views-status").textContent = status || (views.length ? "" : said.none);
    }

    function save() {
        const field = document.getElementById("views-name");
        const name = field.value.trim().slice(0, LONGEST);
        if (!name) {
            field.focus();
            draw(said.nameless);
            return;
        }
        const others = read().filter((each) => each.name !== name);
        const address = window.location.pathname + window.location.search;
        const done = others.length < MOST && write([...others, {name, address}]);
        field.value = done ? "" : field.value;
        draw(done ? said.saved : others.length < MOST ? said.failed : said.full);
    }

    document.addEventListener("click", (event) => {
        const box = document.getElementById("views");
        if (box && !box.contains(event.target) && document.contains(event.target)) {
            close(false);
        }
        // `toggle` would come later than the next key: the list is there when the box opens
        if (event.target.id === "views-label" && !box.open) {
            draw("");
        }
        if (event.target.id === "views-save") {
            save();
        }
    });
    document.addEventListener("keydown", (event) => {
        if (event.key === "Escape") {
            const box = document.getElementById("views");
            close(box && box.contains(document.activeElement));
        } else if (event.key === "Enter" && event.target.id === "views-name") {
            event.preventDefault();
            save();
        }
    });

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        views: {
            // The words of the list in the reader's language; it is drawn when it is opened.
            words: (words) => {
                if (words) {
                    said = words;
                    document.getElementById("views-label").textContent = words.label;
                    document.getElementById("views-name").setAttribute("aria-label", words.name);
                    document.getElementById("views-name").placeholder = words.name;
                    document.getElementById("views-save").textContent = words.save;
                }
                return window.dash_clientside.no_update;
            },
        },
    });
})();
