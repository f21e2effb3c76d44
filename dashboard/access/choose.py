"""Choice of the kind of access, from the settings."""

from __future__ import annotations

import secrets

from dashboard.access import LOCAL, Access
from dashboard.access.directory import Directory
from dashboard.access.hosts import AllowedHosts
from dashboard.access.local import Insecure
from dashboard.access.proxy import Proxy
from dashboard.access.session_store import store_in
from dashboard.access.tokens import WithTokens
from fallow.clock import Clock, SystemClock
from fallow.config import Config
from fallow.errors import ConfigError, MissingExtraError, UsageError
from fallow.given_file import SECRET_BYTES, authorities, given_text
from fallow.keys import read_key

_RANDOM_KEY = secrets.token_bytes(32)
"""The key of this start. All worker processes share it, also after a reload."""


def access_of(settings: Config, *, address: str, local: bool, insecure: bool, clock: Clock | None = None) -> Access:
    """Return the access that the settings choose for an address; `local`: only this machine reaches the address.

    Raises UsageError where no setting identifies the readers, and ConfigError for settings that cannot be used.
    """
    proxy, oidc = _is_chosen(settings, "proxy_header", "proxies"), _is_chosen(settings, "oidc_issuer", "oidc_client_id")
    if proxy + oidc + insecure > 1:
        raise UsageError(
            "--insecure, dashboard.proxy_header and dashboard.oidc_issuer exclude one another", "keep one of them"
        )
    hosts = AllowedHosts(settings.texts("dashboard.hosts"))
    if insecure:
        return Insecure(settings.text("dashboard.insecure_role"), hosts)
    if not proxy and not oidc and local:
        if settings.text("dashboard.people"):
            raise ConfigError(
                "dashboard.people is set, but no sign-in identifies readers: everybody would be an admin",
                "set dashboard.proxy_header or dashboard.oidc_issuer too, or remove dashboard.people"
                " (docs/dashboard.md)",
            )
        return LOCAL
    if not proxy and not oidc:
        raise UsageError(
            f"--host {address} would let others in, and no sign-in identifies them",
            "set dashboard.proxy_header or dashboard.oidc_issuer (docs/dashboard.md), give --insecure to show"
            " everything to everybody, or serve on 127.0.0.1 and reach it through `ssh -L 8050:127.0.0.1:8050 HOST`",
        )
    people = Directory(settings.text("dashboard.people"), settings.text("dashboard.default_role"))
    if proxy:
        proxied = Proxy(settings.text("dashboard.proxy_header"), settings.texts("dashboard.proxies"), hosts, people)
        return WithTokens(proxied, people, hosts)
    if not local and not settings.texts("dashboard.hosts"):
        raise ConfigError(
            "dashboard.hosts is missing",
            "list the host names to which the provider may send people back, as browsers see them",
        )
    return WithTokens(_sign_in(settings, hosts, people, clock or SystemClock()), people, hosts)


def _is_chosen(settings: Config, *keys: str) -> bool:
    """Return whether all these settings are given; raises ConfigError where only some of them are."""
    given = [key for key in keys if settings.text(f"dashboard.{key}")]
    if given and len(given) < len(keys):
        [missing] = set(keys) - set(given)
        raise ConfigError(f"dashboard.{given[0]} is set and dashboard.{missing} is not", "set both or neither")
    return bool(given)


def _sign_in(settings: Config, hosts: AllowedHosts, people: Directory, clock: Clock) -> Access:
    try:
        from dashboard.access.oidc import SignIn  # an extra of its own
        from dashboard.access.provider import Provider
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"signing in needs the package {error.name}, which is not installed",
            "install it with: pip install 'fallow[oidc]'",
        ) from error
    secret_file, key_file = (
        settings.text("dashboard.oidc_client_secret_file"),
        settings.text("dashboard.session_key_file"),
    )
    if ca_file := settings.text("dashboard.oidc_ca_file"):
        authorities("dashboard.oidc_ca_file", ca_file)
    provider = Provider(
        settings.text("dashboard.oidc_issuer"),
        settings.text("dashboard.oidc_client_id"),
        given_text("dashboard.oidc_client_secret_file", secret_file, SECRET_BYTES).strip() if secret_file else None,
        settings.text("dashboard.oidc_scopes"),
        ca_file,
    )
    return SignIn(
        provider,
        hosts,
        people,
        store_in(settings.text("dashboard.state")),
        key=read_key(key_file, "dashboard.session_key_file") if key_file else _RANDOM_KEY,
        lasts_ms=settings.integer("dashboard.session"),
        idle_ms=settings.integer("dashboard.session_idle"),
        claims=(settings.text("dashboard.oidc_user_claim"), settings.text("dashboard.oidc_groups_claim")),
        clock=clock,
    )
