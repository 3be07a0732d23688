"""What ESearch and Open-i answer in JSON, and what else comes instead."""

import json

import pytest

from tests.support.literature_server import make_figure, make_figures, make_ids
from viewbox.network.errors import UnusableReplyError
from viewbox.tools.search.eutils import read_ids
from viewbox.tools.search.openi import read_figures
from viewbox.tools.search.records import FoundImage

BASE = "https://openi.nlm.nih.gov"
NOT_OBJECTS = [
    b"", b"[]", b'"x"', b"null", b"7", b"{", b"<html></html>", b"[" * 100_000, b'{"a": NaN}', b"\xff\xfe\x00",
]  # fmt: skip


def read(*figures, limit=9, modality=""):
    return read_figures(make_figures(*figures), BASE, limit, modality)


def test_ids_are_read_in_their_order_without_doubles_and_up_to_the_limit():
    assert read_ids(make_ids("3", "1", "3", "2", "4"), 3) == ["3", "1", "2"]
    assert read_ids(make_ids(), 3) == []


def test_what_is_no_pmid_is_left_out():
    odd = ["7", 8, None, "9x", "-1", "0", "1" * 11, {"id": "5"}, ["6"], "1&api_key=x", True, 1.5]
    assert read_ids(json.dumps({"esearchresult": {"idlist": odd}}).encode(), 99) == ["7", "8"]


def test_an_error_of_a_search_is_never_no_results():
    for found, reason in [
        ({"ERROR": "Search Backend failed: timeout"}, "ESearch failed: Search Backend failed"),
        ({"count": "3"}, "no idlist"),
        ({"idlist": {"7": "8"}}, "no idlist"),
        ([], "no esearchresult"),
    ]:
        with pytest.raises(UnusableReplyError, match=reason):
            read_ids(json.dumps({"esearchresult": found}).encode(), 5)


def test_json_of_another_shape_is_refused():
    for content in NOT_OBJECTS:
        with pytest.raises(UnusableReplyError):
            read_ids(content, 5)
        with pytest.raises(UnusableReplyError):
            read_figures(content, BASE, 5)


def test_an_error_document_of_the_gateway_is_named():
    with pytest.raises(UnusableReplyError, match="API key invalid"):
        read_ids(b'{"error": "API key invalid", "api-key": "x"}', 5)


def test_every_field_of_a_figure_is_read():
    assert read(make_figure(5), modality="ct") == [
        FoundImage(
            "PMC5_F1",
            caption="Film 5 of a chest & heart.",
            source="A sign of the chest. Journal of drawn chests, 2016",
            url="https://pmc.ncbi.nlm.nih.gov/articles/PMC5/",
            image_url="https://openi.nlm.nih.gov/imgs/512/1/5/PMC5_1.png",
            pmid="5",
            modality="ct",
        )
    ]


def test_a_figure_without_most_fields_is_kept_and_one_without_a_picture_is_not():
    found = read(
        {"uid": "CXR1", "imgThumb": "/imgs/a.png"}, {"uid": "CXR2"}, {"imgLarge": "/imgs/b.png"}, {}, None, "x"
    )
    assert found == [FoundImage("CXR1", image_url=f"{BASE}/imgs/a.png")]


def test_figures_of_other_types_cost_themselves():
    odd = [make_figure(1, image="x", journal_date=[], pmid={}, title=7), make_figure(2, uid={}), make_figure(3, uid=33)]
    assert [one.uid for one in read(*odd)] == ["PMC1", "33_F1"]


def test_the_same_figure_twice_is_one_and_the_limit_holds():
    assert [one.uid for one in read(*map(make_figure, (1, 1, 2, 3)), limit=2)] == ["PMC1_F1", "PMC2_F1"]


def test_html_of_a_caption_becomes_text():
    caption = "<P class='x'>One<br>two &lt;b&gt; &#x1F600; <a href='x'>three</a> <i >four</i> p<0.05 <b"
    (found,) = read(make_figure(1, image={"id": "F1", "caption": caption}))
    assert found.caption == "One two <b> 😀 three four p<0.05 <b"


@pytest.mark.timeout(30)
def test_captions_made_to_be_slow_are_not():
    for part in ["<", "<a b='", "<!--", "<p ", "&#"]:
        found = read(
            *(make_figure(number, image={"id": "F1", "caption": part * 20_000}) for number in range(1, 31)), limit=30
        )
        assert len(found) == 30


def test_no_figures_are_an_empty_list_and_a_refused_query_is_an_error():
    assert read_figures(b'{"total": 0}', BASE, 5) == []
    assert read_figures(b'{"total": "0", "list": []}', BASE, 5) == []
    for wrong in (b'{"total": 5}', b'{"total": 5, "list": {}}', b'{"Query-Error": "Invalid request type."}'):
        with pytest.raises(UnusableReplyError):
            read_figures(wrong, BASE, 5)
