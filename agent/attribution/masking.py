"""Command lines with their secrets masked.

In doubt a word is masked: losing a harmless word costs less than keeping a password. The document docs/attribution.md
lists the secrets that no rule can recognise, such as a single word that looks like any other word.
"""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING

from agent.attribution.proc import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# one part of a name: `apiKey`, `API_KEY` and `api-key` have the same two parts
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_TOKENIZE = re.compile(r"tokeni[sz]")

_ANYWHERE = re.compile(
    "passw|passphrase|passcode|secret|credential|bearer|token|"
    "(?:api|access|private|auth|signing|encryption|decryption|shared|account|license|licence|master|session|service)key"
)
_WHOLE_PART = frozenset(
    {
        "auth",
        "authorization",
        "oauth",
        "pass",
        "pwd",
        "pw",
        "psw",
        "cred",
        "creds",
        "jwt",
        "cookie",
        "cookies",
        "pat",
        "sig",
    }
    | {"signature", "sas", "otp"}
)
_LAST_PART = frozenset({"key", "keys"})


class Secrecy(enum.Enum):
    NONE = 0
    UNLESS_NUMBER = 1
    ALWAYS = 2


def secrecy(name: str) -> Secrecy:
    """Return whether a name introduces a secret; `tokens` usually introduces a count (`--max-tokens 512`)."""
    parts = [part.lower() for part in _PART.findall(name)]
    joined = _TOKENIZE.sub("", "".join(parts))
    if "tokens" in parts and not _ANYWHERE.search(joined.replace("tokens", "")):
        return Secrecy.UNLESS_NUMBER
    secret = (
        _ANYWHERE.search(joined) is not None
        or not _WHOLE_PART.isdisjoint(parts)
        or any(part.endswith(("pass", "pwd")) for part in parts)
        or bool(parts and parts[-1] in _LAST_PART)
    )
    return Secrecy.ALWAYS if secret else Secrecy.NONE


_TOKENS = re.compile(
    r"""(?<![A-Za-z0-9])(?:
        hf_[A-Za-z0-9]{8,}                                # Hugging Face
        |(?:sk|rk|pk)-[A-Za-z0-9_\-]{8,}                  # OpenAI, Anthropic and those who imitate them
        |(?:sk|rk|pk)_(?:live|test)_\w+|whsec_\w{8,}      # Stripe
        |gh[opsur]_[A-Za-z0-9]{8,}|github_pat_\w{8,}
        |gl(?:pat|ptt|cbt|dt|rt|soat)-[\w\-.]{8,}         # GitLab
        |xox[a-z]-[\w\-]{8,}|xapp-[\w\-]{8,}             # Slack
        |(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA|AGPA|ANPA|ANVA|APKA)[A-Z0-9]{12,}  # AWS
        |AIza[\w\-]{20,}|ya29\.[\w\-.]{8,}|GOCSPX-[\w\-]{8,}               # Google
        |nvapi-[\w\-]{8,}|gsk_\w{8,}|r8_\w{8,}|xai-[\w\-]{8,}|pplx-[\w\-]{8,}|wandb_v1_\w{8,}
        |(?:npm|dckr_pat|dop_v1|shpat|lin_api)_[\w\-]{8,}|pypi-[\w\-]{8,}|dapi[0-9a-f]{16,}
        |hv[sbr]\.[\w\-.]{8,}|SG\.[\w\-.]{8,}|key-[0-9a-f]{16,}             # Vault, SendGrid, Mailgun
        |eyJ[\w\-]{4,}\.[\w\-.=]+                        # JSON web token
    )""",
    re.VERBOSE,
)
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY.*", re.DOTALL)
_BEARER = re.compile(r"\b(bearer|basic) +[^ \"']{8,}", re.IGNORECASE)
# 40 characters of base64 with upper case, lower case and digits: an AWS secret key, not a commit's hexadecimal name
_FORTY = re.compile(
    r"(?<![\w/+=.\-])(?=[^ ]{0,39}[A-Z])(?=[^ ]{0,39}[a-z])(?=[^ ]{0,39}[0-9])[A-Za-z0-9/+]{40}(?![\w/+=.\-])"
)
# everything up to the last @ of a word: a password may contain : / ? # @ by mistake
_URL_USER = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*://)(?=[^ /?#]*[:@])[^ ]*@")
_PLAIN_USER = re.compile(r"(?<![\w/.\-])([\w.\-]+):[^ @/]+@(?!sha256:)")


MASK = "***"
LONGEST = 1000
"""Number of characters of a command line that are kept."""

_LONGEST_SEARCHED = 4 * LONGEST
_BLANKS = bytes.maketrans(b"\t\n\v\f\r", b"     ")

# one word of a shell: quoted parts, which may contain blanks, and other characters up to a blank
_WORD = r"""(?:"(?:\\.|[^"\\])*(?:"|\\?$)|'(?:\\.|[^'\\])*(?:'|\\?$)|\\.|[^ "'\\]|\\$)+"""
_SCHEME = r"(?:(?:bearer|basic|digest|negotiate|token|apikey) +)?"
_VALUE = re.compile(rf"{_SCHEME}{_WORD}", re.IGNORECASE)
_NAME = re.compile(r"(?:(?<!\w)|(?<=%[0-9A-Fa-f]{2}))[A-Za-z_][\w.\-]*")  # also behind an encoded `?` or `&`
_CLOSING = re.compile(r"""["'\])\\]*""")
_OPERATOR = re.compile(r" *(?::=|=>|==|%3[DdAa]|[=:]) *")
_BEFORE_OPTION = ("", " ", '"', "'", "`", "(", ",", "[")
_OPTION = re.compile(r"--[A-Za-z]")
_PLAIN_NUMBER = re.compile(r"[0-9][0-9.,_]*[kKmMgG]?")

# programs that take a secret after a short option, and the word that must occur with them
_SHORT: tuple[tuple[tuple[str, ...], str, str | None], ...] = (
    (("mysql", "mysqldump", "mysqladmin", "mysqlimport", "mysqlshow", "mysqlcheck", "mysqlpump"), "p", None),
    (("mariadb", "mariadb-dump", "mariadb-admin", "mariadb-import", "mariadb-show", "mariadb-check"), "p", None),
    (("mongo", "mongosh", "mongodump", "mongorestore", "mongoexport", "mongoimport", "sshpass", "7z"), "p", None),
    (("redis-cli", "valkey-cli", "cqlsh"), "ap", None),
    (("ldapsearch", "ldapadd", "ldapmodify", "ldapdelete", "ldapwhoami", "ldappasswd"), "w", None),
    (("sqlcmd", "bcp", "isql", "tsql", "zip", "unzip"), "P", None),
    (("curl", "wget", "smbclient"), "uU", None),
    (("docker", "podman", "buildah", "skopeo", "helm", "crane", "oras", "nerdctl", "az", "oc"), "p", "login"),
)
_PROGRAM = re.compile(r"[\w.\-]+")


def mask_arguments(arguments: Sequence[bytes]) -> str:
    """Return the command line as one text of at most 1,000 characters, with secrets as `***`."""
    texts = [_URL_USER.sub(rf"\1{MASK}@", printable(argument.translate(_BLANKS))) for argument in arguments]
    text = " ".join(_masked_text(texts))
    if len(text) > _LONGEST_SEARCHED:  # cut between words, because half a secret is not recognised
        text = f"{text[:_LONGEST_SEARCHED].rpartition(' ')[0]} {MASK}"
    text = _PEM.sub(MASK, text)
    text = _PLAIN_USER.sub(rf"\1:{MASK}@", text)
    text = _TOKENS.sub(MASK, text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    text = _FORTY.sub(MASK, text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _masked_text(texts: Sequence[str]) -> Iterable[str]:
    short = _short_options(texts)
    owed = Secrecy.NONE
    for text in texts:
        if owed is not Secrecy.NONE and not _OPTION.match(text):
            yield _value(text, owed)
            owed = Secrecy.NONE
            continue
        masked, owed = _Scan(text, short).run()
        yield masked


def _value(value: str, owed: Secrecy) -> str:
    return value if owed is Secrecy.UNLESS_NUMBER and _PLAIN_NUMBER.fullmatch(value) else MASK


def _short_options(texts: Sequence[str]) -> re.Pattern[str] | None:
    """Return the short options that take a secret for a program in this command line."""
    words = {word.rpartition("/")[2] for text in texts for word in _PROGRAM.findall(text)}
    letters = {
        letter
        for programs, options, needs in _SHORT
        if words.intersection(programs) and (needs is None or needs in words)
        for letter in options
    }
    return re.compile(rf"(?:^|(?<=[ \"'`(]))-[{''.join(sorted(letters))}]") if letters else None


class _Scan:
    """The scan of one argument: usually a word, but also a script (`bash -c`) or a command line that was rewritten."""

    def __init__(self, text: str, short: re.Pattern[str] | None) -> None:
        self._text = text
        self._short = short
        self._parts: list[str] = []
        self._kept = 0

    def run(self) -> tuple[str, Secrecy]:
        """Return the masked text, and what to mask in the next argument if that is an option's value."""
        at, owed = 0, Secrecy.NONE
        while at < len(self._text) and owed is Secrecy.NONE:
            option = self._short.search(self._text, at) if self._short else None
            name = _NAME.search(self._text, at)
            if option and (name is None or option.start() < name.start()):
                at, owed = self._behind_short(option)
            elif name:
                at, owed = self._behind_name(name)
            else:
                break
        return "".join([*self._parts, self._text[self._kept :]]), owed

    def _behind_short(self, option: re.Match[str]) -> tuple[int, Secrecy]:
        """Mask the value of a short option; `-password` may have its value attached, or be a name before a value."""
        attached = self._text[option.end() : option.end() + 1].strip() != ""
        at, owed = self._behind_option(option.end(), Secrecy.ALWAYS, to_end=attached and option.start() == 0)
        name = _NAME.match(self._text, option.end() - 1) if attached else None
        if name and secrecy(name[0]) is not Secrecy.NONE:
            return self._behind_option(at, Secrecy.ALWAYS)
        return at, owed

    def _behind_name(self, name: re.Match[str]) -> tuple[int, Secrecy]:
        """Return the position after a name, once the value of a secret is masked."""
        level = secrecy(name[0])
        if level is Secrecy.NONE:
            return name.end(), level
        closing = _CLOSING.match(self._text, name.end())
        after = closing.end() if closing else name.end()
        before = self._text[: name.start()]
        bare = before.rstrip("-+~")
        if operator := _OPERATOR.match(self._text, after):
            # quoted together with its name, or the whole argument: the value may contain blanks
            whole = after > name.end() or bare.endswith(('"', "'", "`")) or not bare.strip("/")
            return self._mask(operator.end(), level, to_end=whole)
        if before.endswith("-") and bare[-1:] in _BEFORE_OPTION:
            return self._mask(after, level, to_end=True) if after > name.end() else self._behind_option(after, level)
        return name.end(), Secrecy.NONE

    def _behind_option(self, at: int, level: Secrecy, *, to_end: bool = False) -> tuple[int, Secrecy]:
        """Mask the value of an option, attached or after blanks."""
        while at < len(self._text) and self._text[at] == " ":
            at += 1
        if _OPTION.match(self._text, at):
            return at, Secrecy.NONE
        return self._mask(at, level, to_end=to_end)

    def _mask(self, at: int, level: Secrecy, *, to_end: bool) -> tuple[int, Secrecy]:
        """Mask the value that begins here; where the text ends first, the value is in the next argument."""
        if at >= len(self._text):
            return at, level
        value = _VALUE.match(self._text, at)
        end = value.end() if value else len(self._text)
        if level is Secrecy.UNLESS_NUMBER and _PLAIN_NUMBER.fullmatch(self._text, at, end):
            return end, Secrecy.NONE
        if to_end or "\\'" in self._text[at:end]:  # a shell and a program disagree on where this quote ends
            end = len(self._text)
        self._parts += (self._text[self._kept : at], MASK)
        self._kept = end
        return end, Secrecy.NONE
