"""The fake NVIDIA driver, through the real pynvml in processes of their own: it is the ground truth of the agent's tests."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

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
    ms_ago,
    standard_fleet,
)

if TYPE_CHECKING:
    from pathlib import Path

UUID = "GPU-11111111-2222-3333-4444-555555555555"
OTHER_UUID = "GPU-99999999-2222-3333-4444-555555555555"

# What every program below may use; each leaves its answer in `out`.
PRELUDE = """
import time
import pynvml as nv
def attempt(call, *args):
    try:
        return call(*args)
    except nv.NVMLError as error:
        return type(error).__name__
def samples(handle, kind=nv.NVML_GPU_UTILIZATION_SAMPLES, last_seen=0):
    return [(s.timeStamp, s.sampleValue.uiVal) for s in nv.nvmlDeviceGetSamples(handle, kind, last_seen)[1]]
"""
START = "nv.nvmlInit(); gpu = nv.nvmlDeviceGetHandleByIndex(0)\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library_folder(tmp_path_factory.mktemp("library"))


class Player:
    """Runs a program against a scenario and gives back what it left in `out`."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._folder = folder
        self._scratch = scratch

    def start(self, scenario: Scenario, program: str) -> subprocess.Popen[str]:
        path = scenario.write(self._scratch / "scenario")
        code = PRELUDE + textwrap.dedent(program) + "\nprint(repr(out))"
        environment = os.environ | scenario.environment(self._folder, path)
        return subprocess.Popen(
            [sys.executable, "-S", "-c", "import sys; sys.path[:0] = " + repr(sys.path) + "\n" + code],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def play(self, scenario: Scenario, program: str) -> Any:
        with self.start(scenario, program) as process:
            output, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors
        return ast.literal_eval(output)

    def ask(self, scenario: Scenario, program: str) -> Any:
        """As play, with `gpu` the first GPU's handle."""
        return self.play(scenario, START + textwrap.dedent(program))


@pytest.fixture
def player(folder: Path, tmp_path: Path) -> Player:
    return Player(folder, tmp_path)


def one(gpu: Gpu | None = None, *, ago_s: float = 60.0, **options: Any) -> Scenario:
    return Scenario(gpus=(gpu or Gpu(UUID),), start_ms=ms_ago(ago_s), **options)


def failing(*faults: Fault) -> Scenario:
    return Scenario(gpus=(Gpu(UUID), Gpu(OTHER_UUID)), start_ms=ms_ago(60), faults=faults)


# -- the truth itself


def test_steps_answer_for_any_stretch() -> None:
    steps = Steps(((0, 80.0), (30, 0.0), (40, 20.0)))

    assert [steps.at(t) for t in (-1, 0, 29.999, 30, 45)] == [80, 80, 80, 0, 20]
    assert steps.mean(20, 50) == (80 * 10 + 20 * 10) / 30
    assert steps.max(30, 50) == 20
    assert steps.zero_ratio(20, 40) == 0.5


def test_steps_refuse_disorder() -> None:
    with pytest.raises(ValueError, match="in order"):
        Steps(((10, 1.0), (0, 2.0)))


# -- the library


def test_two_compilations_at_once_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(library_folder, [tmp_path, tmp_path])

    assert first == second
    assert [path.name for path in first.iterdir()] == ["libnvidia-ml.so.1"]


def test_no_compiler_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    with pytest.raises(NoCompilerError, match="ziglang"):
        library_folder(tmp_path)


def test_without_a_scenario_the_driver_is_not_loaded(folder: Path) -> None:
    program = "import pynvml\ntry: pynvml.nvmlInit()\nexcept pynvml.NVMLError_DriverNotLoaded: print('not loaded')"
    environment = {name: value for name, value in os.environ.items() if name != "FALLOW_FAKE_NVML"}
    environment["LD_LIBRARY_PATH"] = str(folder)

    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )

    assert result.stdout == "not loaded\n"


def test_a_malformed_scenario_aborts(player: Player, tmp_path: Path) -> None:
    process = player.start(one(Gpu(UUID, model="two\nlines")), "nv.nvmlInit(); out = 0")
    errors = process.communicate()[1]

    assert process.returncode < 0
    assert f"{tmp_path / 'scenario'}:8: unknown key" in errors


# -- identity and plain readings


def test_system(player: Player) -> None:
    out = player.play(
        one(),
        """
        out = [attempt(nv.nvmlDeviceGetCount)]
        nv.nvmlInit()
        out += [nv.nvmlSystemGetDriverVersion(), nv.nvmlSystemGetNVMLVersion(), nv.nvmlSystemGetCudaDriverVersion_v2(),
                nv.nvmlDeviceGetCount(), nv.nvmlErrorString(15), attempt(nv.nvmlDeviceGetFanSpeed, None)]
        nv.nvmlShutdown()
        out += [attempt(nv.nvmlDeviceGetCount)]
        """,
    )

    uninitialized = "NVMLError_Uninitialized"
    missing = "NVMLError_FunctionNotFound"
    assert out == [uninitialized, "580.65.06", "13.580.65.06", 13000, 1, "GPU is lost", missing, uninitialized]


def test_identity(player: Player) -> None:
    first = Gpu(OTHER_UUID)
    second = Gpu(UUID, model="NVIDIA A100-SXM4-40GB", minor=7, pci_bus_id="0001:c3:00", serial="42", architecture=7)
    out = player.play(
        Scenario(gpus=(first, second), start_ms=ms_ago(1)),
        f"""
        nv.nvmlInit()
        gpu = nv.nvmlDeviceGetHandleByUUID("{UUID}")
        pci = nv.nvmlDeviceGetPciInfo_v3(gpu)
        out = (nv.nvmlDeviceGetIndex(gpu), nv.nvmlDeviceGetMinorNumber(gpu), nv.nvmlDeviceGetName(gpu),
               nv.nvmlDeviceGetUUID(gpu), nv.nvmlDeviceGetSerial(gpu), pci.busId, pci.bus,
               nv.nvmlDeviceGetArchitecture(gpu), nv.nvmlDeviceGetCudaComputeCapability(gpu),
               nv.nvmlDeviceGetPersistenceMode(gpu), nv.nvmlDeviceGetEccMode(gpu),
               attempt(nv.nvmlDeviceGetHandleByIndex, 2), attempt(nv.nvmlDeviceGetHandleByUUID, "GPU-none"),
               attempt(nv.nvmlDeviceGetName, nv.c_nvmlDevice_t()))
        """,
    )

    name = "NVIDIA A100-SXM4-40GB"
    errors = ("NVMLError_InvalidArgument", "NVMLError_NotFound", "NVMLError_InvalidArgument")
    assert out == (1, 7, name, UUID, "42", "00000001:C3:00.0", 0xC3, 7, (9, 0), 1, [1, 1], *errors)


def test_readings_follow_their_steps(player: Player) -> None:
    gpu = Gpu(
        UUID,
        power_w=Steps(((0, 100), (10, 350.125))),
        temperature_c=Steps(((0, 30), (10, 61))),
        sm_clock=constant(1200),
        mem_clock=constant(1593),
        throttle=constant(0x24),
        power_limit_w=400,
        mem_temperature_c=constant(77),
    )
    out = player.ask(
        one(gpu),
        """
        fields = nv.nvmlDeviceGetFieldValues(gpu, [82, 83, 185, 186, 999])
        out = (nv.nvmlDeviceGetPowerUsage(gpu), nv.nvmlDeviceGetTemperature(gpu, 0), nv.nvmlDeviceGetTemperatureV(gpu, 0),
               nv.nvmlDeviceGetClockInfo(gpu, nv.NVML_CLOCK_SM), nv.nvmlDeviceGetClockInfo(gpu, nv.NVML_CLOCK_MEM),
               nv.nvmlDeviceGetMaxClockInfo(gpu, nv.NVML_CLOCK_SM), nv.nvmlDeviceGetCurrentClocksEventReasons(gpu),
               nv.nvmlDeviceGetCurrentClocksThrottleReasons(gpu), nv.nvmlDeviceGetEnforcedPowerLimit(gpu),
               nv.nvmlDeviceGetPowerManagementLimit(gpu), [field.nvmlReturn for field in fields],
               fields[0].value.uiVal, fields[2].value.uiVal, fields[3].value.uiVal)
        """,
    )

    limits = (400_000, 400_000)
    assert out == (350_125, 61, 61, 1200, 1593, 1980, 0x24, 0x24, *limits, [0, 0, 0, 0, 3], 77, 350_125, 350_125)


def test_memory_versions_differ_in_what_the_driver_keeps(player: Player) -> None:
    gpu = Gpu(UUID, mem_total_bytes=80 * GIB, mem_reserved_bytes=GIB, mem_used=Steps(((0, 0), (5, 3 * GIB + 1))))
    out = player.ask(
        one(gpu),
        """
        old, new = nv.nvmlDeviceGetMemoryInfo(gpu), nv.nvmlDeviceGetMemoryInfo(gpu, nv.nvmlMemory_v2)
        out = ((old.total, old.used, old.free), (new.total, new.reserved, new.used, new.free),
               attempt(nv.nvmlDeviceGetMemoryInfo, gpu, 1))
        """,
    )

    used, free = 3 * GIB + 1, 76 * GIB - 1
    old, new = (80 * GIB, used + GIB, free), (80 * GIB, GIB, used, free)
    assert out == (old, new, "NVMLError_ArgumentVersionMismatch")


def test_energy_is_exact(player: Player) -> None:
    spent = Gpu(UUID, power_w=Steps(((0, 123.457), (1.001, 699.999), (50.003, 0))), energy_offset_mj=10**12)
    running = Gpu(OTHER_UUID, power_w=Steps(((0, 50.5), (20, 333.333))))
    scenario = Scenario(gpus=(spent, running), start_ms=ms_ago(60))
    energy, before, reading, after = player.ask(
        scenario,
        """
        out = [nv.nvmlDeviceGetTotalEnergyConsumption(gpu), time.time_ns()]
        out += [nv.nvmlDeviceGetTotalEnergyConsumption(nv.nvmlDeviceGetHandleByIndex(1)), time.time_ns()]
        """,
    )

    exact_microjoules = 1001 * 123_457 + 49_002 * 699_999
    assert energy == spent.energy_mj(60) == 10**12 + exact_microjoules // 1000
    elapsed_ms = range(before // 10**6 - scenario.start_ms, after // 10**6 - scenario.start_ms + 1)
    assert reading in {running.energy_mj_at_ms(t_ms) for t_ms in elapsed_ms}


# -- the sample ring


def test_ring_holds_the_last_ten_seconds(player: Player) -> None:
    gpu = Gpu(UUID, util=Steps(((0, 80.0), (53.217, 33.4), (56.7, 100))), mem_util=constant(12.5))
    scenario = one(gpu)
    util, mem_util = player.ask(scenario, "out = samples(gpu), samples(gpu, nv.NVML_MEMORY_UTILIZATION_SAMPLES)")

    stamps = [stamp for stamp, _ in util]
    assert len(util) == RING_SIZE == 72
    assert {later - earlier for earlier, later in pairwise(stamps)} == {138_888, 138_889}
    assert abs(time.time() * 1e6 - stamps[-1]) < 5e6
    expected = scenario.ring(0, stamps[0] - 1, stamps[-1])
    assert util == [(entry.timestamp_us, entry.util_pct) for entry in expected]
    assert {value for _, value in mem_util} == {13}
    assert len({value for _, value in util}) > 3, "entries astride a step are means"


def test_ring_gives_only_what_is_newer_than_last_seen(player: Player) -> None:
    out = player.ask(
        one(Gpu(UUID, util=constant(50))),
        """
        first = samples(gpu)
        while (nothing := attempt(samples, gpu, 1, first[-1][0])) != "NVMLError_NotFound":
            first = samples(gpu)
        time.sleep(0.3)
        out = (first, samples(gpu, 1, first[-1][0]))
        """,
    )
    first, second = out

    assert 2 <= len(second) < RING_SIZE
    assert second[0][0] - first[-1][0] in {138_888, 138_889}


def test_ring_size_is_asked_with_a_null_pointer(player: Player) -> None:
    out = player.ask(
        one(),
        """
        from ctypes import byref, c_uint, c_ulonglong
        kind, count = c_uint(), c_uint()
        status = nv.nvmlLib.nvmlDeviceGetSamples(gpu, 1, c_ulonglong(0), byref(kind), byref(count), None)
        out = (status, count.value, kind.value)
        """,
    )

    assert out == (0, RING_SIZE, 1)


def test_idle_gpu_gives_no_samples(player: Player) -> None:
    scenario = Scenario(
        gpus=(Gpu(UUID, util=Steps(((0, 90), (40, 0)))), Gpu(OTHER_UUID, samples_while_idle=True)), start_ms=ms_ago(60)
    )
    out = player.ask(
        scenario,
        """
        zeros = samples(nv.nvmlDeviceGetHandleByIndex(1))
        out = (attempt(samples, gpu), nv.nvmlDeviceGetUtilizationRates(gpu).gpu, len(zeros), {v for _, v in zeros})
        """,
    )

    assert out == ("NVMLError_NotFound", 0, RING_SIZE, {0})


def test_ring_skips_idle_periods_only(player: Player) -> None:
    gpu = Gpu(UUID, util=Steps(((0, 90), (52, 0), (55, 70))))
    scenario = one(gpu)
    entries = player.ask(scenario, "out = samples(gpu)")

    assert tuple(stamp for stamp, _ in entries) == tuple(
        entry.timestamp_us for entry in scenario.ring(0, entries[0][0] - 1, entries[-1][0])
    )
    assert len(entries) < RING_SIZE
    assert max(b - a for (a, _), (b, _) in pairwise(entries)) == pytest.approx(3e6, abs=3e5)


def test_ring_may_keep_old_entries(player: Player) -> None:
    gpu = Gpu(UUID, util=Steps(((0, 90), (20, 0))), ring_keeps_old=True)
    scenario = one(gpu)
    entries = player.ask(scenario, "out = samples(gpu)")

    assert len(entries) == RING_SIZE
    assert scenario.seconds(entries[-1][0] / 1e6) == pytest.approx(20, abs=0.14)


def test_ring_knows_nothing_from_before_the_start(player: Player) -> None:
    scenario = one(Gpu(UUID, util=constant(60)), ago_s=2)
    entries = player.ask(scenario, "out = samples(gpu)")

    assert 13 <= len(entries) < RING_SIZE
    assert entries[0][0] > scenario.start_ms * 1000


def test_ring_in_another_clock_domain(player: Player) -> None:
    offset_us = -1_000_000_000_000
    scenario = one(Gpu(UUID, util=constant(60)), sample_clock_offset_us=offset_us)
    out = player.ask(scenario, "first = samples(gpu); out = (first, samples(gpu, 1, first[-9][0]))")

    first, second = out
    assert time.time() * 1e6 + offset_us - first[-1][0] < 5e6
    assert second[0] == first[-8]
    assert [stamp for stamp, _ in first] == [e.timestamp_us for e in scenario.ring(0, first[0][0] - 1, first[-1][0])]


def test_ring_garbage(player: Player) -> None:
    out = player.ask(one(Gpu(UUID, util=constant(60), ring_garbage=True), ago_s=3), "out = samples(gpu)")

    assert [value for stamp, value in out if stamp == 0] == [55]
    assert [value for _, value in out if value > 100] == [4_000_000_000]
    assert len([value for stamp, value in out if stamp > 0 and value == 60]) == len(out) - 2


def test_rates_are_the_last_finished_period(player: Player) -> None:
    gpu = Gpu(UUID, util=Steps(((0, 5), (30, 64))), mem_util=constant(31))
    out = player.ask(one(gpu), "rates = nv.nvmlDeviceGetUtilizationRates(gpu); out = (rates.gpu, rates.memory)")

    assert out == (64, 31)


def test_power_and_clock_samples(player: Player) -> None:
    gpu = Gpu(UUID, power_w=constant(250.5), samples_while_idle=True)
    out = player.ask(
        one(gpu),
        """
        kinds = (nv.NVML_TOTAL_POWER_SAMPLES, nv.NVML_PROCESSOR_CLK_SAMPLES, nv.NVML_MEMORY_CLK_SAMPLES)
        out = [{value for _, value in samples(gpu, kind)} for kind in kinds]
        out.append(attempt(samples, gpu, nv.NVML_ENC_UTILIZATION_SAMPLES))
        """,
    )

    assert out == [{250_500}, {1980}, {2619}, "NVMLError_NotSupported"]


# -- processes


def test_process_lists(player: Player) -> None:
    gpu = Gpu(
        UUID,
        processes=(
            Process(101, mem_bytes=5 * GIB),
            Process(102, mem_bytes=None),
            Process(103, kind="graphics"),
            Process(104, kind="mps"),
            Process(105, end_s=30),
            Process(106, start_s=1000),
        ),
    )
    out = player.ask(
        one(gpu),
        """
        from ctypes import byref, c_uint
        lists = (nv.nvmlDeviceGetComputeRunningProcesses_v3, nv.nvmlDeviceGetGraphicsRunningProcesses_v3,
                 nv.nvmlDeviceGetMPSComputeRunningProcesses_v3)
        out = [[(p.pid, p.usedGpuMemory, p.gpuInstanceId) for p in each(gpu)] for each in lists]
        count, room = c_uint(1), (nv.c_nvmlProcessInfo_v3_t * 1)()
        status = nv.nvmlLib.nvmlDeviceGetComputeRunningProcesses_v3(gpu, byref(count), room)
        out.append((status, count.value))
        """,
    )

    whole = 0xFFFFFFFF
    compute = [(101, 5 * GIB, whole), (102, None, whole)]
    insufficient_size = (7, 2)
    assert out == [compute, [(103, GIB, whole)], [(104, GIB, whole)], insufficient_size]


def test_process_utilization(player: Player) -> None:
    scenario = Scenario(
        gpus=(
            Gpu(UUID, util=constant(75), processes=(Process(101), Process(102))),
            Gpu(OTHER_UUID, processes=(Process(103),)),
            Gpu("GPU-empty", util=constant(75)),
        ),
        start_ms=ms_ago(60),
    )
    out = player.ask(
        scenario,
        """
        found = nv.nvmlDeviceGetProcessUtilization(gpu, 0)
        out = [sorted((s.pid, s.smUtil) for s in found)]
        for index in (1, 2):
            try:
                nv.nvmlDeviceGetProcessUtilization(nv.nvmlDeviceGetHandleByIndex(index), 0)
            except nv.NVMLError as error:
                out.append(error.value)
        """,
    )

    assert out == [[(101, 75), (102, 75)], 6, 0]


# -- MIG


def mig_gpu() -> Gpu:
    return Gpu(
        UUID,
        util=constant(50),
        gpm={2: constant(70)},
        mig=(
            MigInstance(
                "MIG-a", 1, 0, slot=0, mem_used=constant(2 * GIB), processes=(Process(201),), gpm={2: constant(40)}
            ),
            MigInstance("MIG-b", 2, 0, slot=2, profile="3g.40gb", gpu_slices=3, compute_slices=3, end_s=30),
            MigInstance("MIG-c", 5, 0, slot=2, profile="2g.20gb", gpu_slices=2, compute_slices=2, start_s=40),
        ),
    )


def test_mig_enumeration(player: Player) -> None:
    out = player.ask(
        one(mig_gpu()),
        """
        out = [nv.nvmlDeviceGetMigMode(gpu), nv.nvmlDeviceGetMaxMigDeviceCount(gpu),
               attempt(nv.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 1)]
        for slot in (0, 2):
            mig = nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu, slot)
            parent = nv.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
            out.append((nv.nvmlDeviceGetUUID(mig), nv.nvmlDeviceGetName(mig), nv.nvmlDeviceGetGpuInstanceId(mig),
                        nv.nvmlDeviceGetComputeInstanceId(mig), nv.nvmlDeviceIsMigDeviceHandle(mig).value,
                        nv.nvmlDeviceGetUUID(parent), nv.nvmlDeviceGetAttributes_v2(mig).gpuInstanceSliceCount))
        out.append(nv.nvmlDeviceGetUUID(nv.nvmlDeviceGetHandleByUUID("MIG-c")))
        """,
    )

    name = "NVIDIA H100 80GB HBM3 MIG"
    first, third = ("MIG-a", f"{name} 1g.10gb", 1, 0, 1, UUID, 1), ("MIG-c", f"{name} 2g.20gb", 5, 0, 1, UUID, 2)
    assert out == [[1, 1], 7, "NVMLError_NotFound", first, third, "MIG-c"]


def test_mig_readings(player: Player) -> None:
    out = player.ask(
        one(mig_gpu()),
        """
        mig = nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
        out = [nv.nvmlDeviceGetMemoryInfo(mig, nv.nvmlMemory_v2).used]
        for handle in (mig, gpu):
            out.append([(p.pid, p.gpuInstanceId) for p in nv.nvmlDeviceGetComputeRunningProcesses_v3(handle)])
            out.append([attempt(nv.nvmlDeviceGetUtilizationRates, handle), attempt(samples, handle),
                        attempt(nv.nvmlDeviceGetProcessUtilization, handle, 0)])
        out.append(attempt(nv.nvmlDeviceGetPowerUsage, mig))
        """,
    )

    unsupported = ["NVMLError_NotSupported"] * 3
    process = [(201, 1)]
    assert out == [2 * GIB, process, unsupported, process, unsupported, "NVMLError_InvalidArgument"]


@pytest.mark.parametrize(("capable", "mode"), [(False, "NVMLError_NotSupported"), (True, [0, 0])])
def test_gpu_that_is_not_split(player: Player, *, capable: bool, mode: Any) -> None:
    gpu = Gpu(UUID, mig_capable=capable)
    out = player.ask(one(gpu), "out = (attempt(nv.nvmlDeviceGetMigMode, gpu), nv.nvmlDeviceGetMaxMigDeviceCount(gpu))")

    assert out == (mode, 0)


# -- GPM


GPM = """
def between(take, ids, wait_s=0.0):
    first, second = nv.nvmlGpmSampleAlloc(), nv.nvmlGpmSampleAlloc()
    started = time.time(); take(first); time.sleep(wait_s); take(second); ended = time.time()
    get = nv.c_nvmlGpmMetricsGet_t(version=nv.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(ids), sample1=first, sample2=second)
    for place, metric in enumerate(ids):
        get.metrics[place].metricId = metric
    nv.nvmlGpmMetricsGet(get)
    for sample in (first, second):
        nv.nvmlGpmSampleFree(sample)
    return started, ended, [(m.nvmlReturn, repr(m.value)) for m in get.metrics[:len(ids)]]
"""


def test_gpm_averages_between_two_samples(player: Player) -> None:
    # A change in the middle of the two samples: only a true average can lie between the two values.
    ramp = Steps(tuple((t / 100, float(t % 100)) for t in range(5000, 8000)))
    gpu = Gpu(UUID, gpm={2: ramp, 3: constant(41.25)}, gpm_nan=(5,))
    scenario = one(gpu)
    started, ended, metrics = player.ask(
        scenario, GPM + "out = between(lambda s: nv.nvmlGpmSampleGet(gpu, s), [2, 3, 5, 10], 0.2)"
    )

    assert [status for status, _ in metrics] == [0, 0, 0, 3]
    assert metrics[1:] == [(0, "41.25"), (0, "nan"), (3, "nan")]
    assert float(metrics[0][1]) == pytest.approx(ramp.mean(scenario.seconds(started), scenario.seconds(ended)), abs=3)


def test_gpm_of_a_mig_instance(player: Player) -> None:
    out = player.ask(
        one(mig_gpu()),
        GPM
        + """
out = [between(lambda s: nv.nvmlGpmMigSampleGet(gpu, 1, s), [2], 0.01)[2],
       attempt(nv.nvmlGpmMigSampleGet, gpu, 9, nv.nvmlGpmSampleAlloc()), nv.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice]
""",
    )

    assert out == [[(0, "40.0")], "NVMLError_NotFound", 1]


def test_gpu_without_gpm(player: Player) -> None:
    out = player.ask(
        one(),
        """
        out = (nv.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice,
               attempt(nv.nvmlGpmSampleGet, gpu, nv.nvmlGpmSampleAlloc()))
        """,
    )

    assert out == (0, "NVMLError_NotSupported")


# -- events


def test_events_arrive_and_waiting_times_out(player: Player) -> None:
    scenario = one(xids=(Xid(0, 1, 13), Xid(0, 62, 79)), ago_s=60)
    out = player.ask(
        scenario,
        """
        events = nv.nvmlEventSetCreate()
        nv.nvmlDeviceRegisterEvents(gpu, nv.nvmlEventTypeXidCriticalError, events)
        out = [attempt(nv.nvmlEventSetWait_v2, events, 10), bool(nv.nvmlDeviceGetSupportedEventTypes(gpu) & 8)]
        data = nv.nvmlEventSetWait_v2(events, 5000)
        out += [data.eventType, data.eventData, nv.nvmlDeviceGetUUID(data.device)]
        nv.nvmlEventSetFree(events)
        """,
    )

    assert out == ["NVMLError_Timeout", True, 8, 79, UUID]


# -- faults

ONE_FAULT_PROGRAM = """
nv.nvmlInit()
handles = [attempt(nv.nvmlDeviceGetHandleByIndex, index) for index in (0, 1)]
out = [handle if isinstance(handle, str) else
       (attempt(nv.nvmlDeviceGetPowerUsage, handle), attempt(nv.nvmlDeviceGetTemperature, handle, 0)) for handle in handles]
"""
HEALTHY = (70_000, 35)


@pytest.mark.parametrize(
    ("kind", "error"), [("lost", "GpuIsLost"), ("reset_required", "ResetRequired"), ("unknown", "Unknown")]
)
def test_fault_of_one_gpu_leaves_the_others(player: Player, kind: Any, error: str) -> None:
    out = player.play(failing(Fault(kind, gpu=0)), ONE_FAULT_PROGRAM)

    assert out == [f"NVMLError_{error}", HEALTHY]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("not_supported", "NotSupported"),
        ("no_permission", "NoPermission"),
        ("function_not_found", "FunctionNotFound"),
        ("timeout", "Timeout"),
    ],
)
def test_fault_of_one_function(player: Player, kind: Any, error: str) -> None:
    out = player.play(failing(Fault(kind, gpu=1, function="nvmlDeviceGetPowerUsage")), ONE_FAULT_PROGRAM)

    assert out == [HEALTHY, (f"NVMLError_{error}", 35)]


def test_fault_by_name_without_version_in_its_time(player: Player) -> None:
    past = Fault("lost", end_s=30)
    future = Fault("lost", start_s=1000)
    memory = Fault("not_supported", function="nvmlDeviceGetMemoryInfo")
    out = player.ask(
        failing(past, future, memory),
        "out = [attempt(nv.nvmlDeviceGetMemoryInfo, gpu, v) for v in (None, nv.nvmlMemory_v2)], nv.nvmlDeviceGetPowerUsage(gpu)",
    )

    assert out == (["NVMLError_NotSupported"] * 2, 70_000)


def test_a_gpu_is_lost_while_it_is_watched(player: Player) -> None:
    scenario = Scenario(gpus=(Gpu(UUID),), start_ms=ms_ago(0), faults=(Fault("lost", gpu=0, start_s=2.0),))
    out = player.ask(
        scenario,
        """
        out = [nv.nvmlDeviceGetPowerUsage(gpu)]
        while not isinstance(answer := attempt(nv.nvmlDeviceGetPowerUsage, gpu), str):
            time.sleep(0.01)
        out += [answer, time.time()]
        """,
    )

    assert out[:2] == [70_000, "NVMLError_GpuIsLost"]
    assert scenario.seconds(out[2]) == pytest.approx(2.0, abs=0.5)


@pytest.mark.parametrize(
    ("fault", "program"),
    [
        (Fault("hang", function="nvmlInit"), "nv.nvmlInit(); out = 0"),
        (Fault("hang", gpu=0, function="nvmlDeviceGetPowerUsage"), START + "out = nv.nvmlDeviceGetPowerUsage(gpu)"),
        (Fault("hang", gpu=0), "nv.nvmlInit(); out = nv.nvmlDeviceGetHandleByIndex(0)"),
    ],
)
def test_hang_blocks_for_ever(player: Player, fault: Fault, program: str) -> None:
    process = player.start(failing(fault), "print('calling', flush=True)\n" + program)
    assert process.stdout is not None
    assert process.stdout.readline() == "calling\n"

    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.4)
    process.kill()
    process.communicate()


def test_hang_of_one_gpu_leaves_the_others(player: Player) -> None:
    program = "nv.nvmlInit(); out = nv.nvmlDeviceGetPowerUsage(nv.nvmlDeviceGetHandleByIndex(1))"

    assert player.play(failing(Fault("hang", gpu=0)), program) == 70_000


def test_hang_may_end(player: Player) -> None:
    scenario = Scenario(gpus=(Gpu(UUID),), start_ms=ms_ago(0), faults=(Fault("hang", gpu=0, end_s=0.8),))
    woken, power = player.ask(scenario, "out = (time.time(), nv.nvmlDeviceGetPowerUsage(gpu))")

    assert scenario.seconds(woken) >= 0.8
    assert power == 70_000


def test_slow_calls(player: Player) -> None:
    fault = Fault("slow", function="nvmlDeviceGetPowerUsage", delay_s=0.15)
    out = player.ask(
        failing(fault), "t = time.time(); power = nv.nvmlDeviceGetPowerUsage(gpu); out = (power, time.time() - t)"
    )

    assert out[0] == 70_000
    assert out[1] >= 0.15


def test_driver_not_loaded(player: Player) -> None:
    assert player.play(failing(Fault("driver_not_loaded")), "out = attempt(nv.nvmlInit)") == "NVMLError_DriverNotLoaded"


def test_mismatch_strikes_init(player: Player) -> None:
    assert player.play(failing(Fault("mismatch")), "out = attempt(nv.nvmlInit)") == "NVMLError_LibRmVersionMismatch"


def test_mismatch_stays_with_a_process_from_before_the_upgrade(player: Player) -> None:
    start_ms = ms_ago(0)
    scenario = Scenario(gpus=(Gpu(UUID),), start_ms=start_ms, faults=(Fault("mismatch", start_s=2.0, end_s=2.1),))
    old = player.ask(
        scenario,
        f"""
        out = [nv.nvmlDeviceGetPowerUsage(gpu)]
        time.sleep({start_ms / 1000 + 2.15} - time.time())
        out += [attempt(nv.nvmlDeviceGetPowerUsage, gpu), attempt(nv.nvmlInit)]
        """,
    )

    mismatch = "NVMLError_LibRmVersionMismatch"
    assert old == [70_000, mismatch, mismatch]
    assert player.ask(scenario, "out = nv.nvmlDeviceGetPowerUsage(gpu)") == 70_000


# -- the ready-made fleet


def test_standard_fleet(player: Player) -> None:
    out = player.play(
        standard_fleet(ms_ago(60), range(1000, 1032)),
        """
        nv.nvmlInit()
        handles = [nv.nvmlDeviceGetHandleByIndex(index) for index in range(nv.nvmlDeviceGetCount())]
        lists = [nv.nvmlDeviceGetComputeRunningProcesses_v3(handle) for handle in handles]
        out = (len({nv.nvmlDeviceGetUUID(handle) for handle in handles}), sorted(p.pid for each in lists for p in each),
               [nv.nvmlDeviceGetUtilizationRates(handle).gpu for handle in handles[:2]])
        """,
    )

    assert out == (8, list(range(1000, 1032)), [0, 100])
