"""The command in the process of the test, which has loaded all that it needs."""

from __future__ import annotations

import io
import os
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

from fallow.cli import main
from tests.conftest import clean_environment


def run_in_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What `fallow` prints and its exit code, in an environment without any setting of fallow's but those given."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with (
        patch.dict(os.environ, clean_environment(environment), clear=True),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        code = main(list(arguments))
    printed, said = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(["fallow", *arguments], code, printed, said)
