"""Every attack, the worst of the first table first."""

from __future__ import annotations

from tests.attacks import on_lakes, on_readers, pages
from tests.attacks.model import Attack

ATTACKS = (
    Attack(
        "many-windows", "a viewer asks for one new window after another, and for ever more of one",
        "64 GPUs: 2.9 GB after 200 windows, never given back", "within dashboard.memory; known pages p95 < 300 ms",
        pages.many_windows,
    ),
    Attack(
        "abandoned", "200 requests for new windows, hung up at once",
        "100: /healthz silent for 175 s", "/healthz < 100 ms on the probes' port; known pages < 1 s, then a new window < 30 s",
        pages.abandoned,
    ),
    Attack(
        "slow-clients", "64 clients of four kinds: half-sent headers and bodies, unread answers, idle connections",
        "8 half-sent requests: no answer for 421 s", "others served in 1 s", pages.slow_clients,
    ),
    Attack(
        "two-imports", "two imports into one lake at the same moment",
        "5 of 10 runs lost 12,000 of 24,000 rows, exit 0", "100 races give the union", on_lakes.two_imports,
    ),
    Attack(
        "dying-writers", "kill -9, full disk, I/O errors and short writes at moments by chance",
        "20 of 20 kills held; faults of the disk were not tried", "nothing lost, doubled or half-written",
        on_lakes.dying_writers,
    ),
    Attack(
        "other-teams", "a team's viewer asks for everything, shared GPUs and others' names included",
        "GPU and host pages showed other teams' pods", "nothing of others in any answer", on_readers.other_teams,
    ),
    Attack(
        "bad-files", "damaged files in the lake",
        "one garbage file stopped the ledger; a FIFO hung it; 9.7 GB for a link", "all that was good as before, 1 GiB",
        on_lakes.bad_files,
    ),
    Attack(
        "bombs", "a few MB to import that unpack to gigabytes",
        "4 to 6 GB, abort or over 150 s", "refused in a sentence, 1 GiB", on_lakes.bombs_to_import,
    ),
    Attack(
        "damaged-inputs", "damaged files to import",
        "800 without a traceback", "no traceback, no hang, 1 GiB", on_lakes.damaged_inputs,
    ),
    Attack(
        "hostile-names", "names that are formulas, markup, links, controls and marks that turn text, through every command",
        "formulas, escapes and U+202E went out raw", "nothing is run, followed or hidden", on_readers.hostile_names,
    ),
    Attack(
        "signed-out", "a cookie that was saved before its owner signed out",
        "200 for 12 h", "a sign-in page or 401", on_readers.signed_out,
    ),
)  # fmt: skip
