"""What attribution is told by the config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fallow.errors import UsageError
from fallow.pseudonyms import Pseudonyms

if TYPE_CHECKING:
    from fallow.config import Config


KUBELET_ADDRESS_REFUSED = (
    "kubernetes.kubelet_url is no plain https address (it is not shown, as it may hold a password)",
    "give https and the node without user, password, query or fragment, such as https://NODE:10250",
)
"""What is said of an address that is refused, and the hint; never the address."""


def is_kubelet_address(url: str) -> bool:
    """Whether an address is https with a host, and has neither user, password, query nor fragment."""
    from urllib.parse import urlsplit  # hosts without Kubernetes never pay for it

    if not url.isprintable() or any(character in url for character in " @?#\\"):
        return False
    try:
        address = urlsplit(url)
        return address.scheme == "https" and bool(address.hostname) and address.port != 0
    except ValueError:  # a port or an IPv6 address that is none
        return False


@dataclass(frozen=True)
class AttributionSettings:
    """Where to look and what to record; empty texts switch a source off.

    The defaults are those of a plain host: /proc and scontrol, no kubelet, no command arguments.
    """

    proc: str = "/proc"
    command_arguments: bool = False
    sees_all_processes: str = "auto"
    pod_resources: str = ""
    kubelet_url: str = ""
    kubelet_token_file: str = ""
    kubelet_ca_file: str = ""
    scontrol: str = "scontrol"
    pseudonyms: Pseudonyms | None = None
    """Stand for users' names; None: the names themselves do."""

    @staticmethod
    def from_config(config: Config) -> AttributionSettings:
        """The settings `agent.*`, `kubernetes.*` and `slurm.scontrol` that concern attribution.

        Raises UsageError for an address of the kubelet that could not be used, or would carry a secret into messages, and
        ConfigError where there shall be pseudonyms and no key can be had.
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
            pseudonyms=Pseudonyms.from_config(config),
        )
