// Any range of days (dashboard/days.py): the fields become the browser's own, and what is sent becomes an address.

(function () {
    "use strict";
    const fieldsOf = (form) => ["first", "last"].map((name) => form.querySelector(`.days input[name=${name}]`));

    // A field for text is one for a day where the browser has such: with a calendar, keys, and the reader's own way to write days.
    function enhance() {
        for (const input of document.querySelectorAll(".days input[type=text]")) {
            const {min, max} = input.closest(".days").dataset;
            // dash keeps the cursor where it was, which a date field does not know
            Object.assign(input, {type: "date", min: "1971-01-01", max: "9998-12-31", setSelectionRange: () => {}});
            input.title = `${min} – ${max}`;
        }
    }
    new MutationObserver(enhance).observe(document.documentElement, {childList: true, subtree: true});

    document.addEventListener("input", (event) => {
        if (event.target.closest(".days")) {
            fieldsOf(event.target.form).forEach((input) => input.setCustomValidity(""));
        }
    }, true);

    document.addEventListener("submit", (event) => {
        const days = event.target.querySelector(".days");
        if (!days) {
            return;
        }
        event.preventDefault();
        const [from, to] = fieldsOf(event.target), first = from.value, last = to.value;
        if (!first || !last) {
            (first ? to : from).focus();
            return;
        }
        if (first > last) {
            to.setCustomValidity(days.dataset.wrong);
            to.reportValidity();
            return;
        }
        const address = new URLSearchParams(window.location.search);
        if (days.dataset.into === "against") {
            address.set("against", `${first}..${last}`);
        } else {
            ["span", "since", "until"].forEach((name) => address.delete(name));
            address.set("first", first);
            address.set("last", last);
        }
        const around = event.target.closest("details");
        if (around) {
            around.open = false;
        }
        window.dash_clientside.set_props("url", {search: `?${address}`});
    });

    // as any list that opens: Escape closes it, and so does a click elsewhere
    const shut = (but) => document.querySelectorAll("details.any-days[open]").forEach((each) => {
        each.open = each === but;
    });
    document.addEventListener("click", (event) => shut(event.target.closest("details.any-days")));
    document.addEventListener("keydown", (event) => {
        const around = event.key === "Escape" && event.target.closest("details.any-days[open]");
        if (around) {
            around.open = false;
            around.querySelector("summary").focus();
        }
    });
})();
