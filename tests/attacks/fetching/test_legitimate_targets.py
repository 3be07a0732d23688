"""What is fetched, from a real server with TLS that stands for a host of the internet."""

import asyncio
import io

from PIL import Image

from tests.support.servers import send_bytes
from tests.support.tls_server import make_network, serve_tls
from viewbox.network.fetching import fetch_url

HOST = "openi.nlm.nih.gov"


def encode(form="PNG", **settings):
    out = io.BytesIO()
    Image.new("RGB", (20, 10), 7).save(out, form, **settings)
    return out.getvalue()


def test_a_picture_is_fetched_from_the_host_that_its_url_names(tmp_path):
    with serve_tls(tmp_path, lambda body, number: send_bytes(200, encode()), HOST) as server:
        network = make_network({HOST: server})
        found = asyncio.run(fetch_url(f"https://{HOST}/imgs/a.png?x=1", allowed_hosts=[HOST], _network=network))
    assert (found.content, found.content_type) == (encode(), "image/png")
    assert [one["path"] for one in server.requests] == ["/imgs/a.png?x=1"]
    assert server.names == [HOST]
