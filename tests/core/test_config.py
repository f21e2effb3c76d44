"""Settings: where a value comes from, what is refused, and what the page says of them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from fallow.config import SETTINGS, Config, load
from fallow.errors import ConfigError, UsageError
from tests.core import pages

CONFIGURATION = pages.DOCS / "configuration.md"


def file_with(tmp_path: Path, text: str) -> str:
    path = tmp_path / "fallow.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def of_file(tmp_path: Path, text: str) -> Config:
    return load({}, file_with(tmp_path, text), {})


def from_environment(**variables: str) -> Config:
    return load({}, None, variables)


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    path = file_with(tmp_path, '[agent]\ninterval = "3s"\nprocess_interval = "4s"\npublish_every = "6s"\n')
    environment = {"FALLOW_AGENT_INTERVAL": "2s", "FALLOW_AGENT_PROCESS_INTERVAL": "5s"}
    config = load({"agent.interval": "1s", "agent.process_interval": None}, path, environment)
    keys = ("agent.interval", "agent.process_interval", "agent.publish_every", "agent.call_timeout")
    assert [config.integer(key) for key in keys] == [1_000, 5_000, 6_000, 5_000]
    assert [config.origins[key] for key in keys] == ["flag", "FALLOW_AGENT_PROCESS_INTERVAL", path, "default"]


def test_fallow_config_names_the_file_and_the_flag_beats_it(tmp_path: Path) -> None:
    named = file_with(tmp_path, '[lake]\npath = "/named"\n')
    other = tmp_path / "other.toml"
    other.write_text('[lake]\npath = "/other"\n')
    assert load({}, None, {"FALLOW_CONFIG": named}).text("lake.path") == "/named"
    assert load({}, str(other), {"FALLOW_CONFIG": named}).text("lake.path") == "/other"


@pytest.mark.skipif(Path("/etc/fallow").exists(), reason="this machine has a config of its own")
@pytest.mark.parametrize("environment", [{}, {"FALLOW_CONFIG": ""}])
def test_no_file_is_needed(environment: dict[str, str]) -> None:
    assert load({}, None, environment).origins["agent.interval"] == "default"


def test_numbers_in_the_file_may_stand_without_quotes(tmp_path: Path) -> None:
    config = of_file(tmp_path, "[ledger]\nlow_below_pct = 12.5\nheld_min_bytes = 1024\n")
    assert (config.number("ledger.low_below_pct"), config.integer("ledger.held_min_bytes")) == (12.5, 1024)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[agent]\nintervall = "1s"\n', "sets agent.intervall, which is not a setting; did you mean agent.interval?"),
        ('[agnet]\ninterval = "1s"\n', "sets agnet.interval, which is not a setting; did you mean agent.interval?"),
        ('[zzz]\nqqq = "1s"\n', "sets zzz.qqq, which is not a setting; `fallow settings` lists every setting"),
        ('lake = "/srv/lake"\n', "sets lake, which is not a setting; did you mean lake.path?"),
        ("[agent]\ninterval = [1]\n", "is neither text nor a number; write it as in docs/configuration.md"),
        ("[agent.interval]\nx = 1\n", "is neither text nor a number; write it as in docs/configuration.md"),
        ("[agent]\ninterval = 10\n", "'10' is not a duration; write a number and a unit"),
        ('[ledger]\nheld_min_bytes = "1 cup"\n', "'1 cup' is not a size; write a number and a unit"),
        ("[ledger]\nlow_below_pct = 0\n", "'0' is not above 0"),
        ("[ledger]\nlow_below_pct = nan\n", "'nan' is not above 0"),
        ('[ledger]\nlow_below_pct = "ten"\n', "'ten' is not a number"),
        ("[agent\n", "is not TOML"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        of_file(tmp_path, text)
    assert message in str(error.value)
    assert str(tmp_path / "fallow.toml") in str(error.value)


def test_a_file_that_is_no_text_not_there_or_a_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "fallow.toml"
    path.write_bytes(b'[lake]\npath = "\xff"\n')
    with pytest.raises(ConfigError, match="it is not UTF-8 text"):
        load({}, str(path), {})
    gone = r"cannot read the config file .*gone\.toml: No such file or directory; check the path"
    with pytest.raises(ConfigError, match=gone):
        from_environment(FALLOW_CONFIG=str(tmp_path / "gone.toml"))
    with pytest.raises(ConfigError, match=r"cannot read the config file .*: it is a folder; name a file"):
        load({}, str(tmp_path), {})


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("FALLOW_AGENT_INTERVALL", "FALLOW_AGENT_INTERVAL"),
        ("FALLOW_LAKE_PAHT", "FALLOW_LAKE_PATH"),
        ("FALLOW_LEDGER_IDLEAFTER", "FALLOW_LEDGER_IDLE_AFTER"),
    ],
)
def test_a_misspelt_variable_is_named(variable: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"the environment sets {variable}, which is not a setting") as error:
        from_environment(**{variable: "1s"})
    assert error.value.hint == f"did you mean {meant}?"


OF_KUBERNETES = """SERVICE_HOST SERVICE_PORT SERVICE_PORT_METRICS PORT PORT_9400_TCP PORT_9400_TCP_ADDR"""


def test_variables_that_others_set_are_passed_over() -> None:
    variables = [*(f"FALLOW_AGENT_{each}" for each in OF_KUBERNETES.split()), "FALLOW_VERSION"]
    assert from_environment(**dict.fromkeys(variables, "tcp://10.0.0.1:9400")).integer("agent.interval") == 10_000
    assert not [setting.variable for setting in SETTINGS if setting.variable.endswith(("_PORT", "_SERVICE_HOST"))]


def test_a_bad_value_says_which_source_it_is_from() -> None:
    with pytest.raises(ConfigError, match=r"agent\.interval \(from FALLOW_AGENT_INTERVAL\): 'x' is not a duration"):
        from_environment(FALLOW_AGENT_INTERVAL="x")
    with pytest.raises(UsageError, match="--process-interval: 'x' is not a duration") as error:
        load({"agent.process_interval": "x"}, None, {})
    assert not isinstance(error.value, ConfigError)


def test_a_setting_that_is_needed_says_the_three_ways_to_give_it() -> None:
    with pytest.raises(UsageError) as error:
        load({}, None, {}).require("lake.path", "--lake")
    assert str(error.value) == "--lake is missing; give --lake, set FALLOW_LAKE_PATH or lake.path in the config file"
    assert load({"lake.path": "/srv/lake"}, None, {}).require("lake.path", "--lake") == "/srv/lake"
    with pytest.raises(UsageError) as error:
        load({}, None, {}).require("mail.server")
    assert str(error.value) == "mail.server is missing; set FALLOW_MAIL_SERVER or mail.server in the config file"


def test_every_setting_has_a_meaning_and_a_default_that_parses() -> None:
    for setting in SETTINGS:
        setting.parse(setting.default)
        assert setting.meaning, setting.name
    assert len({setting.variable for setting in SETTINGS}) == len(SETTINGS)


def test_the_page_names_settings_with_their_defaults() -> None:
    defaults = {setting.name: setting.default for setting in SETTINGS}
    rows = re.findall(r"^\| (`[a-z].*?) \| (.*?) \|", CONFIGURATION.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) > 5
    for names, shown in rows:
        settings = re.findall(r"`(\S+?)`", names)
        assert set(settings) <= set(defaults), names
        assert set(re.findall(r"`(\S+?)`", shown)) <= {defaults[name] for name in settings}, names


def test_the_documented_file_is_valid(tmp_path: Path) -> None:
    page = CONFIGURATION.read_text(encoding="utf-8")
    example = page.split("```toml\n")[1].split("```")[0]
    assert tomllib.loads(example)
    assert of_file(tmp_path, example).text("lake.path") == "/srv/lake"
