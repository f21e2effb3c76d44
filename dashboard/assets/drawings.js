// Drawings come with the page as text. One is drawn when it comes near the screen, in the width that fits there, and says under
// the pointer what stands at that place.

(function () {
    "use strict";
    const PLACES = "[data-drawing]";

    function draw(place) {
        near.unobserve(place);
        place.innerHTML = place.dataset.drawing;
    }

    // a drawing for another width is not displayed, and so near nothing
    const near = new IntersectionObserver((places) => {
        places.filter((each) => each.isIntersecting).forEach((each) => draw(each.target));
    }, {rootMargin: "300px"});

    new MutationObserver((changes) => {
        for (const {type, target, addedNodes} of changes) {
            if (type === "attributes") {
                target.replaceChildren();
                near.observe(target);
            }
            for (const node of addedNodes) {
                if (node.matches && node.matches(PLACES)) {
                    near.observe(node);
                } else if (node.querySelectorAll) {
                    node.querySelectorAll(PLACES).forEach((each) => near.observe(each));
                }
            }
        }
    }).observe(document.documentElement, {childList: true, subtree: true, attributes: true, attributeFilter: ["data-drawing"]});

    window.addEventListener("beforeprint", () => document.querySelectorAll(PLACES).forEach(draw));

    const said = document.createElement("div");
    said.className = "tooltip of-drawing";
    said.hidden = true;
    said.setAttribute("aria-hidden", "true");

    document.addEventListener("pointerover", (event) => {
        const place = event.target.closest(".tip");
        said.hidden = !place;
        if (!place) {
            return;
        }
        said.textContent = place.dataset.tip;
        document.body.append(said);
        const box = place.getBoundingClientRect(), own = said.getBoundingClientRect();
        const left = box.left + box.width / 2 - own.width / 2, above = event.clientY - own.height - 14;
        said.style.left = `${Math.max(4, Math.min(left, window.innerWidth - own.width - 4))}px`;
        said.style.top = `${above > 4 ? above : event.clientY + 18}px`;
    });
    document.addEventListener("scroll", () => { said.hidden = true; }, {capture: true, passive: true});
})();
