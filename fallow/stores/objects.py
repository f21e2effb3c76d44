"""Object stores: Amazon S3 and what speaks its language, Google Cloud Storage, Azure Blob Storage, all through obstore.

Credentials come from the environment or from the machine's own role, never from a setting or an address. Connections use
TLS unless the environment allows plain HTTP by name. Only plain PUT, GET, HEAD, LIST and DELETE are used: some stores
know neither conditional writes nor renames.

What an object store's error means and what to do about it is one sentence that never repeats the store's own text. That text
may hold signatures, account names and whole requests, so only what is recognised in it is said.
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
    """What an error's text says when this has happened, the sentence for it (`{host}`: the store's), and what to do."""

    signs: str
    what: str
    remedy: str


_FAULTS = (  # the first that fits wins
    Fault(r"NoSuchBucket|ContainerNotFound|The specified bucket does not exist",
          "the bucket does not exist", "create it, or check its name and the endpoint"),
    Fault(r"InvalidBucketName|InvalidResourceName",
          "the store finds the bucket's name invalid", "check the name"),
    Fault(r"RequestTimeTooSkewed|RequestExpired|Request has expired",
          "this host's clock and the store's differ too much", "set this host's clock (NTP)"),
    Fault(r"AuthorizationHeaderMalformed|PermanentRedirect|IncorrectEndpoint|IllegalLocationConstraint|BareRedirect|status 301",
          "the bucket belongs to another region", "set AWS_REGION to the bucket's region"),
    Fault(r"169\.254\.169\.254|metadata\.google\.internal|MissingAccount|MissingAccessKeyId|MissingSecretAccessKey",
          "there are no credentials", "set the store's variables (docs/storage.md), or give this host a role that may write"),
    Fault(r"169\.254\.170\.\d+|AssumeRoleWithWebIdentity|TokenRequest|token request",
          "no credentials could be had from this host's role", "check the role and its token"),
    Fault(r"InvalidAccessKey|Invalid Access Key|SignatureDoesNotMatch|ExpiredToken|InvalidToken|TokenRefreshRequired|Authenticat"
          r"|InvalidSecurity|DecodeCredentials|service account file|status 401",
          "the store does not accept the credentials", "check key, secret and token in the environment"),
    Fault(r"QuotaExceeded|InsufficientStorage|status 507",
          "the store or its quota is full", "make room there"),
    Fault(r"AccessDenied|AllAccessDisabled|AuthorizationPermissionMismatch|PermissionDenied|status 403",
          "access is denied", "check the secret, and that its owner may list, read, write and delete below the prefix"),
    Fault(r"dns error|failed to lookup address",
          "the name of {host} cannot be resolved", "check the endpoint and this host's name service"),
    Fault(r"InvalidContentType",
          "{host} does not speak TLS", "check the endpoint's port, or name it with http:// if it is meant to be without"),
    Fault(r"UnknownIssuer|SelfSigned|CaUsedAsEndEntity",
          "the certificate of {host} is from an authority that is not known here",
          "name the authority's PEM file by AWS_CA_BUNDLE or SSL_CERT_FILE"),
    Fault(r"NotValidForName",
          "the certificate of {host} is for another name", "use the name that the certificate has"),
    Fault(r"InvalidCertificate|HandshakeFailure|AlertReceived|InvalidMessage|PeerIncompatible|PeerMisbehaved",
          "no TLS connection to {host}", "check its certificate and this host's clock"),
    Fault(r"ConnectionRefused",
          "{host} refuses the connection", "check the endpoint and that the store runs"),
    Fault(r"NetworkUnreachable|HostUnreachable",
          "{host} cannot be reached", "check the network"),
    Fault(r"TimedOut|kind: Timeout",
          "{host} does not answer in time", "check the store and the network"),
    Fault(r"SlowDown|TooManyRequests|status 429|status 503",
          "the store asks for fewer requests", "nothing to do: it is tried again"),
    Fault(r"status 5\d\d",
          "the store has an internal error", "look at the store's own log"),
    Fault(r"error sending request|IncompleteMessage|ConnectionReset|ConnectionAborted|BrokenPipe|UnexpectedEof|response body",
          "the connection to {host} broke", "check the network and the store"),
    Fault(r"status 404",
          "the store does not know the address", "check the bucket's name and the endpoint"),
)  # fmt: skip

_URL = re.compile(r"https?://(?:[^/\s@]*@)?([^/\s?,)@]+)[^\s,)]*")
_STATUS = re.compile(r"non-2xx status code: (?=\d{3})")
_NAMED = re.compile(r"status \d{3}|<Code>\w{1,60}</Code>")


@contextlib.contextmanager
def guarded(verb: str, url: str) -> Iterator[None]:
    """The library's errors as one LakeError: cannot VERB URL, why, and what to do.

    FileNotFoundError passes where the object alone is missing, so that a caller may take it for an answer.
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
    """The sentence for an error of the library, given its text."""
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
"""For a whole request; files of the lake are megabytes at most while they are fresh."""

RETRIES = 4
RETRY_WITHIN_S = 30
"""A request that failed is sent again after 0.2 to 5 s, but no more once so long has passed since the first time."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_PLAIN_HTTP = {"s3": "AWS_ALLOW_HTTP", "gs": "GOOGLE_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": (),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_MD5_LENGTH = 32


class ObjectStore:
    """A prefix in a bucket (Azure: a container). Nothing is loaded or contacted before the first verb."""

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
        """A prefix is there with its first object, and a bucket is the site's to make."""

    def pinned(self) -> contextlib.AbstractContextManager[None]:
        """A bucket's name is the bucket."""
        return contextlib.nullcontext()

    def exists(self) -> bool:
        """Whether anything lies below the prefix; LakeError where the bucket is missing or may not be listed."""
        return next(self.list(""), None) is not None

    def list(self, prefix: str) -> Iterator[Stored]:
        """Every object below the prefix: a store shows no object before it is whole."""
        with guarded("list", self.url(prefix)):
            for batch in self._client.list(self._path(prefix) or None):
                for found in batch:
                    key = found["path"][len(self._prefix) + 1 :] if self._prefix else found["path"]
                    yield _stored(key, found)

    def partials(self) -> Iterator[Stored]:
        """None: a store shows no object before it is whole, and nothing is stored in parts."""
        return iter(())

    def folders(self, prefix: str) -> tuple[str, ...]:
        with guarded("list", self.url(prefix)):
            found = self._client.list_with_delimiter(self._path(prefix))["common_prefixes"]
        return tuple(path.rstrip("/").rpartition("/")[2] for path in found)

    def look(self, key: str) -> Stored | None:
        """The object under the key; None where there is none."""
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
        """Who may read an object is the bucket's business."""

    def put(self, key: str, data: bytes, before: Callable[[], None] = lambda: None) -> None:
        """Stores the object by one request, whose signature covers the content's checksum."""
        before()
        with guarded("store", self.url(key)):
            self._client.put(self._path(key), data, use_multipart=False)

    def confirm(self, key: str, data: bytes) -> None:
        """Compares size and checksum; reads the object back where the store's checksum is not the content's MD5."""
        import hashlib  # loads OpenSSL, which the supervisor only naming a lake does not need

        found = self.look(key)
        if found is None or found.size_bytes != len(data):
            raise not_kept(self.url(key), len(data), found)
        tag = found.version.strip('"').lower()
        # stores without encryption keys of their own give the MD5; where it is something else, its length mostly differs
        if len(tag) != _MD5_LENGTH or tag == hashlib.md5(data, usedforsecurity=False).hexdigest():
            return
        if read(self.url(key)) != data:
            raise LakeError(
                f"the store changed {self.url(key)} on the way", "nothing is lost: the next try stores it again"
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
    """An object's bytes, all or those of a range; FileNotFoundError where it is gone, LakeError for anything else."""
    scheme, bucket, path = _parse(url)
    with guarded("read", url):
        client = _client(scheme, bucket)
        if end is None:
            return bytes(client.get(path).bytes())
        return bytes(client.get_range(path, start=start, end=end))


def open_object(url: str, size_bytes: int) -> io.BytesIO | ObjectFile:
    """An object as a file to read from: a small one is fetched at once, of a large one what is asked for."""
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
        """The next bytes: all that were asked for, fewer only at the end."""
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        data = read(self._url, self._at, end) if end > self._at else b""
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _parse(location: str) -> tuple[str, str, str]:
    """Scheme, bucket and prefix; a wrong address is not repeated in the UsageError, for it may hold a secret."""
    scheme, _, rest = location.partition("://")
    bucket, _, prefix = rest.partition("/")
    if "@" in bucket or "?" in bucket or "?" in prefix:
        raise UsageError(
            f"the address of the lake ({scheme}://...) carries credentials or options",
            "leave them out: they are taken from the environment or the machine's role (docs/storage.md)",
        )
    parts = [part for part in prefix.split("/") if part]
    if not _BUCKET.fullmatch(bucket) or not prefix.isprintable() or {".", ".."} & set(parts):
        raise UsageError(
            f"no bucket and prefix follow {scheme}:// in the lake's address", f"write {scheme}://bucket/prefix"
        )
    return scheme, bucket, "/".join(parts)


@functools.lru_cache(maxsize=4)
def _client(scheme: str, bucket: str) -> Client:
    """The connection pool for a bucket, with what the environment says; obstore is loaded here and nowhere else."""
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
            options["root_certificate"] = _certificates(authority)
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
    """One DELETE an object: for many at once, Ceph asks for rights to the whole bucket, and not to what is deleted."""
    from obstore.exceptions import UnknownConfigurationKeyError

    try:
        return make(disable_bulk_delete=True)
    except UnknownConfigurationKeyError:  # an older obstore, which sends no others
        return make()


def _check_endpoint(scheme: str) -> None:
    """An endpoint that is no address would end the process inside the library; its text may hold a password."""
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
        raise UsageError(f"{variable} carries credentials", "give them by the variables that are meant for them")
    if parts.scheme == "http" and os.environ.get(_PLAIN_HTTP[scheme], "").lower() not in ("1", "true", "yes", "on"):
        raise UsageError(
            f"{variable} names {parts.hostname} without TLS",
            f"use https://, or set {_PLAIN_HTTP[scheme]}=true where the way to it is safe",
        )


def _certificates(file: str) -> bytes:
    found = given_bytes("AWS_CA_BUNDLE", file, CERTIFICATE_BYTES, UsageError)
    if b"-----BEGIN CERTIFICATE-----" not in found:
        raise UsageError(f"AWS_CA_BUNDLE {file} holds no certificate", "name a PEM file")
    return found
