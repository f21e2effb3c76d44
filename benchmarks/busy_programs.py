"""Programs that keep a GPU busy, each labelled as work or as none, with the curves of its readings on several cards.

Labels follow the plain words of the question, "does the GPU do any work for anybody?", and were written without a look
at a rule. The watts of the H200 are measured (docs/measured-on-hardware.md): 80 free, 126 with a context, 198 with one
block that spins, 434 with copies, 659 with matrix products. The watts of other cards follow published idle and limit
powers. All other levels are typical of published profiles, and every program draws its own around them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.recordings import A100, H100, Card

GIB = 2**30
CARDS: dict[str, tuple[Card, float, bool]] = {
    "H200": (Card("NVIDIA H200", 141 * GIB, 700, 80, 126, 1980, gpm=True, mig=True), 198, True),
    "H100": (H100, 160, True),
    "A100": (A100, 106, True),
    "L4": (Card("NVIDIA L4", 24 * GIB, 72, 13, 30, 2040), 35, True),
    "T4": (Card("Tesla T4", 16 * GIB, 70, 10, 27, 1590), 32, True),
    "RTX": (Card("NVIDIA GeForce RTX 4090", 24 * GIB, 450, 18, 52, 2520), 78, False),
}
"""The card, its power in watts while one kernel spins, and whether DCGM profiles it."""


class Level(NamedTuple):
    """Readings while a program is at one thing."""

    util: float = 0
    sm: float = 0
    tensor: float = 0
    dram: float = 0
    power: float = 0
    """Share of the way from the power with a context to the power limit."""
    spin: float = 0
    """Multiple of what a spinning kernel adds to the power with a context."""
    pcie: float = 0
    """MB/s that the GPU receives; `nvlink`, `disk` (read), `saved` and `net` are in MB/s too."""
    nvlink: float = 0
    cpu: float = 0
    """CPU of the process in percent of one core."""
    fp64: float = 0
    disk: float = 0
    saved: float = 0
    net: float = 0
    clock: float = 1
    encoder: float = 0
    works: bool = True
    context: bool = True
    process: bool = True


LEVELS = {
    "free": Level(context=False, process=False, works=False),
    "pause": Level(cpu=1, works=False),
    "train": Level(97, 82, 38, 42, 0.86, pcie=600, nvlink=60_000, cpu=105, disk=150),
    "step": Level(92, 70, 30, 35, 0.7, pcie=300, nvlink=20_000, cpu=105),
    "copy": Level(98.6, 98.4, 0, 88, 0.537, cpu=100),
    "decode": Level(98, 74, 4, 61, 0.52, pcie=4, cpu=100),
    "eager": Level(68, 27, 1.4, 20, 0.2, pcie=3, cpu=100),
    "fp64 dense": Level(99, 95, 0, 24, 0.78, cpu=100, fp64=68),
    "fp64 sparse": Level(97, 86, 0, 77, 0.6, pcie=8, cpu=100, fp64=8),
    "fp64 slow": Level(100, 99, 0, 3, 0.2, cpu=100, fp64=97),
    "tiny": Level(58, 2.2, 0, 0.4, 0.06, pcie=3, cpu=100),
    "graphed": Level(97, 5, 0.1, 0.7, 0.11, pcie=2, cpu=100),
    "actor": Level(14, 3, 0.2, 0.6, 0.03, pcie=40, cpu=1600),
    "forward": Level(93, 68, 22, 34, 0.58, pcie=300, cpu=110),
    "load": Level(cpu=700, disk=900),
    "compile": Level(cpu=900),
    "tune": Level(32, 22, 8, 12, 0.2, cpu=115),
    "serve": Level(45, 30, 9, 25, 0.3, pcie=8, cpu=60),
    "request": Level(90, 55, 9, 48, 0.4, pcie=5, cpu=60),
    "poll": Level(100, 100, 2, 4, 0.27, pcie=20, cpu=190),
    "capped": Level(99, 88, 24, 34, 0.33, pcie=300, nvlink=25_000, cpu=105, clock=0.55),
    "hot": Level(100, 94, 5, 7, 0.09, pcie=60, nvlink=6_000, cpu=105, clock=0.2),
    "send": Level(100, 13, 0, 1.8, 0.01, 1, pcie=1150, cpu=100, net=1150),
    "slow": Level(100, 52, 9, 15, 0.4, pcie=200, nvlink=9_000, cpu=105, net=20),
    "bubble": Level(100, 44, 15, 20, 0.44, pcie=200, nvlink=7_000, cpu=100),
    "offload": Level(96, 7, 1, 6, 0.12, pcie=21_000, cpu=100),
    "hash": Level(100, 99, 0, 0.6, 0.72, cpu=20),
    "dynamics": Level(84, 32, 0, 6, 0.3, pcie=30, cpu=100),
    "graph": Level(95, 38, 0, 26, 0.28, pcie=5, cpu=100),
    "lookup": Level(74, 12, 1, 18, 0.17, pcie=6_000, cpu=600, disk=400),
    "encode": Level(9, 4, 0, 5, 0.1, pcie=60, cpu=80, encoder=75),
    "stream": Level(100, 12, 0, 4, 0.13, pcie=2_400, cpu=200, net=2_400),
    "score": Level(100, 58, 9, 28, 0.38, pcie=700, cpu=240, disk=140),
    "wait": Level(100, 14, 0, 0.2, 0, 1, cpu=100),  # in a step, of less than a minute
    "save": Level(100, 13, 0, 0.3, 0, 1, pcie=60, cpu=100, saved=1_600),
    # and from here on: no work
    "spin": Level(100, 14, 0, 0.1, 0, 1, cpu=100, works=False),
    "spin blocked": Level(100, 18, 0, 0.1, 0, 1.2, cpu=1, works=False),
    "spin 60 %": Level(60, 8, 0, 0.1, 0, 0.3, cpu=70, works=False),
    "one block": Level(98, 1.5, 0, 0, 0, 1, cpu=100, works=False),
    "whole grid": Level(100, 100, 0, 0.1, 0, 2.6, cpu=100, works=False),
    "orphan": Level(100, 1.5, 0, 0, 0, 1, process=False, works=False),
    "blip": Level(100, 88, 24, 22, 0.6, cpu=100, works=False),
    "small blip": Level(8, 5, 0, 1, 0.02, cpu=12, works=False),
    "stuck": Level(100, context=False, process=False, works=False),
}
Parts = tuple[tuple[str, float, float], ...]
"""What a program does in turn: a level, and the least and the most seconds at it."""


@dataclass(frozen=True)
class Program:
    """A program on the GPUs of one job, and why its time is work or is not.

    `stall` begins at the lake's onset and lasts `stalled_h`; the GPU does no work in it. `culprit` is the level of the
    one GPU that the others wait for. A program without `stall` works for `hours`. `judged` is False where the plain
    words allow both answers.
    """

    name: str
    why: str
    cards: str
    parts: Parts = ()
    gpus: int = 1
    hosts: int = 1
    hours: float = 10
    kind: str = ""
    stall: Parts = ()
    stalled_h: float = 6
    culprit: str = ""
    resumes: bool = False
    memory: float = 0.5
    """Share of the card's memory; GiB where it is above 1."""
    command: str = "python"
    users: int = 1
    mig: bool = False
    judged: bool = True


ANY, BIG, NO_FP64 = "H200 H100 A100 L4 T4 RTX", "H200 H100 A100", "L4 T4 RTX"
TRAIN: Parts = (("train", 900, 2400), ("save", 40, 120))
WORK = (
    Program("training", "trains, and saves now and then", BIG, TRAIN, gpus=8, hours=6, memory=0.8),
    Program("training that saves often", "a sixth of the time goes into checkpoints",
            BIG, (("train", 500, 700), ("save", 90, 150)), gpus=4, hours=6),
    Program("decoding, batch 1", "reads all weights for each token",
            "H200 H100 A100 L4 RTX", (("decode", 40, 400), ("pause", 1, 8)), memory=0.8),
    Program("decoding, eager", "launches small kernels from Python for each token",
            ANY, (("eager", 20, 200), ("pause", 1, 15))),
    Program("FP64, dense", "solves dense systems; no tensor core",
            BIG, (("fp64 dense", 200, 900), ("load", 5, 30)), command="hpl"),
    Program("FP64, sparse", "conjugate gradients, bound by memory",
            BIG, (("fp64 sparse", 300, 3000), ("pause", 2, 10)), command="solver"),
    Program("FP64 on few units", "a solver on a card made for FP32: low power, full units",
            NO_FP64, (("fp64 slow", 300, 3000),), command="solver", memory=0.2),
    Program("tiny model", "trains 10,000 parameters; the launch of kernels limits it",
            ANY, (("tiny", 300, 3000),), memory=1.4),
    Program("tiny model in CUDA graphs", "the same without pauses between its kernels",
            ANY, (("graphed", 300, 3000),), memory=1.4),
    Program("RL actors", "environments on the CPU take most of the time",
            ANY, (("actor", 60, 600), ("step", 2, 6)), memory=2.5),
    Program("evaluation", "loads a data set, then runs a model over it",
            ANY, (("load", 20, 90), ("forward", 40, 200)), hours=8),
    Program("loader at 5 % duty", "one step each twenty seconds; the CPU decodes images",
            ANY, (("step", 1, 1), ("load", 15, 23))),
    Program("loader in long turns", "reads for minutes, computes for half a minute",
            ANY, (("load", 60, 150), ("step", 20, 40))),
    Program("compilation", "compiles for minutes and runs a kernel now and then",
            ANY, (("compile", 60, 280), ("tune", 1, 6)), memory=2),
    Program("autotuning", "times thousands of kernels, as max-autotune does",
            ANY, (("tune", 20, 90), ("compile", 10, 60)), hours=6),
    Program("server with a warm-up loop", "a loaded server; a probe asks each half minute",
            ANY, (("request", 1, 1), ("pause", 28, 30)), memory=0.9, command="vllm"),
    Program("server with slow probes", "a loaded server; a probe asks each five minutes",
            ANY, (("request", 1, 3), ("pause", 280, 310)), memory=0.9, command="vllm"),
    Program("server with few requests", "answers people",
            ANY, (("request", 2, 15), ("pause", 5, 120)), memory=0.85, command="vllm"),
    Program("server with a persistent kernel", "one kernel polls for requests and answers them at low load",
            BIG, (("poll", 600, 900),), memory=0.7, command="tritonserver"),
    Program("power cap", "trains under a low power limit", BIG, (("capped", 900, 2400),), gpus=2),
    Program("heat", "trains while the hardware slows down the clock to a fifth", ANY, (("hot", 600, 2400),)),
    Program("accumulation over a slow network", "computes, then sends gradients for a minute",
            BIG, (("step", 15, 25), ("send", 40, 70)), gpus=2, hosts=2),
    Program("parameters over Ethernet", "sends nine tenths of the time",
            "A100 L4 T4", (("step", 2, 4), ("send", 18, 30)), gpus=2, hosts=2),
    Program("slow phases of a large job", "a slow file system or network halves the pace for minutes",
            BIG, (("train", 600, 1800), ("slow", 300, 1500)), gpus=8, hours=5),
    Program("pipeline with bubbles", "ranks wait for each other for half of each step",
            BIG, (("bubble", 600, 1800), ("save", 20, 60)), gpus=4, hours=6),
    Program("uneven ranks", "waits for a second or two in each step",
            BIG, (("step", 3, 5), ("wait", 1, 2)), gpus=4, hours=6),
    Program("weights in host memory", "reads the weights over PCIe for each token",
            ANY, (("offload", 60, 600), ("pause", 2, 20))),
    Program("hashing", "integers only: full SMs, no memory traffic",
            "RTX T4 L4", (("hash", 900, 3600),), memory=1.2, command="hashcat"),
    Program("small dynamics", "molecular dynamics of few atoms",
            ANY, (("dynamics", 600, 3600),), memory=1.5, command="gmx"),
    Program("graph search", "irregular reads, no tensor core",
            ANY, (("graph", 100, 900), ("load", 10, 60)), command="bfs"),
    Program("recommender", "embeddings are in host memory", BIG, (("lookup", 300, 1800),), memory=0.9),
    Program("video encoding", "the encoder works, hardly any kernel does",
            NO_FP64, (("encode", 300, 3000), ("pause", 5, 60)), memory=1.3, command="ffmpeg"),
    Program("signal processing", "a kernel waits for packets that come all the time",
            ANY, (("stream", 900, 3600),), memory=1.1, command="holoscan"),
    Program("scoring every four minutes", "a small model scores what a queue has: short, regular, small, and work",
            ANY, (("score", 2, 5), ("pause", 232, 240)), memory=1.6),
    Program("notebook", "a person tries things",
            ANY, (("forward", 5, 60), ("pause", 60, 900)), memory=0.3, command="ipykernel"),
    Program("restarts and graph capture", "loads, captures graphs, works, fails",
            BIG, (("load", 60, 120), ("tune", 40, 80), ("decode", 600, 1200))),
    Program("copies", "moves data within the card's memory, as a database does",
            ANY, (("copy", 300, 3000), ("load", 5, 30)), command="sirius"),
    Program("shared GPU", "two users at once, each with little to do",
            ANY, (("serve", 30, 300), ("tiny", 30, 300)), users=2),
    Program("MIG instances", "small servers on parts of one card",
            "H100", (("serve", 60, 600), ("pause", 5, 60)), gpus=3, mig=True, memory=0.2, command="tritonserver"),
    Program("rank 0 evaluates", "others spin for ten minutes of each hour, for a result",
            BIG, (("train", 2700, 3200), ("wait", 560, 640)), gpus=4, hours=5, judged=False),
    Program("start that waits for a download", "all ranks spin for twelve minutes, then train",
            BIG, (("wait", 700, 740), ("train", 5000, 6000)), gpus=4, hours=4, judged=False),
)  # fmt: skip
SPIN: Parts = (("spin", 900, 900),)
NONE = (
    Program("hung job", "one rank is stuck on the CPU, the collective waits",
            BIG, TRAIN, 8, kind="hung", stall=SPIN, culprit="pause", memory=0.8),
    Program("hung job on two hosts", "the same over sixteen GPUs",
            "H200 H100", TRAIN, 16, 2, kind="hung", stall=(("spin blocked", 900, 900),), stalled_h=3, culprit="pause",
            memory=0.8),
    Program("hung job, small cards", "the same without a tensor counter",
            "L4 T4 RTX", (("step", 600, 1200), ("save", 20, 40)), 4, kind="hung", stall=SPIN, culprit="pause"),
    Program("hung job, a rank has ended", "a process was killed, the others wait",
            BIG, TRAIN, 4, kind="hung", stall=SPIN, culprit="free"),
    Program("hung job, every rank spins", "a link failed in the middle of a collective",
            BIG, TRAIN, 8, kind="hung", stall=(("spin blocked", 900, 900),), stalled_h=4, culprit="one block"),
    Program("hung job at 60 %", "kernels poll and time out, again and again",
            "L4 RTX A100", (("step", 600, 1200),), 4, kind="hung", stall=(("spin 60 %", 900, 900),)),
    Program("hang of 20 minutes", "a switch restarts, and the job goes on",
            BIG, TRAIN, 8, kind="hung", stall=SPIN, stalled_h=1 / 3, resumes=True),
    Program("hang of 33 minutes", "as in the recorded run of 512 GPUs",
            BIG, TRAIN, 4, kind="hung", stall=(("spin blocked", 900, 900),), stalled_h=0.55, resumes=True),
    Program("hung server of four GPUs", "tensor parallel, one worker was killed",
            BIG, (("decode", 60, 400), ("pause", 2, 20)), 4, kind="hung", stall=SPIN, culprit="free", command="vllm",
            memory=0.9),
    Program("hang after little work", "a tiny model before it, so power hardly falls",
            ANY, (("tiny", 600, 900),), 2, kind="hung", stall=SPIN, memory=1.4),
    Program("endless kernel", "one thread waits for a flag that is never set",
            ANY, (("forward", 300, 900),), kind="hung", stall=(("one block", 900, 900),)),
    Program("deadlocked grid", "every SM waits at a barrier of the grid",
            ANY, (("step", 300, 900),), kind="hung", stall=(("whole grid", 900, 900),)),
    Program("orphaned kernel", "the process is gone, its kernel is not",
            BIG, TRAIN, kind="orphan", stall=(("orphan", 900, 900),), memory=1.5),
    Program("orphaned kernel, small card", "the same",
            NO_FP64, (("step", 600, 900),), kind="orphan", stall=(("orphan", 900, 900),), memory=1.2),
    Program("keep-alive, 4 minutes", "a script that defeats idle checks",
            ANY, kind="keep", stall=(("blip", 3, 3), ("pause", 237, 237)), memory=1.2, command="keep-gpu"),
    Program("keep-alive, renamed", "the same under another name, with a jitter",
            ANY, kind="keep", stall=(("blip", 2, 4), ("pause", 200, 280)), memory=1.2),
    Program("keep-alive, 1 minute", "the same, more often",
            ANY, kind="keep", stall=(("blip", 1, 1), ("pause", 59, 59)), memory=1.6),
    Program("keep-alive, 10 minutes", "the same, less often",
            ANY, kind="keep", stall=(("blip", 6, 6), ("pause", 594, 594)), memory=1.2),
    Program("keep-alive, always 8 %", "sleeps between small products",
            ANY, kind="keep", stall=(("small blip", 900, 900),), memory=1.1),
    Program("keep-alive with much memory", "also holds memory",
            ANY, kind="keep", stall=(("blip", 3, 3), ("pause", 117, 117)), memory=0.6, command="gpu-keepalive"),
    Program("busy without a context", "a counter at 100 beside 4 MiB and the power of a free card",
            ANY, kind="context", stall=(("stuck", 900, 900),), memory=0.0001),
    Program("straggler of eight", "one rank needs eight minutes for what takes fifteen seconds",
            BIG, TRAIN, 8, kind="straggler", stall=(("spin", 460, 480), ("step", 10, 15)), culprit="step", stalled_h=4),
    Program("straggler of four", "the same in turns of two minutes",
            "A100 L4 RTX", (("step", 600, 900),), 4, kind="straggler", stall=(("spin", 110, 120), ("step", 4, 6)),
            culprit="step", stalled_h=4),
)  # fmt: skip
PROGRAMS = WORK + NONE
