"""Pods of this node from the kubelet's own address: names, labels, container ids and the address of their metrics.

It runs as a separate program (`python -m agent.attribution.pods`), because the answer is megabytes of JSON and TLS
takes 9 MiB: the memory is free again when it ends. It prints one JSON list. It sends the token only over TLS.
"""

from __future__ import annotations

import json
import re
import ssl
import sys
import time
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from agent.attribution.settings import KUBELET_ADDRESS_REFUSED, is_kubelet_address
from fallow.errors import ConfigError
from fallow.given_file import SECRET_BYTES, authorities, given_bytes

_TIMEOUT_S = 5.0
_MOST_BYTES = 64 * 2**20
_READ_BYTES = 1 << 20
_TOKEN = re.compile(rb"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750, section 2.1


class PodsError(Exception):
    """The kubelet did not return its pods; the message gives the reason and the remedy."""


def fetch_pods(url: str, token_file: str, ca_file: str) -> list[dict[str, Any]]:
    """Return pods as `parse_pods` does; raises PodsError."""
    address = urlsplit(url) if is_kubelet_address(url) else None
    if address is None or not address.hostname:
        raise PodsError("; ".join(KUBELET_ADDRESS_REFUSED))
    headers = {"Accept": "application/json"} | _authorization(token_file)
    try:
        context = authorities("kubernetes.kubelet_ca_file", ca_file)
    except ConfigError as error:
        raise PodsError(str(error)) from error
    connection = HTTPSConnection(address.hostname, address.port or 10250, timeout=_TIMEOUT_S, context=context)
    try:
        connection.request("GET", f"{address.path.rstrip('/')}/pods", headers=headers)
        return parse_pods(json.loads(_whole(connection.getresponse())))
    except ssl.SSLCertVerificationError as error:
        raise PodsError(
            f"the kubelet's certificate is not trusted: {error.verify_message}; name the authority that signed it "
            "in kubernetes.kubelet_ca_file, and the node as the certificate does"
        ) from error
    except (OSError, HTTPException, ValueError) as error:
        raise PodsError(f"the kubelet at {url} cannot be queried: {str(error) or type(error).__name__}") from error
    finally:
        connection.close()


def _authorization(token_file: str) -> dict[str, str]:
    """Return the header with the token. The file is read every time, because Kubernetes replaces it every hour."""
    if not token_file:
        return {}
    try:
        token = given_bytes("kubernetes.kubelet_token_file", token_file, SECRET_BYTES).strip()
    except ConfigError as error:
        raise PodsError(str(error)) from error
    # checked here, because an error about a bad header would quote the token
    if not _TOKEN.fullmatch(token):
        raise PodsError(f"{token_file} contains no bearer token; check kubernetes.kubelet_token_file")
    return {"Authorization": f"Bearer {token.decode()}"}


def _whole(response: HTTPResponse) -> bytes:
    if response.status in (401, 403):
        raise PodsError(
            f"the kubelet refuses the token ({response.status}); allow `get` on `nodes/pods` "
            "(before Kubernetes 1.33 on `nodes/proxy`)"
        )
    if response.status != 200:
        raise PodsError(f"the kubelet answered with status {response.status}")
    deadline_s = time.monotonic() + _TIMEOUT_S
    body = bytearray()
    while part := response.read(_READ_BYTES):
        body += part
        if len(body) > _MOST_BYTES or time.monotonic() > deadline_s:
            raise PodsError(f"the kubelet's list of pods is longer than {_MOST_BYTES} bytes or {_TIMEOUT_S:g} s")
    return bytes(body)


def parse_pods(pod_list: Any) -> list[dict[str, Any]]:
    """Return namespace, name, uid, labels, containers (id -> name), `metrics` (`metrics_url`) of a v1 PodList's pods.

    Raises ValueError where the answer is not a PodList.
    """
    try:
        return [_pod(item) for item in pod_list["items"] or ()]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("its answer is not a list of pods") from error


def _pod(item: dict[str, Any]) -> dict[str, Any]:
    metadata, status = item["metadata"], item.get("status") or {}
    kinds = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    return {
        "namespace": str(metadata["namespace"]),
        "pod": str(metadata["name"]),
        "uid": str(metadata["uid"]),
        "labels": {str(name): str(value) for name, value in (metadata.get("labels") or {}).items()},
        "containers": {
            str(each["containerID"]): str(each["name"])
            for kind in kinds
            for each in status.get(kind) or ()
            if each.get("containerID")
        },
        "metrics": metrics_url(item),
    }


def metrics_url(item: dict[str, Any]) -> str | None:
    """Return the address of a running pod's metrics; None where no port is clear, or the pod refuses to be scraped.

    The port is that of the annotation `prometheus.io/port`, else the only declared one with `metrics` in its name, else
    the only declared one. A pod in the host's network may name only a declared port, because the others are the host's.
    """
    spec, status = item.get("spec") or {}, item.get("status") or {}
    annotations = item["metadata"].get("annotations") or {}
    scrape, scheme, path, port = (
        str(annotations.get(f"prometheus.io/{key}") or default)
        for key, default in (("scrape", ""), ("scheme", "http"), ("path", "/metrics"), ("port", ""))
    )
    declared = {
        str(each.get("containerPort")): str(each.get("name") or "")
        for container in spec.get("containers") or ()
        for each in container.get("ports") or ()
        if each.get("protocol", "TCP") == "TCP"
    }
    named = [each for each, name in declared.items() if "metrics" in name]
    clear = named or list(declared)
    port = port or (clear[0] if len(clear) == 1 else "")
    if (
        status.get("phase") != "Running"
        or scrape.lower() == "false"
        or (spec.get("hostNetwork") and port not in declared)
    ):
        return None
    try:
        address = ip_address(str(status.get("podIP")))
    except ValueError:
        return None
    address = getattr(address, "ipv4_mapped", None) or address  # ::ffff:127.0.0.1 is a loopback address too
    if not port or address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        return None
    return f"{scheme}://{f'[{address}]' if address.version == 6 else address}:{port}/{path.removeprefix('/')}"


def main() -> int:
    """Print the pods, or the error on standard error."""
    url, token_file, ca_file = sys.argv[1:]
    try:
        print(json.dumps(fetch_pods(url, token_file, ca_file)))
    except PodsError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
