"""Pseudonyms: computed as documented, the same everywhere, never replaced by plain names where the key fails."""

from __future__ import annotations

import csv
import hashlib
import io
import stat
from pathlib import Path

import pytest

from fallow import config
from fallow.errors import ConfigError
from fallow.pseudonyms import Pseudonyms
from tests.in_process import run_in_process

KEY = b"0123456789abcdef0123456789abcdef"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "pseudonym.key"
    path.write_bytes(KEY + b"\n")
    path.chmod(0o640)
    return path


def by_hand(name: str) -> str:
    """RFC 2104 written out, with SHA-256."""
    padded = KEY.ljust(64, b"\0")
    inner, outer = (bytes(byte ^ pad for byte in padded) for pad in (0x36, 0x5C))
    return "u-" + hashlib.sha256(outer + hashlib.sha256(inner + name.encode()).digest()).hexdigest()[:16]


def test_a_pseudonym_is_the_keyed_hash_that_the_docs_describe(key_file: Path) -> None:
    pseudonyms = Pseudonyms.load(str(key_file))
    for name in ("ann", "Ann", "1000", "zoë", "CORP\\ann"):
        assert pseudonyms.of(name) == by_hand(name)
    assert pseudonyms.of("CORP+ann") == by_hand("CORP\\ann"), "both are signs between domain and user"
    assert len({pseudonyms.of(f"user{number}") for number in range(20_000)}) == 20_000
    assert Pseudonyms(KEY[::-1]).of("ann") != pseudonyms.of("ann")
    twice = pseudonyms.of(pseudonyms.of("ann"))
    assert twice != pseudonyms.of("ann"), "who calls himself like a pseudonym takes nobody's place"


def test_a_key_that_others_can_read_or_change_is_refused(key_file: Path) -> None:
    for mode in (0o644, 0o604, 0o660, 0o642, 0o777):
        key_file.chmod(mode)
        with pytest.raises(ConfigError, match=f"mode {mode:04o}.*chmod 640 {key_file}"):
            Pseudonyms.load(str(key_file))
    key_file.chmod(0o640)  # what the message says works
    assert Pseudonyms.load(str(key_file)).of("ann") == by_hand("ann")


def settings(**values: str) -> config.Config:
    return config.load({f"agent.{name}": value for name, value in values.items()}, environment={})


def test_without_a_key_there_is_an_error_and_no_plain_name(tmp_path: Path, key_file: Path) -> None:
    assert Pseudonyms.from_config(settings()) is None
    assert Pseudonyms.from_config(settings(pseudonym_key_file=str(key_file))) is None, "off is off"
    with pytest.raises(ConfigError, match=r"agent\.pseudonym_key_file names no key"):
        Pseudonyms.from_config(settings(pseudonymise_users="on"))
    short = tmp_path / "short.key"
    short.write_bytes(KEY[:31])
    for path, said in ((tmp_path / "none", "cannot read"), (short, "shorter than 32 bytes"), (tmp_path, "cannot read")):
        with pytest.raises(ConfigError, match=said):
            Pseudonyms.from_config(settings(pseudonymise_users="on", pseudonym_key_file=str(path)))
    made = Pseudonyms.from_config(settings(pseudonymise_users="on", pseudonym_key_file=str(key_file)))
    assert made is not None
    assert made.of("ann") == by_hand("ann")
    with pytest.raises(ConfigError):  # a flag for an import asks for them whatever the settings say
        Pseudonyms.from_config(settings(), "")


def test_a_new_key_is_for_its_owner_alone_and_replaces_none(tmp_path: Path) -> None:
    path = tmp_path / "new.key"
    done = run_in_process("pseudonym", "new-key", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = path.read_bytes()
    assert len(bytes.fromhex(key.decode())) == 32
    again = run_in_process("pseudonym", "new-key", str(path))
    assert again.returncode == 1
    assert "exists, and a new key" in again.stderr
    assert path.read_bytes() == key
    assert run_in_process("pseudonym", "of", "ann", "--key", str(path)).stdout.startswith("ann  u-")


def test_names_on_the_command_line(key_file: Path) -> None:
    done = run_in_process("pseudonym", "of", "ann", "benjamin", FALLOW_AGENT_PSEUDONYM_KEY_FILE=str(key_file))
    assert done.stdout == f"ann       {by_hand('ann')}\nbenjamin  {by_hand('benjamin')}\n"
    assert run_in_process("pseudonym", "of", "ann").returncode == 2
    nobody = run_in_process("pseudonym", "of", "ann", " ", FALLOW_AGENT_PSEUDONYM_KEY_FILE=str(key_file))
    assert (nobody.returncode, nobody.stdout) == (2, "")


def test_a_table_keeps_all_but_the_names_of_users(tmp_path: Path, key_file: Path) -> None:
    table = tmp_path / "owners.csv"
    before = "user,ann,nlp,\naccount,ann,nlp,\nnamespace,ml,nlp,\n"
    text = f'\ufeffkind,name,team,organisation\n{before}user,CORP+ben,"Vision, 3D",Lab\n\nteam,nlp,,\n'
    table.write_text(text, encoding="utf-8")
    done = run_in_process("pseudonym", "table", str(table), "--key", str(key_file))
    assert list(csv.reader(io.StringIO(done.stdout))) == [
        ["kind", "name", "team", "organisation"],
        ["user", by_hand("ann"), "nlp", ""],
        ["account", "ann", "nlp", ""],
        ["namespace", "ml", "nlp", ""],
        ["user", by_hand("CORP\\ben"), "Vision, 3D", "Lab"],
        [],
        ["team", "nlp", "", ""],
    ]


def test_a_table_that_is_none_is_refused(tmp_path: Path, key_file: Path) -> None:
    table = tmp_path / "owners.csv"
    for text in (b"", b"name,team\nann,nlp\n", b"kind,name\nuser,\xff\n", b'kind,name\nuser,"ann\n'):
        table.write_bytes(text)
        done = run_in_process("pseudonym", "table", str(table), "--key", str(key_file))
        assert (done.returncode, done.stdout, str(table) in done.stderr) == (1, "", True)
        assert table.read_bytes() == text
