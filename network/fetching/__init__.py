"""Fetches from other machines what a stranger's text may have named, such as the figure of an article that was found.

`fetch_url` is the only function of viewbox that goes to an address which no person wrote down. So the caller says which
hosts are allowed, and nothing else can be reached, whatever a URL, a name server or a redirect says: `targets` judges
URLs, `addresses` judges what their names lead to, `network` connects to the judged address and no other, and `content`
says by its bytes what came back. Judges, endpoints and specialists have addresses that a person chose, which may be on
this machine; their URLs are read by the same grammar (`viewbox.network.hosts.split_url`).
"""

from .content import PICTURES, TEXTS
from .errors import FetchError
from .fetch import MAX_BYTES, TIMEOUT, Fetched, fetch_url

__all__ = ["MAX_BYTES", "PICTURES", "TEXTS", "TIMEOUT", "FetchError", "Fetched", "fetch_url"]
