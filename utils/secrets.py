"""Masks keys in everything that is written or shown.

Two things are masked. A key that this process has sent somewhere (`remember`) is masked wherever it comes back: a
server may repeat it in a reply. A setting whose name says that it is a secret, or whose value looks like the key of a
known service, is masked before a config is written.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from .sanitize import map_texts

MASK = "***"
MIN_SECRET = 8  # letters and digits; shorter keys ("EMPTY") are placeholders

_known: set[str] = set()

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:(?:api|app|access|account|auth|consumer|encryption|license|master|private|secret|service|signing|ssh)"
    r"_?keys?(?:_id)?|key|secrets?|secret_[a-z0-9_]*|passw(?:or)?d|passwd|passphrase|pwd|credentials?|authori[sz]ation"
    r"|bearer|cookies?|token|jwt|(?:access|api|auth|bearer|hf|hub|refresh)_tokens)$"
)
# Names that only look like a secret's: tokens of a vocabulary, and keys of an object.
_NO_SECRET_NAME = re.compile(
    r"(?:^|_)(?:(?:bos|boi|cls|decoder_start|end|eoi|eos|forced_bos|forced_eos|image|mask|new|pad|sep|sequence|special"
    r"|start|stop|think|unk|video|vision|vision_end|vision_start)_token|(?:box|confidence|dict|foreign|item|label|name"
    r"|primary|sort|id|input|output|text|image)_key)$"
)
# What the keys of well-known services look like: how a word begins, and how it goes on.
_KEY_FORMS: Mapping[str, Mapping[str, str]] = {
    "a private key": {"-----BEGIN ": r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"},
    "a key of Anthropic": {"sk-ant-": r"[A-Za-z0-9_-]{16,}"},
    "a key of OpenAI or the like": {
        "sk-": r"(?=[A-Za-z_-]{0,80}[0-9])(?:proj-|svcacct-|or-v1-)?[A-Za-z0-9_-]{16,}",
    },
    "a token of GitHub": dict.fromkeys(("gho_", "ghp_", "ghs_", "ghu_", "ghr_"), r"[A-Za-z0-9]{16,}")
    | {"github_pat_": r"[A-Za-z0-9_]{20,}"},
    "a token of GitLab": {"glpat-": r"[A-Za-z0-9_-]{16,}"},
    "a token of Hugging Face": {"hf_": r"[A-Za-z0-9]{16,}"},
    "a key of AWS": dict.fromkeys(("AKIA", "ASIA"), r"[A-Z0-9]{16}\b"),
    "a key of Google": {"AIza": r"[A-Za-z0-9_-]{30,}"},
    "a secret of Google": dict.fromkeys(("GOCSPX-", "ya29."), r"[A-Za-z0-9_-]{20,}"),
    "a token of Slack": {"xox": r"[abeoprs]-[A-Za-z0-9-]{10,}"},
    "a key of Stripe": dict.fromkeys(("rk_live_", "sk_live_"), r"[A-Za-z0-9]{16,}"),
    "a token of PyPI": {"pypi-": r"[A-Za-z0-9_-]{32,}"},
    "a token of npm": {"npm_": r"[A-Za-z0-9]{30,}"},
    "a key of Groq": {"gsk_": r"[A-Za-z0-9]{20,}"},
    "a key of xAI": {"xai-": r"[A-Za-z0-9]{20,}"},
    "a JSON web token": {"eyJ": r"[A-Za-z0-9_-]{10,999}\.eyJ[A-Za-z0-9_-]{10,9999}\.[A-Za-z0-9_-]{10,}"},
}
_KEYS = [  # what kind of key, how it begins, and the whole form
    (kind, start, (r"\b" if start[0].isalnum() else "") + re.escape(start) + rest)
    for kind, forms in _KEY_FORMS.items()
    for start, rest in forms.items()
]
# name = value, 'name': value, {name: value
_ASSIGNMENT = re.compile(
    r"(?:(?<![\w.-])(?P<name>[\w.-]{1,99})\s{0,9}=|['\"](?P<quoted>[\w.-]{1,99})['\"]\s{0,9}:"
    r"|(?<=[{,])\s{0,9}(?P<bare>[\w.-]{1,99}):)\s{0,9}(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;{}\[\]'\"]+)"
)
_ANY_KEY = re.compile("|".join(f"(?:{form})" for _, _, form in _KEYS))


def remember(secret: str | None) -> str | None:
    """Return the secret itself, without surrounding spaces, after which `mask_text` knows it; None if it is empty."""
    secret = (secret or "").strip()
    if secret:
        _known.add(secret)
    return secret or None


def remember_settings(value: object) -> bool:
    """Remember the texts in nested settings whose names say that they are secrets; return whether there are any."""
    if isinstance(value, Mapping):
        secret = [item for name, item in value.items() if _is_hidden(name, item) and remember(str(item))]
        return any([*secret, *(remember_settings(item) for item in value.values())])
    are_secret = [remember_settings(item) for item in value] if isinstance(value, list | tuple) else []
    return any(are_secret)


def is_secret_name(name: object) -> bool:
    """Return whether a setting of this name holds a secret.

    >>> [name for name in ("api_key", "hub_token", "apiKey", "X-Auth-Token", "password") if not is_secret_name(name)]
    []
    >>> [name for name in ("api_key_env", "max_tokens", "label_key", "eos_token") if is_secret_name(name)]
    []
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(name))
    words = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")
    return bool(_SECRET_NAME.search(words)) and not _NO_SECRET_NAME.search(words)


def find_key_form(text: str) -> str | None:
    """Return what kind of key a text holds, by the forms of well-known services; None if it holds none.

    >>> find_key_form("token = 'hf_" + 20 * "a" + "'"), find_key_form("hf_hub")
    ('a token of Hugging Face', None)
    """
    # A word is found in a tenth of the time of a form
    return next((kind for kind, start, form in _KEYS if start in text and re.search(form, text)), None)


def mask_text(text: str) -> str:
    """Return the text without the keys that this process knows: as they are, and escaped as in JSON or in a URL."""
    for secret in sorted(_known, key=len, reverse=True):
        text = _mask_one(text, secret)
    return text


def mask_message(text: str) -> str:
    """Return an error or a traceback as it may be shown or written: also without what looks like a key of a known
    service."""
    return mask_text(_ANY_KEY.sub(MASK, text))


def mask_assignments(text: str) -> str:
    """Return a message, also without the values that it assigns to settings whose names say that they are secrets.

    >>> mask_assignments("override 'train.hub_token=abc': extra = {'api_key': 'x y', 'top_k': 3}")
    "override 'train.hub_token=***': extra = {'api_key': ***, 'top_k': 3}"
    """

    def mask(match: re.Match[str]) -> str:
        name = match["name"] or match["quoted"] or match["bare"]
        secret = any(is_secret_name(word) for word in name.split(".") if word.lower() != "key")  # "write key=value"
        return match[0][: match.start("value") - match.start()] + MASK if secret else match[0]

    return mask_message(_ASSIGNMENT.sub(mask, text))


def mask_override(text: str) -> str:
    """Return a `key.path=value` of the command line, as a message may show it.

    >>> mask_override("train.hub_token=my pass"), mask_override("env.noise=3")
    ('train.hub_token=***', 'env.noise=3')
    """
    key, equals, _ = text.partition("=")
    secret = equals and any(is_secret_name(word) for word in key.split("."))
    return f"{key}={MASK}" if secret else mask_assignments(text)


def mask_values(value: object) -> Any:
    """Plain nested values, all their texts masked by `mask_text`; the value itself if no key is known."""
    return map_texts(value, mask_text) if _known else value


def mask_settings(value: object) -> Any:
    """Plain nested settings as they may be written: without secrets, by name, by form and by `mask_text`.

    >>> mask_settings({"hub_token": "abc", "extra": {"api_key": "x", "top_k": 3}, "api_key_env": "MY_API_KEY"})
    {'hub_token': '***', 'extra': {'api_key': '***', 'top_k': 3}, 'api_key_env': 'MY_API_KEY'}
    """
    return _mask_fields(map_texts(value, mask_message))


def _mask_fields(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: MASK if _is_hidden(name, item) else _mask_fields(item) for name, item in value.items()}
    return [_mask_fields(item) for item in value] if isinstance(value, list | tuple) else value


def _is_hidden(name: object, value: Any) -> bool:
    return value not in (None, "", [], {}) and not isinstance(value, bool) and is_secret_name(name)


def _mask_one(text: str, secret: str) -> str:
    if sum(letter.isalnum() for letter in secret) < MIN_SECRET:
        return text
    text = text.replace(secret, MASK)
    return _build_pattern(secret).sub(MASK, text) if "\\" in text or "%" in text else text


@lru_cache(maxsize=64)
def _build_pattern(secret: str) -> re.Pattern[str]:
    """Find the secret if any of its characters are escaped: as in JSON, also within a text of JSON, or in a URL."""

    def list_forms(letter: str) -> str:
        escaped = [rf"\\{{0,8}}{re.escape(letter)}" if letter in '"\\/' else re.escape(letter)]
        units = letter.encode("utf-16-be", "surrogatepass").hex()
        unicode = "".join(rf"\\{{1,8}}u{units[place : place + 4]}" for place in range(0, len(units), 4))
        url = "".join(f"%(?:25){{0,8}}{byte:02x}" for byte in letter.encode("utf-8", "surrogatepass"))
        return f"(?:{'|'.join(escaped)}|(?i:{unicode}|{url}))"

    return re.compile("".join(map(list_forms, secret)))
