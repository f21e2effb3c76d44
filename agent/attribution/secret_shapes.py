"""Secrets that show by their own shape, whatever stands before them."""

from __future__ import annotations

import re

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
# 40 characters of base64 with all three kinds of them: an AWS secret key, not the hexadecimal name of a commit
_FORTY = re.compile(
    r"(?<![\w/+=.\-])(?=[^ ]{0,39}[A-Z])(?=[^ ]{0,39}[a-z])(?=[^ ]{0,39}[0-9])[A-Za-z0-9/+]{40}(?![\w/+=.\-])"
)
# everything up to the last @ of a word: a password may hold any of : / ? # @ by mistake
_URL_USER = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*://)(?=[^ /?#]*[:@])[^ ]*@")
_PLAIN_USER = re.compile(r"(?<![\w/.\-])([\w.\-]+):[^ @/]+@(?!sha256:)")


def mask_url_users(text: str, mask: str) -> str:
    """The text without the user part of URLs."""
    return _URL_USER.sub(rf"\1{mask}@", text)


def mask_shapes(text: str, mask: str) -> str:
    """The text with tokens and keys replaced by the mask."""
    text = _PEM.sub(mask, text)
    text = _PLAIN_USER.sub(rf"\1:{mask}@", text)
    text = _TOKENS.sub(mask, text)
    text = _BEARER.sub(rf"\1 {mask}", text)
    return _FORTY.sub(mask, text)
