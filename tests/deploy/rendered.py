"""What helm makes of the chart, as documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kubernetes_validate
import yaml

from tests.conftest import REPOSITORY
from tests.deploy import kube_tools

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

CHART = REPOSITORY / "deploy" / "helm" / "fallow"
VERSIONS = ("1.29", kubernetes_validate.latest_version())

Document = dict[str, Any]


class RenderError(Exception):
    """What helm said instead."""


def charted(folder: Path, values: Document, namespace: str = "fallow") -> list[Document]:
    """The chart with these values over its own; raises RenderError where it is refused."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    done = kube_tools.run("helm", "template", "fallow", CHART, "--namespace", namespace, "--values", file)
    if done.returncode != 0:
        raise RenderError(done.stderr)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def validate(documents: Iterable[Document], version: str = VERSIONS[-1]) -> None:
    """Holds every document against the schemas of Kubernetes; those of operators have their own."""
    for document in documents:
        if "." not in document["apiVersion"].partition("/")[0] or ".k8s.io/" in document["apiVersion"]:
            kubernetes_validate.validate(document, version, strict=True)


def named(documents: Iterable[Document]) -> dict[tuple[str, str], Document]:
    """The documents by kind and name."""
    found = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    assert len(found) == len([*documents]), "two of one name"
    return found
