"""`fallow import nvidia-smi` on tables of `nvidia-smi dmon` and on documents of `nvidia-smi -q -x`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.importers.conftest import query

if TYPE_CHECKING:
    from tests.importers.conftest import Run

DMON_HEAD = (
    "#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem    enc   mclk   pclk     fb \n"
    "#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %      %    MHz    MHz     MB \n"
)


def row(clock: str, gpu: int, sm: object, mtemp: object = "-", day: str = " 20261120   ") -> str:
    return f"{day}{clock}      {gpu}    147     47     {mtemp}     {sm}      1      0   2619   1980   3953 \n"


ROWS = "".join(row(f"10:00:0{tick}", gpu, tick) for tick in range(3) for gpu in range(2))
VALUES = (
    "select gpu, strftime(time, '%d %H:%M:%S'), gpu_util_pct, mem_util_pct, round(power_w), temperature_c,"
    " mem_temperature_c, mem_clock_mhz, sm_clock_mhz, mem_used_bytes from lake order by time, gpu limit 1"
)


def test_every_column_reaches_its_own(smi: Run, place: str) -> None:
    done = smi(DMON_HEAD + ROWS + DMON_HEAD + row("10:00:03", 0, "-", 54) + row("10:00:03", 1, 100))
    assert query(place, VALUES) == [("gn001/0", "20 10:00:00", 0, 1, 147, 47, None, 2619, 1980, 3953 * 2**20)]
    assert query(
        place, "select gpu_util_pct, mem_temperature_c from lake where gpu = 'gn001/0' order by time desc limit 1"
    ) == [(None, 54)]
    assert done.summary["rows"] == {"read": 8, "dropped": 0, "merged": 0, "kept": 8}
    assert done.summary["files"][0]["not_samples"] == 4
    assert done.summary["files"][0]["notes"][0] == "read as a table of nvidia-smi dmon"


def test_times_without_dates_need_the_first_day(smi: Run, place: str) -> None:
    head = DMON_HEAD.replace("#Date       Time  ", "#Time").replace("#YYYYMMDD   HH:MM:SS", "#HH:MM:SS")
    rows = "".join(row(clock, 0, 5, day=" ") for clock in ("23:59:58", "23:59:59", "00:00:00", "00:00:01"))
    smi(head + rows).refused("--date")
    smi(head + rows, flags=("--date", "tomorrow")).refused(code=2)
    smi(head + rows, flags=("--date", "2026-11-20"))
    found = [moment for (moment,) in query(place, "select strftime(time, '%d %H:%M:%S') from lake order by time")]
    assert found == ["20 23:59:58", "20 23:59:59", "21 00:00:00", "21 00:00:01"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# gpu    pwr     sm\n# Idx      W      %\n    0    119    100\n", "dmon -o DT"),
        ("# gpu        pid  type    sm   mem   command\n# Idx          #   C/G     %     %   name\n", "pmon"),
        (DMON_HEAD.replace("MHz     MB", "MHz     GB") + ROWS, "fb is in GB"),
        (DMON_HEAD, "no usable row"),
    ],
)
def test_tables_that_cannot_be_used(smi: Run, text: str, said: str) -> None:
    smi(text).refused(said)


def test_comma_separated_tables_and_broken_lines(smi: Run, place: str) -> None:
    text = (DMON_HEAD + ROWS).replace(" 20261120   ", "2026-11-20, ").replace("      1      0   2619", ", 1, 0, 2619")
    done = smi(text + " 20261120   10:00:03      0    1")
    assert query(place, VALUES) == [("gn001/0", "20 10:00:00", 0, 1, 147, 47, None, 2619, 1980, 3953 * 2**20)]
    assert done.dropped() == {"wrong number of fields: truncated or mixed lines": 1}


NEW = (
    "<gpu_power_readings><power_state>P0</power_state><average_power_draw>345.67"
    " W</average_power_draw><current_power_limit>700.00 W</current_power_limit></gpu_power_readings>"
)
OLD = (
    "<power_readings><power_draw>345.67 W</power_draw><power_limit>700.00 W</power_limit><enforced_power_limit>700.00"
    " W</enforced_power_limit></power_readings>"
)


def document(second: int, gpus: int = 2, power: str = NEW, util: str = "43 %") -> str:
    cards = "".join(
        f'<gpu id="00000000:{3 + gpu:02}:00.0"><product_name>NVIDIA H100,'
        f" 80GB</product_name><uuid>GPU-{gpu}</uuid><mig_devices><mig_device><fb_memory_usage><total>9856"
        " MiB</total><used>1 MiB</used></fb_memory_usage></mig_device></mig_devices><fb_memory_usage><total>81559"
        " MiB</total><reserved>551 MiB</reserved><used>1024"
        f" MiB</used></fb_memory_usage><utilization><gpu_util>{util}</gpu_util><memory_util>7"
        " %</memory_util></utilization><temperature><gpu_temp>45"
        f" C</gpu_temp><memory_temp>N/A</memory_temp></temperature>{power}<clocks><graphics_clock>1980"
        " MHz</graphics_clock><sm_clock>1975 MHz</sm_clock><mem_clock>2619 MHz</mem_clock></clocks></gpu>"
        for gpu in range(gpus)
    )
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>'
        f"<timestamp>Fri Nov 20 10:00:{second:02} 2026</timestamp><driver_version>550.54.15</driver_version>"
        f"<attached_gpus>{gpus}</attached_gpus>{cards}</nvidia_smi_log>\n"
    )


@pytest.mark.parametrize("power", [NEW, OLD])
def test_concatenated_documents(smi: Run, place: str, power: str) -> None:
    done = smi(document(0, power=power) + document(10, power=power, util="N/A"))
    assert done.summary["rows"] == {"read": 4, "dropped": 0, "merged": 0, "kept": 4}
    assert query(
        place,
        "select gpu, strftime(time, '%H:%M:%S'), gpu_util_pct, mem_util_pct, mem_used_bytes, mem_reserved_bytes,"
        " round(power_w::double, 2), temperature_c, mem_temperature_c, sm_clock_mhz, mem_clock_mhz from lake order by"
        " time, gpu",
    )[::3] == [
        ("GPU-0", "10:00:00", 43, 7, 2**30, 551 * 2**20, 345.67, 45, None, 1975, 2619),
        ("GPU-1", "10:00:10", None, 7, 2**30, 551 * 2**20, 345.67, 45, None, 1975, 2619),
    ]
    assert query(
        place,
        "select gpu, gpu_index, model, mem_total_bytes, power_limit_w, pci_bus_id, driver_version from lake order by 1",
        "device",
    )[1] == ("GPU-1", 1, "NVIDIA H100, 80GB", 81_559 * 2**20, 700, "00000000:04:00.0", "550.54.15")


def power(**places: str) -> str:
    return "".join(f"<{group}>{values}</{group}>" for group, values in places.items())


PLACES = {
    "instant after average": power(gpu_power_readings="<average_power_draw>N/A</average_power_draw>"
        "<instant_power_draw>92.40 W</instant_power_draw>"),
    "average after an error": power(power_readings="<power_draw>[N/A]</power_draw>",
        gpu_power_readings="<power_draw>[Unknown Error]</power_draw><average_power_draw>92.40 W</average_power_draw>"),
    "the older group": power(gpu_power_readings="<power_draw>Not Supported</power_draw>",
        power_readings="<power_draw>92.40 W</power_draw>"),
    "the older group's instant": power(gpu_power_readings="<instant_power_draw>N/A</instant_power_draw>",
        power_readings="<power_draw>N/A</power_draw><instant_power_draw>92.40 W</instant_power_draw>"),
}  # fmt: skip


@pytest.mark.parametrize("places", PLACES)
def test_of_several_places_for_power_the_first_with_a_value_counts(smi: Run, place: str, places: str) -> None:
    done = smi(document(0, power=PLACES[places]) + document(10, power=PLACES[places]))
    assert query(place, "select distinct round(power_w::double, 1) from lake") == [(92.4,)]
    assert not [name for name, _ in done.nulled() if name == "power_w"]


def test_the_power_limit_is_the_first_that_is_known(smi: Run, place: str) -> None:
    limits = power(
        gpu_power_readings=(
            "<enforced_power_limit>N/A</enforced_power_limit><current_power_limit>150.00 W</current_power_limit>"
        )
    )
    smi(document(0, power=limits) + document(10, power=limits))
    assert query(place, "select distinct power_limit_w from lake", "device") == [(150,)]


def test_a_document_that_is_cut_off_is_counted(smi: Run, place: str) -> None:
    done = smi(document(0) + document(10) + document(20)[:-300])
    assert done.dropped() == {"in a document that is truncated or damaged": 2}
    assert done.summary["rows"] == {"read": 6, "dropped": 2, "merged": 0, "kept": 4}
    assert query(place, "select count(*) from lake") == [(4,)]


ENTITY = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "b">]><nvidia_smi_log><gpu id="&a;"/></nvidia_smi_log>'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (document(0).replace("Fri Nov 20 10:00:00 2026", "yesterday"), "timestamp unreadable: 2"),
        (re.sub("<timestamp>.*</timestamp>", "", document(0)), "without a timestamp"),
        ('<?xml version="1.0" ?><other/>', "truncated or damaged: 1"),
        (ENTITY, "truncated or damaged: 1"),
    ],
)
def test_documents_that_cannot_be_used(smi: Run, text: str, said: str) -> None:
    smi(text).refused(said)
