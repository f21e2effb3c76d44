"""Machines and installations: what tells them apart never gives the machine's id away."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

import pytest

from fallow import host_identity
from fallow.host_identity import HostIdentity, machine_hash, merged_origin

if TYPE_CHECKING:
    from pathlib import Path

MACHINE = "3d1219c7c4c5404aaa1f6d2a48adfda4"


def test_the_hash_is_made_as_systemd_makes_it(tmp_path: Path) -> None:
    file = tmp_path / "machine-id"
    file.write_text(f"{MACHINE}\n")
    app_id = host_identity._APP_ID  # noqa: SLF001  # the same function by another way
    made = bytearray(hmac.new(bytes.fromhex(MACHINE), app_id, hashlib.sha256).digest()[:16])
    made[6], made[8] = made[6] & 0x0F | 0x40, made[8] & 0x3F | 0x80
    assert machine_hash(str(file)) == made.hex() != MACHINE


@pytest.mark.parametrize("content", ["", "uninitialized\n", "0" * 32, "g" * 32, "\xff", None])
def test_a_machine_without_an_id_is_unknown(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "machine-id"
    if content is not None:
        file.write_text(content, encoding="latin-1")
    assert machine_hash(str(file)) == ""


def test_a_compacted_file_names_everybody_whose_rows_it_holds() -> None:
    first, second = (HostIdentity("gn001", install * 32, "m" * 32).metadata() for install in "ab")
    older: dict[str, str] = {}
    assert merged_origin([second, older, first]) == {
        "fallow_host": "gn001", "fallow_install": f"{'a' * 32},{'b' * 32}", "fallow_machine": "m" * 32,
    }  # fmt: skip
    assert merged_origin([merged_origin([first]), second])["fallow_install"] == f"{'a' * 32},{'b' * 32}"
    assert merged_origin([older]) == {}
