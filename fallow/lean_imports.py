"""Import a module without one that it loads and fallow does not need, to save memory on every GPU host."""

from __future__ import annotations

import importlib
import sys
import types


class _StandIn(types.ModuleType):
    """Has the given members; any other attribute loads the real module."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # the import system asks for them
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def import_without(module: str, spared: str, **members: object) -> None:
    """Import `module`; meanwhile a stand-in with `members` replaces `spared`. Later imports get the real module."""
    if module in sys.modules or spared in sys.modules:
        return
    stand_in = _StandIn(spared)
    vars(stand_in).update(members)
    sys.modules[spared] = stand_in
    try:
        importlib.import_module(module)
    finally:
        if sys.modules.get(spared) is stand_in:
            del sys.modules[spared]
