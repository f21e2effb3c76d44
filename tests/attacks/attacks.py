"""Every attack, the worst of the first table first."""

from __future__ import annotations

from tests.attacks import on_agents, on_lakes, on_readers, pages
from tests.attacks.model import Attack

ATTACKS = (
    Attack(
        "many-windows", "a viewer asks for one new window after another, and for ever more of one",
        "64 GPUs x 28 days: 1,100 of 900 MiB, 961 minutes later", "within dashboard.memory; known pages p95 < 300 ms",
        pages.many_windows,
    ),
    Attack(
        "heavy-reader", "a reader asks for 60 new windows, four at a time, while another looks at known pages",
        "known pages p95 2 s, at most 66 s", "known pages p95 < 500 ms, at most 10 s", pages.heavy_reader,
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
    Attack(
        "lake-away", "the lake's mount is gone for longer than published rows are kept, and comes back",
        "the tree again on the root disk, rows counted as published, status healthy; after keep_published forgotten",
        "nothing on the root disk, publishing failing in status, every row once", on_agents.lake_away,
    ),
    Attack(
        "dead-gpu", "one of eight GPUs does not answer when the agent starts for the first time",
        "7 ok; 7 GPUs, 100.0 % of the time observed", "rows of 8 GPUs from the start, one of them unavailable", on_agents.dead_gpu,
    ),
    Attack(
        "same-name", "two hosts with one name publish into one lake",
        "both publish, doubled rows, nobody warns", "no row doubled, and a warning", on_agents.same_name,
    ),
    Attack(
        "planted-links", "links to root's files in somebody else's folder, which root gives as the spool",
        "followed: a file of root's overwritten", "none is followed", on_agents.planted_links,
    ),
    Attack(
        "throttle-ids", "drivers that number the counters of throttled time differently",
        "ids 269-271 whatever the driver: null or wrong", "what each driver counts, else null", on_agents.throttle_ids,
    ),
    Attack(
        "dying-worker", "the NVML worker is killed 15 times",
        "rows in 24 of 93 ticks; missed_intervals stays 0", "measured in 9 of 10 ticks, the others counted", on_agents.dying_worker,
    ),
    Attack(
        "rates-beside-gpm", "no sample ring, and GPM that covers 100 % of the time",
        "rates polled every second: worker 8.9 against 4.3 ms", "no more driver calls a tick than with the ring",
        on_agents.rates_beside_gpm,
    ),
    Attack(
        "mixed-sources", "GPM and a sample ring that see work differently",
        "mean above gpu_util_max_pct in 33 of 112 rows; zero_ratio 1.0 beside 1 %", "the values of a row agree", on_agents.mixed_sources,
    ),
    Attack(
        "idle-connections", "eight connections to /metrics that say nothing",
        "19 of 19 scrapes fail", "all are answered, in 1 s", on_agents.idle_connections,
    ),
)  # fmt: skip
