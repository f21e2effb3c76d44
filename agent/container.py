"""Whether the agent runs in a container."""

from __future__ import annotations

import os
from pathlib import Path


def in_container() -> bool:
    """Whether this process runs in a container of docker, podman or Kubernetes."""
    marks = ("/.dockerenv", "/run/.containerenv")
    return "KUBERNETES_SERVICE_HOST" in os.environ or any(Path(mark).exists() for mark in marks)
