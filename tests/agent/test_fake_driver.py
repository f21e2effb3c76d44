"""The fake driver answers as NVIDIA's does, where no test of the agent over it would notice another answer."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.player import NOW_MS, OTHER_UUID, START, UUID, Player, failing, ms_ago, one
from tests.fakes.nvml import (
    GIB,
    RING_SIZE,
    Fault,
    Gpu,
    MigInstance,
    NoCompilerError,
    Process,
    Scenario,
    Steps,
    Xid,
    constant,
    library_folder,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_no_compiler_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(NoCompilerError, match="ziglang"):
        library_folder(tmp_path)


def test_without_a_scenario_the_driver_is_not_loaded(library: Path) -> None:
    program = "import pynvml\ntry: pynvml.nvmlInit()\nexcept pynvml.NVMLError_DriverNotLoaded: print('not loaded')"
    environment = {name: value for name, value in os.environ.items() if name != "FALLOW_FAKE_NVML"}
    environment["LD_LIBRARY_PATH"] = str(library)
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "not loaded\n"


def test_a_malformed_scenario_aborts(player: Player, tmp_path: Path) -> None:
    process = player.start(one(Gpu(UUID, model="two\nlines")), "nv.nvmlInit(); out = 0")
    errors = process.communicate()[1]
    assert process.returncode < 0
    assert f"{tmp_path / 'scenario'}:8: unknown key" in errors


PLAIN = Gpu(
    UUID, model="NVIDIA A100-SXM4-40GB", minor=7, pci_bus_id="0001:c3:00", serial="42", architecture=7,
    power_w=Steps(((0, 100), (10, 350.125))), sm_clock=constant(1200), throttle=constant(0x24), power_limit_w=400,
    mem_reserved_bytes=GIB, mem_used=Steps(((0, 0), (5, 3 * GIB + 1))),
)  # fmt: skip
SPLIT = Gpu(
    UUID,
    util=constant(35),
    gpm={2: constant(70)},
    mig=(
        MigInstance("MIG-a", 1, slot=0, mem_used=constant(2 * GIB), processes=(Process(201),), gpm={2: constant(40)}),
        MigInstance("MIG-b", 2, slot=2, util=constant(12.5), gpm_nan=(2,), end_s=30),
        MigInstance("MIG-c", 5, slot=2, profile="2g.20gb", gpu_slices=2, start_s=40),
    ),
)
LISTED = Gpu(
    UUID,
    processes=(
        *(Process(101, mem_bytes=5 * GIB), Process(102, mem_bytes=None), Process(103, kind="graphics")),
        *(Process(104, kind="mps"), Process(105, end_s=30), Process(106, start_s=1000)),
    ),
)
GPM = """
def between(take, ids, wait_s=0.0):
    first, second = nv.nvmlGpmSampleAlloc(), nv.nvmlGpmSampleAlloc()
    moments = [time.time()]; take(first); moments.append(time.time())
    time.sleep(wait_s)
    moments.append(time.time()); take(second); moments.append(time.time())
    get = nv.c_nvmlGpmMetricsGet_t(version=nv.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(ids),
    sample1=first, sample2=second)
    for place, metric in enumerate(ids):
        get.metrics[place].metricId = metric
    nv.nvmlGpmMetricsGet(get)
    return moments, [(m.nvmlReturn, repr(m.value)) for m in get.metrics[:len(ids)]]
"""
REFUSED = "NVMLError_InvalidArgument"
ASKED: dict[str, tuple[Scenario, str, Any]] = {
    "the system, before and after it is initialised": (
        one(),
        """
        out = [nv.nvmlSystemGetDriverVersion(), nv.nvmlSystemGetNVMLVersion(), nv.nvmlSystemGetCudaDriverVersion_v2(),
               nv.nvmlDeviceGetCount(), nv.nvmlErrorString(15), attempt(nv.nvmlDeviceGetFanSpeed, None)]
        nv.nvmlShutdown()
        out += [attempt(nv.nvmlDeviceGetCount)]
        """,
        ["580.65.06", "13.580.65.06", 13000, 1, "GPU is lost", "NVMLError_FunctionNotFound", "NVMLError_Uninitialized"],
    ),
    "who a card is": (
        Scenario(gpus=(Gpu(OTHER_UUID), PLAIN), start_ms=ms_ago(1)),
        f"""
        gpu = nv.nvmlDeviceGetHandleByUUID("{UUID}")
        pci = nv.nvmlDeviceGetPciInfo_v3(gpu)
        out = (nv.nvmlDeviceGetIndex(gpu), nv.nvmlDeviceGetMinorNumber(gpu), nv.nvmlDeviceGetName(gpu),
               nv.nvmlDeviceGetSerial(gpu), pci.busId, pci.bus, nv.nvmlDeviceGetArchitecture(gpu),
               nv.nvmlDeviceGetCudaComputeCapability(gpu), nv.nvmlDeviceGetEccMode(gpu),
               attempt(nv.nvmlDeviceGetHandleByIndex, 2), attempt(nv.nvmlDeviceGetHandleByUUID, "GPU-none"),
               attempt(nv.nvmlDeviceGetName, nv.c_nvmlDevice_t()))
        """,
        (1, 7, PLAIN.model, "42", "00000001:C3:00.0", 0xC3, 7, (9, 0), [1, 1], REFUSED, "NVMLError_NotFound", REFUSED),
    ),
    "readings in each of their forms": (
        one(PLAIN),
        """
        fields = nv.nvmlDeviceGetFieldValues(gpu, [82, 83, 999])
        old, new = nv.nvmlDeviceGetMemoryInfo(gpu), nv.nvmlDeviceGetMemoryInfo(gpu, nv.nvmlMemory_v2)
        out = (nv.nvmlDeviceGetPowerUsage(gpu), nv.nvmlDeviceGetTemperature(gpu, 0),
        nv.nvmlDeviceGetTemperatureV(gpu, 0),
               nv.nvmlDeviceGetClockInfo(gpu, nv.NVML_CLOCK_SM), nv.nvmlDeviceGetMaxClockInfo(gpu, nv.NVML_CLOCK_SM),
               nv.nvmlDeviceGetCurrentClocksEventReasons(gpu), nv.nvmlDeviceGetEnforcedPowerLimit(gpu),
               [field.nvmlReturn for field in fields], fields[0].value.uiVal, old.used, new.reserved, new.used,
               new.free,
               attempt(nv.nvmlDeviceGetMemoryInfo, gpu, 1))
        """,
        (350_125, 35, 35, 1200, 1980, 0x24, 400_000, [0, 0, 3], 40, 4 * GIB + 1, GIB, 3 * GIB + 1, 76 * GIB - 1,
         "NVMLError_ArgumentVersionMismatch"),
    ),
    "a part without memory of its own": (
        one(Gpu(UUID, mem_total_bytes=0, mem_used=constant(GIB))),
        "new = nv.nvmlDeviceGetMemoryInfo(gpu, nv.nvmlMemory_v2); out = (new.total, new.reserved, new.used, new.free)",
        (0, 0, 0, 0),
    ),
    "lists of processes, and one that has no room": (
        one(LISTED),
        """
        from ctypes import byref, c_uint
        lists = (nv.nvmlDeviceGetComputeRunningProcesses_v3, nv.nvmlDeviceGetGraphicsRunningProcesses_v3,
                 nv.nvmlDeviceGetMPSComputeRunningProcesses_v3)
        out = [[(p.pid, p.usedGpuMemory) for p in each(gpu)] for each in lists]
        count, room = c_uint(1), (nv.c_nvmlProcessInfo_v3_t * 1)()
        out.append((nv.nvmlLib.nvmlDeviceGetComputeRunningProcesses_v3(gpu, byref(count), room), count.value))
        """,
        [[(101, 5 * GIB), (102, None)], [(103, GIB)], [(104, GIB)], (7, 2)],
    ),
    "the size of the ring, asked with a null pointer": (
        one(),
        """
        from ctypes import byref, c_uint, c_ulonglong
        kind, count = c_uint(), c_uint()
        out = (nv.nvmlLib.nvmlDeviceGetSamples(gpu, 1, c_ulonglong(0), byref(kind), byref(count), None), count.value)
        """,
        (0, RING_SIZE),
    ),
    "impossible entries of a ring": (
        one(Gpu(UUID, util=constant(60), ring_garbage=True), ago_s=3),
        "found = samples(gpu); out = [v for s, v in found if s == 0], {v for s, v in found if s}",
        ([55], {60, 4_000_000_000}),
    ),
    "MIG instances in their slots": (
        one(SPLIT),
        """
        out = [nv.nvmlDeviceGetMaxMigDeviceCount(gpu), attempt(nv.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 1)]
        for slot in (0, 2):
            mig = nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu, slot)
            parent = nv.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
            out.append((nv.nvmlDeviceGetUUID(mig), nv.nvmlDeviceGetName(mig), nv.nvmlDeviceGetGpuInstanceId(mig),
                        nv.nvmlDeviceIsMigDeviceHandle(mig).value, nv.nvmlDeviceGetUUID(parent),
                        nv.nvmlDeviceGetAttributes_v2(mig).gpuInstanceSliceCount))
        """,
        [7, "NVMLError_NotFound", ("MIG-a", f"{SPLIT.model} MIG 1g.10gb", 1, 1, UUID, 1),
         ("MIG-c", f"{SPLIT.model} MIG 2g.20gb", 5, 1, UUID, 2)],
    ),
    "what an instance and its parent refuse": (
        one(SPLIT),
        """
        mig = nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
        out = [nv.nvmlDeviceGetMemoryInfo(mig, nv.nvmlMemory_v2).used, attempt(nv.nvmlDeviceGetPowerUsage, mig)]
        for handle in (mig, gpu):
            out.append([(p.pid, p.gpuInstanceId) for p in nv.nvmlDeviceGetComputeRunningProcesses_v3(handle)])
            out.append({attempt(nv.nvmlDeviceGetUtilizationRates, handle), attempt(samples, handle)})
        """,
        [2 * GIB, REFUSED, *([(201, 1)], {"NVMLError_NotSupported"}) * 2],
    ),
    "cards without MIG": (
        Scenario((Gpu(UUID, mig_capable=False), Gpu(OTHER_UUID)), ms_ago(60)),
        "out = [attempt(nv.nvmlDeviceGetMigMode, nv.nvmlDeviceGetHandleByIndex(index)) for index in (0, 1)]",
        ["NVMLError_NotSupported", [0, 0]],
    ),
    "GPM of the whole, of instances and of nothing": (
        one(SPLIT, ago_s=20),
        GPM
        + """
out = [between(lambda s: nv.nvmlGpmMigSampleGet(gpu, 1, s), [1, 2], 0.01)[1],
       between(lambda s: nv.nvmlGpmMigSampleGet(gpu, 2, s), [1, 2, 3], 0.01)[1],
       between(lambda s: nv.nvmlGpmSampleGet(gpu, s), [1, 2], 0.01)[1],
       attempt(nv.nvmlGpmMigSampleGet, gpu, 9, nv.nvmlGpmSampleAlloc())]
first, second = nv.nvmlGpmSampleAlloc(), nv.nvmlGpmSampleAlloc()
nv.nvmlGpmSampleGet(gpu, first); nv.nvmlGpmMigSampleGet(gpu, 1, second)
get = nv.c_nvmlGpmMetricsGet_t(version=nv.NVML_GPM_METRICS_GET_VERSION, numMetrics=1, sample1=first, sample2=second)
out.append(attempt(nv.nvmlGpmMetricsGet, get))
""",
        [[(3, "nan"), (0, "40.0")], [(0, "12.5"), (0, "nan"), (3, "nan")], [(0, "35.0"), (0, "70.0")],
         "NVMLError_NotFound", REFUSED],
    ),
    "a card without GPM": (
        one(),
        """
        out = (nv.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice,
               attempt(nv.nvmlGpmSampleGet, gpu, nv.nvmlGpmSampleAlloc()))
        """,
        (0, "NVMLError_NotSupported"),
    ),
    "a GPU that is out is not listed, and the next one moves up": (
        failing(Fault("unplug", gpu=0)),
        f"""
        out = (nv.nvmlDeviceGetCount(), nv.nvmlDeviceGetUUID(gpu), nv.nvmlDeviceGetIndex(gpu),
               nv.nvmlDeviceGetMinorNumber(gpu), attempt(nv.nvmlDeviceGetHandleByUUID, "{UUID}"))
        """,
        (1, OTHER_UUID, 0, 1, "NVMLError_NotFound"),
    ),
    "a critical error reaches who waits for it, and nothing else does": (
        Scenario((Gpu(UUID), Gpu(OTHER_UUID)), ms_ago(60), xids=(Xid(0, 1, 13), Xid(0, 62, 79), Xid(1, 61, 31))),
        """
        events = nv.nvmlEventSetCreate()
        nv.nvmlDeviceRegisterEvents(gpu, nv.nvmlEventTypeXidCriticalError, events)
        out = [attempt(nv.nvmlEventSetWait_v2, events, 10), bool(nv.nvmlDeviceGetSupportedEventTypes(gpu) & 8)]
        data = nv.nvmlEventSetWait_v2(events, 5000)
        out += [data.eventType, data.eventData, nv.nvmlDeviceGetUUID(data.device)]
        """,
        ["NVMLError_Timeout", True, 8, 79, UUID],
    ),
}  # fmt: skip


@pytest.mark.parametrize("subject", ASKED)
def test_the_answer_is_the_drivers(player: Player, subject: str) -> None:
    scenario, program, answer = ASKED[subject]
    assert player.ask(scenario, program) == answer


@pytest.mark.parametrize("offset_us", [0, -1_000_000_000_000], ids=["the wall clock", "another clock"])
def test_the_ring_holds_the_last_ten_seconds_and_gives_what_is_newer(player: Player, offset_us: int) -> None:
    gpu = Gpu(UUID, util=Steps(((0, 80.0), (53.217, 33.4), (56.7, 100))), mem_util=constant(12.5))
    scenario = one(gpu, sample_clock_offset_us=offset_us)
    util, newer, mem_util = player.ask(
        scenario,
        "util = samples(gpu)\nout = util, samples(gpu, 1, util[-9][0]), samples(gpu,"
        " nv.NVML_MEMORY_UTILIZATION_SAMPLES)",
    )
    stamps = [stamp for stamp, _ in util]
    assert len(util) == RING_SIZE == 72
    assert {later - earlier for earlier, later in pairwise(stamps)} == {138_888, 138_889}
    assert abs(NOW_MS * 1e3 + offset_us - stamps[-1]) < 1e6
    expected = scenario.ring(0, stamps[0] - 1, stamps[-1])
    assert util == [(entry.timestamp_us, entry.util_pct) for entry in expected]
    assert newer[:8] == util[-8:]
    assert {value for _, value in mem_util} == {13}
    assert len({value for _, value in util}) > 3, "entries astride a step are means"


def test_an_idle_gpu_gives_no_samples_unless_it_is_told_to(player: Player) -> None:
    gpus = (Gpu(UUID, util=Steps(((0, 90), (40, 0)))), Gpu(OTHER_UUID, samples_while_idle=True))
    out = player.ask(
        Scenario(gpus, ms_ago(60)),
        """
        zeros = samples(nv.nvmlDeviceGetHandleByIndex(1))
        out = (attempt(samples, gpu), nv.nvmlDeviceGetUtilizationRates(gpu).gpu, len(zeros), {v for _, v in zeros})
        """,
    )
    assert out == ("NVMLError_NotFound", 0, RING_SIZE, {0})


def test_gpm_values_are_exact_between_two_samples(player: Player) -> None:
    """All the work lies between the samples: the mean tells the time between them, to the microsecond."""
    gpm = {2: Steps(((0, 0), (2.1, 100), (2.15, 0))), 3: Steps(((0, 0), (2.0, 40), (2.125, 0)))}
    scenario = Scenario(gpus=(Gpu(UUID, gpm=gpm),), start_ms=ms_ago(0))
    moments, ((_, short), (_, long)) = player.ask(
        scenario,
        GPM + f"time.sleep(max(0.0, {scenario.start_ms / 1000 + 1.9} - time.time()))\n"
        "out = between(lambda s: nv.nvmlGpmSampleGet(gpu, s), [2, 3], 0.4)",
    )
    span_s = 100 * 0.05 / float(short)
    assert moments[2] - moments[1] - 2e-6 <= span_s <= moments[3] - moments[0] + 2e-6
    assert float(long) == pytest.approx(float(short), rel=1e-12)


ERRORS: dict[Any, tuple[str, str]] = {
    "not_supported": ("nvmlDeviceGetPowerUsage", "NotSupported"),
    "no_permission": ("nvmlDeviceGetName", "NoPermission"),
    "function_not_found": ("nvmlDeviceGetUUID", "FunctionNotFound"),
    "timeout": ("nvmlDeviceGetSerial", "Timeout"),
    "insufficient_power": ("nvmlDeviceGetMinorNumber", "InsufficientPower"),
    "in_use": ("nvmlDeviceGetEccMode", "InUse"),
    "not_ready": ("nvmlDeviceGetIndex", "NotReady"),
    "no_data": ("nvmlDeviceGetPersistenceMode", "NoData"),
    "gpu_not_found": ("nvmlDeviceGetTotalEnergyConsumption", "GpuNotFound"),
    "operating_system": ("nvmlDeviceGetPciInfo_v3", "OperatingSystem"),
}


def test_faults_of_one_function_leave_the_other_gpu_and_the_other_functions(player: Player) -> None:
    calls = [call for call, _ in ERRORS.values()]
    healthy, faulty, temperature = player.ask(
        failing(*(Fault(kind, gpu=1, function=call) for kind, (call, _) in ERRORS.items())),
        f"""
        handles = [nv.nvmlDeviceGetHandleByIndex(index) for index in (0, 1)]
        out = [[str(attempt(getattr(nv, call), handle)) for call in {calls}] for handle in handles]
        out.append(nv.nvmlDeviceGetTemperature(handles[1], 0))
        """,
    )
    assert faulty == [f"NVMLError_{error}" for _, error in ERRORS.values()]
    assert not [each for each in healthy if each.startswith("NVMLError")]
    assert temperature == 35


WAIT = """
def wait_until(seconds):
    time.sleep(max(0.0, {start_s} + seconds - time.time()))
"""


def test_mismatch_stays_with_a_process_from_before_the_upgrade(player: Player) -> None:
    scenario = Scenario((Gpu(UUID),), ms_ago(0), (Fault("mismatch", start_s=2.0, end_s=2.1),))
    old = player.ask(
        scenario,
        WAIT.format(start_s=scenario.start_ms / 1000)
        + "out = [nv.nvmlDeviceGetPowerUsage(gpu)]\nwait_until(2.15)\n"
        + "out += [attempt(nv.nvmlDeviceGetPowerUsage, gpu), attempt(nv.nvmlInit)]",
    )
    assert old == [70_000, *["NVMLError_LibRmVersionMismatch"] * 2]
    assert player.ask(scenario, "out = nv.nvmlDeviceGetPowerUsage(gpu)") == 70_000


def test_a_gpu_is_taken_out_and_put_back_under_a_library(player: Player) -> None:
    scenario = Scenario((Gpu(UUID), Gpu(OTHER_UUID)), ms_ago(0), (Fault("unplug", gpu=0, start_s=2.0, end_s=2.4),))
    out = player.ask(
        scenario,
        WAIT.format(start_s=scenario.start_ms / 1000)
        + """
other, out = nv.nvmlDeviceGetHandleByIndex(1), []
for moment in (2.1, 2.5):
    wait_until(moment)
    out.append((nv.nvmlDeviceGetCount(), attempt(nv.nvmlDeviceGetPowerUsage, gpu),
    attempt(nv.nvmlDeviceGetPowerUsage, other),
                attempt(nv.nvmlDeviceGetHandleByIndex, 0)))
nv.nvmlShutdown()
nv.nvmlInit()
out.append([nv.nvmlDeviceGetUUID(nv.nvmlDeviceGetHandleByIndex(index)) for index in (0, 1)])
""",
    )
    gone = (2, "NVMLError_GpuIsLost", 70_000, "NVMLError_GpuIsLost")
    assert out == [gone, gone, [UUID, OTHER_UUID]]


def test_the_handle_of_a_slot_is_taken_over_by_the_next_instance(player: Player) -> None:
    old, new = MigInstance("MIG-old", 1, end_s=2), MigInstance("MIG-new", 7, start_s=2)
    gpu = Gpu(UUID, mig=(old, new), mig_mode=Steps(((0, 1), (4, 0), (5, 1))), util=constant(50))
    scenario = Scenario((gpu,), ms_ago(0))
    out = player.ask(
        scenario,
        WAIT.format(start_s=scenario.start_ms / 1000)
        + """
handle, out = nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0), []
for moment in (1.0, 2.2, 4.2, 5.2):
    wait_until(moment)
    out.append((attempt(nv.nvmlDeviceGetUUID, handle), isinstance(attempt(nv.nvmlDeviceGetUtilizationRates, gpu), str)))
""",
    )
    assert out == [("MIG-old", True), ("MIG-new", True), (REFUSED, False), ("MIG-new", True)]


def test_a_fault_ends_the_wait_for_events(player: Player) -> None:
    faults = (Fault("lost", gpu=1, start_s=2.2), Fault("lost", gpu=0, start_s=2.5))
    scenario = Scenario((Gpu(UUID), Gpu(OTHER_UUID)), ms_ago(0), faults)
    error, at_s = player.play(
        scenario,
        START
        + """
events = nv.nvmlEventSetCreate()
nv.nvmlDeviceRegisterEvents(gpu, nv.nvmlEventTypeXidCriticalError, events)
out = [attempt(nv.nvmlEventSetWait_v2, events, 4000), time.time()]
""",
    )
    assert (error, scenario.seconds(at_s)) == ("NVMLError_GpuIsLost", pytest.approx(2.5))
