// Timelines and series: what lies under the pointer, where a click leads, and what a drag along the time asks for.

(function () {
    "use strict";
    const same = () => window.dash_clientside.no_update;
    const DOUBLE_MS = 350;  // a double click begins like a click: that one leads nowhere
    let clicks = 0;
    const pad = (number) => String(number).padStart(2, "0");

    // A moment on the clocks of the reader's zone, in the reader's language.
    function moment(ms, words) {
        const how = {timeZone: words.zone, day: "numeric", month: "short", hour: "2-digit", minute: "2-digit",
            hourCycle: "h23", timeZoneName: "short"};
        try {
            return new Intl.DateTimeFormat(words.lang === "en" ? "en-GB" : words.lang, how).format(ms);
        } catch (error) {
            const utc = new Date(ms);  // a zone that the browser does not know
            return `${utc.toISOString().slice(0, 10)} ${pad(utc.getUTCHours())}:${pad(utc.getUTCMinutes())} UTC`;
        }
    }

    // Who had a row's GPU in a column: runs are [name, columns, name, columns, ...].
    function user(words, row, column) {
        const runs = words.runs[row] || [];
        let at = 0;
        for (let left = column; at + 2 < runs.length && left >= runs[at + 1]; at += 2) {
            left -= runs[at + 1];
        }
        return runs.length && runs[at] ? words.names[runs[at]] : "";
    }

    // The column in which a moment lies; they are not all as long where clocks changed.
    function columnAt(words, ms) {
        if (!words.edges.length) {
            return Math.floor((ms - words.start) / words.bin);
        }
        return Math.max(0, words.edges.findIndex((edge) => edge > ms) - 1);
    }

    function beginOf(words, column) {
        return words.edges.length ? words.edges[column] : words.start + column * words.bin;
    }

    function changed(search, change) {
        const address = new URLSearchParams(search || "");
        const before = address.toString();
        change(address);
        const after = address.toString();
        return after === before ? same() : (after ? `?${after}` : "");
    }

    // The row of which a line of the picture is, and its first line; nothing for a line between rows.
    function rowAt(words, line) {
        let before = 0;
        for (const gap of words.gaps) {
            const begin = gap * words.each + before + words.gap;
            if (line < begin - words.gap) {
                break;
            }
            if (line < begin) {
                return null;
            }
            before += words.gap;
        }
        const row = Math.floor((line - before) / words.each);
        return {row, first: row * words.each + before};
    }

    // What a pool's or a host's GPUs did in a column: each state has as many of its lines there as its share, rounded.
    function shares(point, words, first) {
        const drawn = document.querySelector("#timeline-graph .js-plotly-plot");
        const cells = drawn.calcdata[point.curveNumber][0].z;
        const column = columnAt(words, point.x);
        const counts = words.states.map(() => 0);
        for (let line = first; line < first + words.each; line += 1) {
            counts[cells[line][column]] += 1;
        }
        const format = new Intl.NumberFormat(words.lang, {maximumFractionDigits: 1, style: "percent"});
        return counts.map((count, state) => count ? `${words.states[state]}: ${format.format(count / words.each)}` : "").filter(Boolean);
    }

    function text(point, words) {
        if (point.z === undefined) {
            const line = words.lines[point.curveNumber];
            const format = new Intl.NumberFormat(words.lang, {maximumFractionDigits: line.digits});
            return [line.name, moment(point.x, words), `${format.format(point.y)} ${line.unit}`].join("\n");
        }
        const {row, first} = rowAt(words, point.y);
        const column = columnAt(words, point.x);
        const when = moment(beginOf(words, column), words);
        if (!words.gpus.length) {
            return [words.hosts[words.at[row]], when, ...shares(point, words, first)].join("\n");
        }
        const lines = [`${words.hosts[words.at[row]]} \u00b7 ${words.gpus[row].replace(/\p{C}/gu, "?")}`, when, words.states[point.z]];
        const name = user(words, row, column);
        return (name ? [...lines, name] : lines).join("\n");
    }

    function leads(words, row) {
        if (words.open.length) {
            const [path, search] = words.open[words.at[row]].split("?");
            return [path, `?${search}`];
        }
        return ["/gpu", changed(words.search, (address) => address.set("gpu", words.gpus[row]))];
    }

    // A finger that moves over a picture scrolls the page, and one that taps opens a GPU: plotly would take both for a drag.
    document.addEventListener("touchstart", (event) => {
        if (event.touches.length === 1 && event.target.closest(".js-plotly-plot")) {
            event.stopPropagation();
        }
    }, {capture: true, passive: true});

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        timeline: {
            tooltip: (hover, words) => {
                const points = (hover && hover.points) || [];
                const told = (each) => each.z !== undefined ? rowAt(words, each.y) : words.lines[each.curveNumber];
                const point = words && points.find(told);
                return point ? [true, point.bbox, text(point, words)] : [false, same(), same()];
            },

            // A click on a row opens its GPU, or the pool or host that it stands for, unless it is the one that is shown; the bar's choices and what is in sight go along.
            open: (click, words) => {
                const point = click && click.points && click.points[0];
                const at = point && point.z !== undefined && words && rowAt(words, point.y);
                if (!at || window.location.pathname === "/gpu") {
                    return [same(), same()];
                }
                const mine = ++clicks;
                const there = leads(words, at.row);
                return new Promise((resolve) => {
                    setTimeout(() => resolve(mine === clicks ? there : [same(), same()]), DOUBLE_MS);
                });
            },

            // What was dragged out of the time goes into the address, and the server bins it anew; a double click takes it out.
            zoom: (layout, search) => {
                if (!layout) {
                    return same();
                }
                if (layout["xaxis.autorange"]) {
                    clicks += 1;
                    return changed(search, (address) => ["start", "end"].forEach((name) => address.delete(name)));
                }
                const [from, to] = [layout["xaxis.range[0]"], layout["xaxis.range[1]"]].map(Number);
                if (!Number.isFinite(from) || !Number.isFinite(to)) {
                    return same();
                }
                const minute = 60000;
                const start = Math.floor(Math.min(from, to) / minute) * minute;
                const end = Math.max(Math.ceil(Math.max(from, to) / minute) * minute, start + 5 * minute);
                const when = (ms) => new Date(ms).toISOString().replace(":00.000Z", "Z");
                return changed(search, (address) => {
                    address.set("start", when(start));
                    address.set("end", when(end));
                });
            },
        },
    });
})();
