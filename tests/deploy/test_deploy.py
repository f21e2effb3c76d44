"""The example configuration, and what the page about deploying promises."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from analytics.scraped.server.address import TOKEN_VARIABLE
from fallow import config

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PAGE = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")


def test_the_example_configuration_loads_and_so_does_what_it_leaves_commented_out(tmp_path: Path) -> None:
    loaded = config.load({}, str(DEPLOY / "fallow.toml"), {})
    assert loaded.text("lake.path") == "", "an agent that nobody has set up publishes nowhere"
    assert loaded.integer("agent.interval") == 10_000
    text = (DEPLOY / "fallow.toml").read_text(encoding="utf-8")
    file = tmp_path / "fallow.toml"
    file.write_text(re.sub(r"^# (?=\w+ = |\[)", "", text, flags=re.MULTILINE), encoding="utf-8")
    loaded = config.load({}, str(file), {})
    set_there = {name for name, origin in loaded.origins.items() if origin == str(file)}
    assert loaded.text("lake.path") == "/srv/fallow/lake"
    assert {"metrics.listen", "serving.endpoints", "kubernetes.pod_resources", "agent.pool"} <= set_there


# The page names these as folders: a tool prescribes the files' names, or docs/storage.md has one for each store.
BY_FOLDER = ("deploy/ansible/roles/fallow_agent/", "deploy/packages/deb/", "deploy/store-policies/")


def test_every_file_of_deploy_is_on_the_page_and_every_path_of_it_there() -> None:
    assert [folder for folder in BY_FOLDER if folder not in PAGE] == []
    files = [
        path for path in DEPLOY.rglob("*") if path.is_file() and path.parent.name not in ("__pycache__", "kubernetes")
    ]
    own = [path for path in files if "helm" not in path.relative_to(DEPLOY).parts[:-2]]
    named = [path for path in own if not str(path.relative_to(ROOT)).startswith(BY_FOLDER)]
    assert [str(path.relative_to(ROOT)) for path in named if path.name not in PAGE] == []
    paths = set(re.findall(r"\bdeploy/[\w./-]*\w", PAGE))
    assert paths
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_every_setting_that_the_page_names_is_one() -> None:
    sections = {setting.section for setting in config.SETTINGS}
    named = {name for name in re.findall(r"`([a-z]+\.[a-z_]+)`", PAGE) if name.split(".")[0] in sections}
    assert named
    values = yaml.safe_load((DEPLOY / "helm" / "fallow" / "values.yaml").read_text(encoding="utf-8"))
    of_the_chart = {f"{part}.{key}" for part, keys in values.items() if isinstance(keys, dict) for key in keys}
    assert named <= {setting.name for setting in config.SETTINGS} | of_the_chart
    variables = set(re.findall(r"\bFALLOW_[A-Z]+_[A-Z_]+\b", PAGE))
    assert variables <= {setting.variable for setting in config.SETTINGS} | {TOKEN_VARIABLE}
