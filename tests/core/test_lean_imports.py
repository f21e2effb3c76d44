"""A module that is imported without another one works, also where it needs the other after all."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from fallow.lean_imports import import_without

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_spared_module_is_loaded_only_when_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spared_module.py").write_text("NAME = 'real'\n\ndef given():\n    return NAME\n")
    (tmp_path / "leaning_module.py").write_text("import spared_module\n\nMADE = spared_module.given()\n")
    monkeypatch.syspath_prepend(tmp_path)
    import_without("leaning_module", "spared_module", given=lambda: "stand-in")
    leaning = sys.modules.pop("leaning_module")
    assert leaning.MADE == "stand-in"
    assert "spared_module" not in sys.modules
    assert leaning.spared_module.NAME == "real"
    assert sys.modules.pop("spared_module").given() == "real"
