"""Which CUDA runs on this driver, and is libcuda.so.1 the driver's own?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.doctor import catalog
from agent.doctor.finding import Facts, Finding, error, ok, skipped, warning
from agent.doctor.judge import is_data_center, native_cuda
from agent.doctor.libraries import Copy, copies
from agent.doctor.remedies import NO_VERSION
from agent.doctor.versions import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.case import Case

_FIND_COPIES = "ldconfig -p | grep libcuda.so; echo $LD_LIBRARY_PATH"


def look(case: Case) -> Iterator[Finding]:
    """What the driver runs, and whether libcuda.so.1 is the driver's own."""
    driver = case.driver_version
    if driver is None:
        yield skipped(NO_VERSION)
        return
    native = native_cuda(driver)
    libraries = [copy for copy in copies(case.host, "libcuda.so.1") if not copy.stub]
    said = case.driver.cuda_version
    facts: Facts = {
        "driver": shown(driver),
        "native_cuda": shown(native) if native else None,
        "cuda_by_libcuda": shown(said) if said else None,
        "libcuda": [str(copy.file) for copy in libraries],
    }
    if libraries and libraries[0].compat:
        yield _compat(case, libraries[0], facts)
        return
    runs = f"driver {shown(driver)} runs CUDA up to {shown(native)} in full" if native else f"driver {shown(driver)}"
    if native and native[0] in catalog.FAMILY_DRIVER:
        runs += f", and any {native[0]}.x without what is newer than the driver"
    if said is not None and native is not None and said[0] > native[0]:
        yield warning(
            f"{runs}; yet libcuda.so.1 says {shown(said)}: it is not the driver's own",
            "find the copy that shadows the driver's, such as a cuda-compat package",
            _FIND_COPIES,
            facts,
        )
    else:
        yield ok(runs, facts)


def _compat(case: Case, copy: Copy, facts: Facts) -> Finding:
    """A forward-compatibility package: which cards take it, and not one that is older than the driver."""
    ordinary = [gpu.name for gpu in case.driver.gpus if gpu.model and not is_data_center(gpu.model)]
    remove = f"take {copy.folder} out of LD_LIBRARY_PATH and /etc/ld.so.conf.d"
    if copy.version is not None and case.driver_version is not None and copy.version < case.driver_version:
        return error(
            f"a compatibility package ({copy.file}) shadows the newer driver {case.driver_text}: CUDA fails with 803, "
            "`unsupported display driver / cuda driver combination`",
            f"remove cuda-compat, or {remove}",
            _FIND_COPIES,
            facts,
        )
    if ordinary:
        return error(
            f"a compatibility package ({copy.file}) is in use, which only data center cards take: CUDA fails with 804 on "
            f"{', '.join(ordinary)}",
            f"{remove}; install a newer driver instead",
            _FIND_COPIES,
            facts,
        )
    return ok(f"driver {case.driver_text} with the compatibility package {copy.file}", facts)
