"""Where /metrics listens and who may read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fallow.errors import ConfigError
from fallow.listen_address import is_of_this_host, parse_listen

if TYPE_CHECKING:
    from fallow.config import Config


@dataclass(frozen=True)
class MetricsSettings:
    host: str
    port: int
    """0 lets the system choose."""
    token_file: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    health_only: bool = False
    """Answers /healthz and nothing else; without token and TLS, which a kubelet does not have."""

    @classmethod
    def from_config(cls, config: Config) -> MetricsSettings:
        """The settings; raises ConfigError for an address that is none and for half a TLS setting."""
        host, port = parse_listen(config.text("metrics.listen"), "metrics.listen")
        certificate, key = config.text("metrics.tls_certificate"), config.text("metrics.tls_key")
        if bool(certificate) != bool(key):
            missing = "metrics.tls_key" if certificate else "metrics.tls_certificate"
            raise ConfigError(f"{missing} is not set", "TLS needs both metrics.tls_certificate and metrics.tls_key")
        return cls(host, port, config.text("metrics.token_file"), certificate, key)

    @classmethod
    def for_health(cls, config: Config) -> MetricsSettings:
        """The settings of the address for /healthz alone; raises ConfigError for one that is none."""
        return cls(*parse_listen(config.text("metrics.health_listen"), "metrics.health_listen"), health_only=True)

    @property
    def setting(self) -> str:
        """The setting that the address comes from."""
        return "metrics.health_listen" if self.health_only else "metrics.listen"

    @property
    def what(self) -> str:
        return "/healthz" if self.health_only else "/metrics and /healthz"

    @property
    def loopback(self) -> bool:
        return is_of_this_host(self.host)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls_certificate else 'http'}://{host}:{self.port}"
