"""Another process that searches at a server of tests: `python -m tests.support.search_process SETTINGS`.

SETTINGS is JSON: the `port` and the `authority` (a file) of the server, the `folder` of the limiters, the `rate`, the
`prefix` of the words and the `number` of searches at once. It prints how many found something and how many failed.
"""

import asyncio
import json
import ssl
import subprocess
import sys
from pathlib import Path

from viewbox.network.fetching.network import Network
from viewbox.tools.search import eutils
from viewbox.tools.search.live import LiveSource, Setup
from viewbox.tools.search.records import ArticleQuery

ADDRESS = "130.14.29.110"
ROOT = Path(__file__).resolve().parents[2]


async def _resolve(host):
    assert host == eutils.HOST
    return [ADDRESS]


async def search_all(source, prefix, number):
    """How many searches found something, and how many failed."""
    asked = (source.search_articles(ArticleQuery(f"{prefix} {one}")) for one in range(number))
    found = await asyncio.gather(*asked, return_exceptions=True)
    return {
        "found": sum(isinstance(one, list) and bool(one) for one in found),
        "failed": [str(one) for one in found if isinstance(one, Exception)],
    }


def start(**settings):
    """The process."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.search_process", json.dumps(settings)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def main(settings):
    believed = ssl.create_default_context(cafile=settings["authority"])
    network = Network(_resolve, {ADDRESS: settings["port"]}, believed)
    setup = Setup(network, settings["rate"], limiters=Path(settings["folder"]), first_pause=0.05)
    found = asyncio.run(search_all(LiveSource(_setup=setup), settings["prefix"], settings["number"]))
    print(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
