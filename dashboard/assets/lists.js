// The lists of the bar by keyboard and for readers' programs: dash leaves both halfway.

(function () {
    "use strict";

    // Dash hides a field from readers' programs, leaves it in the order of tab stops, and takes the button out of it.
    function reachable(root) {
        for (const field of root.querySelectorAll("input.dash-dropdown-focus-target")) {
            const button = field.parentNode.querySelector("button.dash-dropdown");
            if (field.tabIndex !== -1) {
                field.tabIndex = -1;
            }
            if (button && button.tabIndex !== 0) {
                button.tabIndex = 0;
            }
            if (button && button.getAttribute("aria-haspopup") === "listbox") {
                const label = document.querySelector(`label[for="${button.id}"]`);
                if (label && label.id) {
                    button.setAttribute("aria-labelledby", `${label.id} ${button.id}-value`);
                }
                button.setAttribute("aria-haspopup", "dialog");
            }
        }
    }

    // An open list is radio buttons in a dialog: so it says, instead of options that hold radio buttons.
    function told(root) {
        for (const list of root.querySelectorAll(".dash-dropdown-content")) {
            const button = document.querySelector(`[aria-controls="${list.id}"]`);
            const label = button && document.querySelector(`label[for="${button.id}"]`);
            const name = label ? label.textContent : "";
            if (name && list.getAttribute("aria-label") !== name) {
                list.setAttribute("aria-label", name);
                const search = list.querySelector("input[type=search]");
                if (search) {
                    search.setAttribute("aria-label", name);
                    search.placeholder = `${name}…`;
                }
            }
            const choices = list.querySelector("[role=listbox]");
            if (choices) {
                choices.setAttribute("role", "radiogroup");
                choices.setAttribute("aria-label", name);
            }
            for (const choice of list.querySelectorAll("[role=option]")) {
                choice.removeAttribute("role");
                choice.removeAttribute("aria-selected");
            }
        }
    }

    new MutationObserver(() => {
        reachable(document);
        told(document);
    }).observe(document.documentElement, {childList: true, subtree: true, attributes: true, attributeFilter: ["role", "aria-selected", "tabindex", "aria-haspopup"]});
})();
