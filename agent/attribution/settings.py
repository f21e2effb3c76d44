"""The settings of attribution."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fallow.errors import UsageError
from fallow.pseudonyms import Pseudonyms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fallow.config import Config


KUBELET_ADDRESS_REFUSED = (
    "kubernetes.kubelet_url is not a plain https address (it is not shown, because it may contain a password)",
    "use https and the node without user, password, query or fragment, such as https://NODE:10250",
)
"""The error and the hint for a refused address, without the address itself."""


def is_kubelet_address(url: str) -> bool:
    """Return whether an address is https with a host, and has no user, password, query or fragment."""
    from urllib.parse import urlsplit  # loaded here, so that hosts without Kubernetes do not load it

    if not url.isprintable() or any(character in url for character in " @?#\\"):
        return False
    try:
        address = urlsplit(url)
        return address.scheme == "https" and bool(address.hostname) and address.port != 0
    except ValueError:  # an invalid port or IPv6 address
        return False


@dataclass(frozen=True)
class AttributionSettings:
    """The sources to read and the facts to record; an empty text switches a source off.

    The defaults are for a plain host: /proc and scontrol, no kubelet, no command arguments.
    """

    proc: str = "/proc"
    command_arguments: bool = False
    sees_all_processes: str = "auto"
    pod_resources: str = ""
    kubelet_url: str = ""
    kubelet_token_file: str = ""
    kubelet_ca_file: str = ""
    scontrol: str = "scontrol"
    server_namespaces: tuple[str, ...] = ()
    """Namespaces whose pods with metrics may be asked for them."""
    pseudonyms: Pseudonyms | None = None
    """Replace users' names; None: rows contain the names."""

    @staticmethod
    def from_config(config: Config) -> AttributionSettings:
        """Return the settings of attribution, from `agent.*`, `kubernetes.*` and `slurm.scontrol`.

        Raises UsageError for a kubelet address that is unusable or has a secret, which messages would show, and for
        `serving.pod_namespaces` that are no namespaces or that no kubelet lists. Raises ConfigError where pseudonyms
        are switched on and there is no key.
        """
        kubelet_url = config.text("kubernetes.kubelet_url")
        if kubelet_url and not is_kubelet_address(kubelet_url):
            raise UsageError(*KUBELET_ADDRESS_REFUSED)
        return AttributionSettings(
            proc=config.text("agent.proc"),
            command_arguments=config.switch("agent.command_arguments"),
            sees_all_processes=config.text("agent.sees_all_processes"),
            pod_resources=config.text("kubernetes.pod_resources"),
            kubelet_url=kubelet_url,
            kubelet_token_file=config.text("kubernetes.kubelet_token_file"),
            kubelet_ca_file=config.text("kubernetes.kubelet_ca_file"),
            scontrol=config.text("slurm.scontrol"),
            server_namespaces=_namespaces(config.texts("serving.pod_namespaces"), kubelet_url),
            pseudonyms=Pseudonyms.from_config(config),
        )


_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1123, as Kubernetes has it


def _namespaces(names: Sequence[str], kubelet_url: str) -> tuple[str, ...]:
    for name in names:
        if not _NAMESPACE.fullmatch(name):
            raise UsageError(
                f"serving.pod_namespaces: '{name}' is not the name of a namespace",
                "name each namespace, without patterns",
            )
    if names and not kubelet_url:
        raise UsageError(
            "serving.pod_namespaces needs the kubelet's list of pods",
            "set kubernetes.kubelet_url, in the Helm chart agent.podLabels",
        )
    return tuple(names)
