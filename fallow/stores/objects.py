"""Object stores through obstore: Amazon S3 and compatible stores, Google Cloud Storage, Azure Blob Storage.

Credentials come from the environment or from the machine's role, never from a setting or an address. Connections use
TLS unless a variable allows plain HTTP. Only PUT, GET, HEAD, LIST and DELETE are used, because some stores support
neither conditional writes nor renames.

An error is one sentence with a remedy, never the store's text: it may contain signatures, account names and requests.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from fallow import __version__
from fallow.errors import FallowError, LakeError, UsageError
from fallow.given_file import CERTIFICATE_BYTES, given_bytes
from fallow.stores.model import WHOLE_BYTES, Stored, not_kept, too_large

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from obstore.store import ObjectStore as Client


class Fault(NamedTuple):
    """A regular expression for an error's text, the sentence for the fault (`{host}`: the store's), and the remedy."""

    signs: str
    what: str
    remedy: str


_FAULTS = (  # the first match counts
    Fault(r"NoSuchBucket|ContainerNotFound|The specified bucket does not exist",
          "the bucket does not exist", "create it, or check its name and the endpoint"),
    Fault(r"InvalidBucketName|InvalidResourceName",
          "the bucket's name is invalid", "check the name"),
    Fault(r"RequestTimeTooSkewed|RequestExpired|Request has expired",
          "this host's clock and the store's differ too much", "set this host's clock (NTP)"),
    Fault(r"AuthorizationHeaderMalformed|PermanentRedirect|IncorrectEndpoint|IllegalLocationConstraint|BareRedirect"
          r"|status 301",
          "the bucket belongs to another region", "set AWS_REGION to the bucket's region"),
    Fault(r"169\.254\.169\.254|metadata\.google\.internal|MissingAccount|MissingAccessKeyId|MissingSecretAccessKey",
          "there are no credentials",
          "set the store's variables (docs/storage.md), or give this host a role with write access"),
    Fault(r"169\.254\.170\.\d+|AssumeRoleWithWebIdentity|TokenRequest|token request",
          "this host's role returned no credentials", "check the role and its token"),
    Fault(r"InvalidAccessKey|Invalid Access Key|SignatureDoesNotMatch|ExpiredToken|InvalidToken|TokenRefreshRequired"
          r"|Authenticat|InvalidSecurity|DecodeCredentials|service account file|status 401",
          "the store does not accept the credentials", "check key, secret and token in the environment"),
    Fault(r"QuotaExceeded|InsufficientStorage|status 507",
          "the store or its quota is full", "free space in the store"),
    Fault(r"AccessDenied|AllAccessDisabled|AuthorizationPermissionMismatch|PermissionDenied|status 403",
          "access is denied", "check the secret, and that its owner may list, read, write and delete below the prefix"),
    Fault(r"dns error|failed to lookup address",
          "the name {host} cannot be resolved", "check the endpoint and this host's DNS"),
    Fault(r"InvalidContentType",
          "{host} does not use TLS", "check the endpoint's port, or use http:// if the store has no TLS"),
    Fault(r"UnknownIssuer|SelfSigned|CaUsedAsEndEntity",
          "the certificate of {host} is from an unknown CA",
          "set AWS_CA_BUNDLE or SSL_CERT_FILE to the CA's PEM file"),
    Fault(r"NotValidForName",
          "the certificate of {host} is for another name", "use a name in the certificate"),
    Fault(r"InvalidCertificate|HandshakeFailure|AlertReceived|InvalidMessage|PeerIncompatible|PeerMisbehaved",
          "no TLS connection to {host}", "check its certificate and this host's clock"),
    Fault(r"ConnectionRefused",
          "{host} refuses the connection", "check the endpoint and that the store runs"),
    Fault(r"NetworkUnreachable|HostUnreachable",
          "{host} cannot be reached", "check the network"),
    Fault(r"TimedOut|kind: Timeout",
          "{host} does not answer in time", "check the store and the network"),
    Fault(r"SlowDown|TooManyRequests|status 429|status 503",
          "the store asks for fewer requests", "no action is needed: the request is repeated"),
    Fault(r"status 5\d\d",
          "the store has an internal error", "check the store's log"),
    Fault(r"error sending request|IncompleteMessage|ConnectionReset|ConnectionAborted|BrokenPipe|UnexpectedEof"
          r"|response body",
          "the connection to {host} broke", "check the network and the store"),
    Fault(r"status 404",
          "the store has no such address", "check the bucket's name and the endpoint"),
)  # fmt: skip

_URL = re.compile(r"https?://(?:[^/\s@]*@)?([^/\s?,)@]+)[^\s,)]*")
_STATUS = re.compile(r"non-2xx status code: (?=\d{3})")
_NAMED = re.compile(r"status \d{3}|<Code>\w{1,60}</Code>")


@contextlib.contextmanager
def guarded(verb: str, url: str) -> Iterator[None]:
    """Convert errors of the library to a LakeError: cannot VERB URL, the reason, and the remedy.

    FileNotFoundError passes if only the object is missing, so that the caller can handle it.
    """
    try:
        yield
    except FallowError:
        raise
    except FileNotFoundError as error:
        # a store that is asked to take an object and does not know the address lacks the bucket
        if "NoSuchBucket" in str(error) or "performing PUT" in str(error):
            raise explained(verb, url, str(error)) from None
        raise FileNotFoundError(url) from None
    except Exception as error:  # noqa: BLE001  # the library's errors have no common base, and none may show its text
        raise explained(verb, url, f"{type(error).__name__}: {error}") from None


def explained(verb: str, url: str, text: str) -> LakeError:
    """Return the error for the text of a library's error."""
    named = _URL.search(text)
    host = named[1] if named is not None else "the store"  # an address with a signature in it is not in the text
    plain = _STATUS.sub("status ", _URL.sub(r"\1", text))  # names in an address are no signs of anything
    fault = next((fault for fault in _FAULTS if re.search(fault.signs, plain)), None)
    if fault is not None:
        return LakeError(f"cannot {verb} {url}: {fault.what.format(host=host)}", fault.remedy)
    codes = ", ".join(dict.fromkeys(re.sub(r"</?Code>", "", code) for code in _NAMED.findall(plain)))
    return LakeError(
        f"cannot {verb} {url}: the store failed ({codes or plain.partition(':')[0]})",
        "check the endpoint, the region and the store's own log",
    )


CONNECT_TIMEOUT_S = 5
REQUEST_TIMEOUT_S = 60
"""For a request; new files of the lake have a few megabytes at most."""

RETRIES = 4
RETRY_WITHIN_S = 30
"""A failed request is repeated after 0.2 to 5 s, for at most this long after the first attempt."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_PLAIN_HTTP = {"s3": "AWS_ALLOW_HTTP", "gs": "GOOGLE_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": (),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_MD5_LENGTH = 32


class ObjectStore:
    """A prefix in a bucket (Azure: a container). The library is loaded and the store contacted at the first request."""

    may_vanish = False

    def __init__(self, location: str) -> None:
        self._scheme, self._bucket, self._prefix = _parse(location)
        self.root = "/".join(filter(None, (f"{self._scheme}://{self._bucket}", self._prefix)))

    @property
    def _client(self) -> Client:
        return _client(self._scheme, self._bucket)

    def _path(self, key: str) -> str:
        return "/".join(filter(None, (self._prefix, key)))

    def make(self) -> None:
        """Do nothing: a prefix needs no creation, and the site creates the bucket."""

    def pinned(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: the name of a bucket always means the same bucket."""
        return contextlib.nullcontext()

    def exists(self) -> bool:
        """Return whether the prefix has objects; raises LakeError if the bucket is missing or cannot be listed."""
        return next(self.list(""), None) is not None

    def list(self, prefix: str) -> Iterator[Stored]:
        """Yield the objects below the prefix; a store lists only complete objects."""
        with guarded("list", self.url(prefix)):
            for batch in self._client.list(self._path(prefix) or None):
                for found in batch:
                    yield _stored(self._key(found), found)

    def list_between(self, prefix: str, first: str, last: str) -> Iterator[Stored]:
        """Yield the objects of these folders; one request names a thousand objects, over any number of folders."""
        end = len(prefix) + 1 + len(last)
        with guarded("list", self.url(prefix)):
            for batch in self._client.list(self._path(prefix), offset=self._path(f"{prefix}/{first}")):
                for found in batch:
                    key = self._key(found)
                    if key[:end] > f"{prefix}/{last}":
                        return
                    yield _stored(key, found)

    def _key(self, found: Any) -> str:
        path: str = found["path"]
        return path[len(self._prefix) + 1 :] if self._prefix else path

    def partials(self) -> Iterator[Stored]:
        """Yield nothing: a store lists only complete objects, and fallow does not upload in parts."""
        return iter(())

    def folders(self, prefix: str) -> tuple[str, ...]:
        with guarded("list", self.url(prefix)):
            found = self._client.list_with_delimiter(self._path(prefix))["common_prefixes"]
        return tuple(path.rstrip("/").rpartition("/")[2] for path in found)

    def look(self, key: str) -> Stored | None:
        """Return the object with the key; None if there is no such object."""
        with guarded("look at", self.url(key)):
            try:
                found = self._client.head(self._path(key))
            except FileNotFoundError:
                return None
        return _stored(key, found)

    def read_small(self, key: str, most_bytes: int) -> bytes | None:
        with guarded("read", self.url(key)):
            try:
                found = self._client.get(self._path(key))
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None
            if found.meta["size"] > most_bytes:
                raise too_large(self.url(key), most_bytes)
            return bytes(found.bytes())

    def share(self, key: str) -> None:
        """Do nothing: the bucket decides who may read an object."""

    def put(self, key: str, data: bytes, before: Callable[[], None] = lambda: None) -> None:
        """Store the object in one request, whose signature covers the checksum of the content."""
        before()
        with guarded("store", self.url(key)):
            self._client.put(self._path(key), data, use_multipart=False)

    def confirm(self, key: str, data: bytes) -> None:
        """Compare size and checksum; reads the object back if the store's checksum is not the MD5 of the content."""
        import hashlib  # loads OpenSSL, which the supervisor only naming a lake does not need

        found = self.look(key)
        if found is None or found.size_bytes != len(data):
            raise not_kept(self.url(key), len(data), found)
        tag = found.version.strip('"').lower()
        # stores without encryption keys of their own give the MD5; another value mostly has another length
        if len(tag) != _MD5_LENGTH or tag == hashlib.md5(data, usedforsecurity=False).hexdigest():
            return
        if read(self.url(key)) != data:
            raise LakeError(
                f"the store has other bytes for {self.url(key)}", "nothing is lost: the next attempt stores it again"
            )

    def delete(self, key: str) -> None:
        with guarded("remove", self.url(key)):
            try:
                self._client.delete(self._path(key))
            except FileNotFoundError:
                return

    def url(self, key: str) -> str:
        return f"{self.root}/{key}" if key else self.root


def _stored(key: str, found: Any) -> Stored:
    modified = found["last_modified"]
    return Stored(key, found["size"], found["e_tag"] or str(modified), modified_ms=int(1000 * modified.timestamp()))


def read(url: str, start: int = 0, end: int | None = None) -> bytes:
    """Return the bytes of an object or of a range; raises FileNotFoundError for a missing object, else LakeError."""
    scheme, bucket, path = _parse(url)
    with guarded("read", url):
        client = _client(scheme, bucket)
        if end is None:
            return bytes(client.get(path).bytes())
        return bytes(client.get_range(path, start=start, end=end))


def open_object(url: str, size_bytes: int) -> io.BytesIO | ObjectFile:
    """Return an object as a readable file: a small object is fetched at once, a large object by ranges."""
    return io.BytesIO(read(url)) if size_bytes <= WHOLE_BYTES else ObjectFile(url, size_bytes)


class ObjectFile(io.RawIOBase):
    """A large object, read by ranges; raises as `read` does."""

    def __init__(self, url: str, size_bytes: int) -> None:
        super().__init__()
        self._url = url
        self._size = size_bytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes, fewer than requested only at the end."""
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        data = read(self._url, self._at, end) if end > self._at else b""
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _parse(location: str) -> tuple[str, str, str]:
    """Return scheme, bucket and prefix; raises UsageError, which does not repeat the address because of secrets."""
    scheme, _, rest = location.partition("://")
    bucket, _, prefix = rest.partition("/")
    if "@" in bucket or "?" in bucket or "?" in prefix:
        raise UsageError(
            f"the address of the lake ({scheme}://...) contains credentials or options",
            "leave them out: they come from the environment or the machine's role (docs/storage.md)",
        )
    parts = [part for part in prefix.split("/") if part]
    if not _BUCKET.fullmatch(bucket) or not prefix.isprintable() or {".", ".."} & set(parts):
        raise UsageError(
            f"no bucket and prefix follow {scheme}:// in the lake's address", f"write {scheme}://bucket/prefix"
        )
    return scheme, bucket, "/".join(parts)


@functools.lru_cache(maxsize=4)
def _client(scheme: str, bucket: str) -> Client:
    """Return the connection pool for a bucket, with the environment's variables; only this function loads obstore."""
    _check_endpoint(scheme)
    with guarded("use", f"{scheme}://{bucket}"):
        from obstore.store import AzureStore, GCSStore, S3Store  # 15 MB that a local lake never needs

        options: Any = {
            "timeout": timedelta(seconds=REQUEST_TIMEOUT_S),
            "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
            "allow_http": os.environ.get(_PLAIN_HTTP[scheme], "").lower() in ("1", "true", "yes", "on"),
            "user_agent": f"fallow/{__version__}",
        }
        if authority := os.environ.get("AWS_CA_BUNDLE"):
            options["root_certificate"] = given_bytes("AWS_CA_BUNDLE", authority, CERTIFICATE_BYTES, UsageError)
            if b"-----BEGIN CERTIFICATE-----" not in options["root_certificate"]:
                raise UsageError(f"AWS_CA_BUNDLE {authority} has no certificate", "name a PEM file")
        retries: Any = {
            "max_retries": RETRIES,
            "retry_timeout": timedelta(seconds=RETRY_WITHIN_S),
            "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=5), "base": 2},
        }
        kind: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[scheme]
        make: Any = functools.partial(kind, bucket, client_options=options, retry_config=retries)
        client: Client = _with_plain_deletes(make) if scheme == "s3" else make()
        return client


def _with_plain_deletes(make: Callable[..., Client]) -> Client:
    """Send a DELETE for each object: for many at once, Ceph requires rights to the whole bucket."""
    from obstore.exceptions import UnknownConfigurationKeyError

    try:
        return make(disable_bulk_delete=True)
    except UnknownConfigurationKeyError:  # an older obstore, which sends no others
        return make()


def _check_endpoint(scheme: str) -> None:
    """Raise UsageError for a wrong endpoint, which would end the process inside the library; never repeats its text."""
    variable = next((name for name in _ENDPOINTS[scheme] if os.environ.get(name)), None)
    if variable is None:
        return
    endpoint = os.environ[variable]
    try:
        parts = urlsplit(endpoint)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not endpoint.isprintable() or " " in endpoint:
        raise UsageError(f"{variable} is not an address", "write it as https://host:port")
    if parts.username is not None or parts.query:
        raise UsageError(f"{variable} contains credentials", "set the variables for credentials instead")
    if parts.scheme == "http" and os.environ.get(_PLAIN_HTTP[scheme], "").lower() not in ("1", "true", "yes", "on"):
        raise UsageError(
            f"{variable} names {parts.hostname} without TLS",
            f"use https://, or set {_PLAIN_HTTP[scheme]}=true if the network is trusted",
        )
