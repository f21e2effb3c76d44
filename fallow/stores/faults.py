"""What an object store's error means and what to do about it, in one sentence that never repeats the store's own text.

That text may hold signatures, account names and whole requests, so only what is recognised in it is said.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, NamedTuple

from fallow.errors import FallowError, LakeError

if TYPE_CHECKING:
    from collections.abc import Iterator


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
