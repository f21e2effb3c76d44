"""`fallow import nvidia-smi` on documents of `nvidia-smi -q -x`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.importers.conftest import files, query

if TYPE_CHECKING:
    from collections.abc import Callable

NEW = "<gpu_power_readings><power_state>P0</power_state><average_power_draw>345.67 W</average_power_draw><current_power_limit>700.00 W</current_power_limit></gpu_power_readings>"
OLD = "<power_readings><power_draw>345.67 W</power_draw><power_limit>700.00 W</power_limit><enforced_power_limit>700.00 W</enforced_power_limit></power_readings>"


def document(second: int, gpus: int = 2, power: str = NEW, util: str = "43 %") -> str:
    cards = "".join(
        f'<gpu id="00000000:{3 + gpu:02}:00.0"><product_name>NVIDIA H100, 80GB</product_name><uuid>GPU-{gpu}</uuid>'
        "<mig_devices><mig_device><fb_memory_usage><total>9856 MiB</total><used>1 MiB</used></fb_memory_usage></mig_device>"
        "</mig_devices><fb_memory_usage><total>81559 MiB</total><reserved>551 MiB</reserved><used>1024 MiB</used></fb_memory_usage>"
        f"<utilization><gpu_util>{util}</gpu_util><memory_util>7 %</memory_util></utilization>"
        f"<temperature><gpu_temp>45 C</gpu_temp><memory_temp>N/A</memory_temp></temperature>{power}"
        "<clocks><graphics_clock>1980 MHz</graphics_clock><sm_clock>1975 MHz</sm_clock><mem_clock>2619 MHz</mem_clock></clocks></gpu>"
        for gpu in range(gpus)
    )
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>'
        f"<timestamp>Fri Nov 20 10:00:{second:02} 2026</timestamp><driver_version>550.54.15</driver_version>"
        f"<attached_gpus>{gpus}</attached_gpus>{cards}</nvidia_smi_log>\n"
    )


@pytest.mark.parametrize("power", [NEW, OLD])
def test_concatenated_documents(smi: Callable, place: str, power: str) -> None:
    done = smi(document(0, power=power) + document(10, power=power, util="N/A"))
    assert done.summary["rows"] == {"read": 4, "dropped": 0, "merged": 0, "kept": 4}
    assert query(
        place,
        "select gpu, strftime(time, '%H:%M:%S'), gpu_util_pct, mem_util_pct, mem_used_bytes, mem_reserved_bytes, "
        "round(power_w::double, 2), temperature_c, mem_temperature_c, sm_clock_mhz, mem_clock_mhz from lake order by time, gpu",
    )[::3] == [
        ("GPU-0", "10:00:00", 43, 7, 2**30, 551 * 2**20, 345.67, 45, None, 1975, 2619),
        ("GPU-1", "10:00:10", None, 7, 2**30, 551 * 2**20, 345.67, 45, None, 1975, 2619),
    ]
    assert query(
        place, "select gpu, gpu_index, model, mem_total_bytes, power_limit_w, pci_bus_id, driver_version from lake order by 1",
        "device",
    )[1] == ("GPU-1", 1, "NVIDIA H100, 80GB", 81_559 * 2**20, 700, "00000000:04:00.0", "550.54.15")  # fmt: skip


def test_a_document_that_is_cut_off_is_counted(smi: Callable, place: str) -> None:
    done = smi(document(0) + document(10) + document(20)[:-300])
    assert done.dropped() == {"in a document that is cut off or damaged": 2}
    assert done.summary["rows"] == {"read": 6, "dropped": 2, "merged": 0, "kept": 4}
    assert query(place, "select count(*) from lake") == [(4,)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (document(0).replace("Fri Nov 20 10:00:00 2026", "yesterday"), "timestamp unreadable: 2"),
        (document(0).replace("<timestamp>Fri Nov 20 10:00:00 2026</timestamp>", ""), "without a timestamp"),
        ('<?xml version="1.0" ?><other/>', "cut off or damaged: 1"),
        ('<!DOCTYPE nvidia_smi_log [<!ENTITY a "b">]><nvidia_smi_log><gpu id="&a;"/></nvidia_smi_log>', "cut off or damaged: 1"),
    ],
)  # fmt: skip
def test_documents_that_cannot_be_used(smi: Callable, place: str, text: str, said: str) -> None:
    done = smi(text)
    assert (done.code, files(place)) == (1, [])
    assert said in done.err
