"""How the agent starts one of its own modules in a process of its own."""

from __future__ import annotations

import sys

_WITHOUT_FOLDER = "import sys, runpy; del sys.path[0], sys.argv[0]; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"


def module_command(module: str, *arguments: str) -> list[str]:
    """The command of this Python for a module; nothing is ever imported from the folder that the agent runs in.

    That is what `-P` is for, which Python 3.10 lacks: there a line of code takes the folder off the path before any
    module is looked for.
    """
    if sys.version_info >= (3, 11):
        return [sys.executable, "-P", "-m", module, *arguments]
    return [sys.executable, "-c", _WITHOUT_FOLDER, module, *arguments]
