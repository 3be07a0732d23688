"""What ESearch, Open-i and PubMed answer as it really looks, and what comes instead: missing fields, retractions."""

import json

import pytest

from tests.support.literature_server import (
    DOCTYPE,
    make_book,
    make_figure,
    make_figures,
    make_ids,
    make_record,
    make_set,
)
from tests.support.tables import each
from viewbox.network.errors import UnusableReplyError
from viewbox.tools.search.eutils import read_articles, read_ids
from viewbox.tools.search.openi import read_figures
from viewbox.tools.search.records import Article, FoundImage

BASE = "https://openi.nlm.nih.gov"
NOT_OBJECTS = [
    b"", b"[]", b'"x"', b"null", b"7", b"{", b"<html></html>", b"[" * 100_000, b'{"a": NaN}', b"\xff\xfe\x00",
]  # fmt: skip


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9)
)
RETRACTED = "<PublicationType>Retracted Publication</PublicationType>"


def read(*figures, limit=9, modality=""):
    return read_figures(make_figures(*figures), BASE, limit, modality)


def read_one(*settings, **parts):
    (found,) = read_articles(make_set(make_record("7", *settings, **parts))).values()
    return found


def correct(kind):
    return f'<CommentsCorrections RefType="{kind}"/>'


def test_ids_are_read_in_their_order_without_doubles_and_up_to_the_limit_and_others_are_left_out():
    assert read_ids(make_ids("3", "1", "3", "2", "4"), 3) == ["3", "1", "2"]
    assert read_ids(make_ids(), 3) == []
    odd = ["7", 8, None, "9x", "-1", "0", "1" * 11, {"id": "5"}, ["6"], "1&api_key=x", True, 1.5]
    assert read_ids(json.dumps({"esearchresult": {"idlist": odd}}).encode(), 99) == ["7", "8"]


def search(**found):
    return lambda: read_ids(json.dumps(found).encode(), 5)


def fetch(content):
    return lambda: read_articles(content)


@each("ask, reason", [  # an error, or what has another shape, is never no results
    (search(esearchresult={"ERROR": "Search Backend failed: timeout"}), "ESearch failed: Search Backend failed"),
    (search(esearchresult={"count": "3"}), "no idlist"), (search(esearchresult={"idlist": {"7": "8"}}), "no idlist"),
    (search(esearchresult=[]), "no esearchresult"), (search(error="API key invalid", key="x"), "API key invalid"),
    *((lambda content=content: read_ids(content, 5), "") for content in NOT_OBJECTS),
    *((lambda content=content: read_figures(content, BASE, 5), "") for content in (
        *NOT_OBJECTS, b'{"total": 5}', b'{"total": 5, "list": {}}', b'{"Query-Error": "Invalid request type."}')),
    (fetch(b"<eFetchResult><ERROR>ID list is empty!</ERROR></eFetchResult>"), "eFetchResult ID list is empty!"),
    (fetch(b"<ERROR>Search Backend failed</ERROR>"), "ERROR Search Backend failed"),
    *((fetch(content), "not XML") for content in (
        b"<PubmedArticleSet><PubmedArticle>", b"<PubmedArticleSet>\x00</PubmedArticleSet>", b"", b"\xff\xfe",
        b'<?xml version="1.0" encoding="utf-99"?><PubmedArticleSet/>')),
    (fetch((BOMB + "]><PubmedArticleSet>&j;</PubmedArticleSet>").encode()), "EntitiesForbidden"),
    (fetch(b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><PubmedArticleSet>&e;</PubmedArticleSet>'),
     "Forbidden"),
    (fetch(b'<!DOCTYPE x [<!ENTITY % e SYSTEM "http://127.0.0.1/x">%e;]><PubmedArticleSet/>'), "Forbidden"),
])  # fmt: skip
def test_what_is_no_answer_is_refused_with_its_reason(ask, reason):
    with pytest.raises(UnusableReplyError, match=reason or None):
        ask()


def test_every_field_of_a_figure_is_read_and_no_figures_are_an_empty_list():
    assert read(make_figure(5), modality="ct") == [FoundImage(
        "PMC5_F1", "Film 5 of a chest & heart.", "A sign of the chest. Journal of drawn chests, 2016",
        url="https://pmc.ncbi.nlm.nih.gov/articles/PMC5/", pmid="5", modality="ct",
        image_url="https://openi.nlm.nih.gov/imgs/512/1/5/PMC5_1.png")]  # fmt: skip
    assert read_figures(b'{"total": 0}', BASE, 5) == read_figures(b'{"total": "0", "list": []}', BASE, 5) == []


def test_a_figure_without_most_fields_is_kept_and_one_without_a_picture_or_of_other_types_costs_itself():
    bare = {"uid": "CXR1", "imgThumb": "/imgs/a.png"}
    assert read(bare, {"uid": "CXR2"}, {"imgLarge": "/imgs/b.png"}, {}, None, "x") == [
        FoundImage("CXR1", image_url=f"{BASE}/imgs/a.png")
    ]
    odd = [make_figure(1, image="x", journal_date=[], pmid={}, title=7), make_figure(2, uid={}), make_figure(3, uid=33)]
    assert [one.uid for one in read(*odd)] == ["PMC1", "33_F1"]
    assert [one.uid for one in read(*map(make_figure, (1, 1, 2, 3)), limit=2)] == ["PMC1_F1", "PMC2_F1"]
    caption = "<P class='x'>One<br>two &lt;b&gt; &#x1F600; <a href='x'>three</a> <i >four</i> p<0.05 <b"
    (found,) = read(make_figure(1, image={"id": "F1", "caption": caption}))
    assert found.caption == "One two <b> 😀 three four p<0.05 <b"


@pytest.mark.timeout(30)
def test_captions_made_to_be_slow_are_not():
    for part in ["<", "<a b='", "<!--", "<p ", "&#"]:
        image = {"id": "F1", "caption": part * 20_000}
        assert len(read(*(make_figure(number, image=image) for number in range(1, 31)), limit=30)) == 30


def test_every_field_of_a_record_is_read():
    assert read_one() == Article(
        "7", title="A sign of the chest", journal="Journal of drawn chests", year=2021, abstract="We saw it.",
        doi="10.1000/7", url="https://pubmed.ncbi.nlm.nih.gov/7/", types=("Journal Article",),
        mesh=("Radiography, Thoracic",),
    )  # fmt: skip


def test_a_structured_abstract_keeps_its_labels_and_loses_the_copyright():
    parts = (
        '<AbstractText Label="BACKGROUND" NlmCategory="BACKGROUND">We met.</AbstractText>'
        '<AbstractText Label="UNLABELLED">No label.</AbstractText>'
        '<AbstractText Label="RESULTS" NlmCategory="RESULTS">All <b>went</b> home.</AbstractText>'
        '<AbstractText Label="EMPTY"/>'
    )
    assert read_one(abstract=parts).abstract == "BACKGROUND: We met. No label. RESULTS: All went home."


def test_only_a_pmid_is_needed():
    record = make_record("7").replace("<Abstract>", "<Nothing>").replace("</Abstract>", "</Nothing>")
    found = read_articles(make_set(record))["7"]
    assert (found.abstract, found.title) == ("", "A sign of the chest")
    bare = "<PubmedArticle><MedlineCitation><PMID>7</PMID></MedlineCitation></PubmedArticle>"
    assert read_articles(make_set(bare)) == {"7": Article("7", url="https://pubmed.ncbi.nlm.nih.gov/7/")}
    assert read_articles(make_set()) == {}


def test_formulas_markup_and_unicode_become_one_line_and_a_year_is_found_in_every_form_of_a_date():
    math = '<mml:math xmlns:mml="http://www.w3.org/1998/Math/MathML">\n <mml:mi>V</mml:mi>\n 2\n</mml:math>'
    found = read_one(f"Größe von <i>α</i>-Zellen &lt; 5&#160;µm: 東京\n ({math}) CO<sub>2</sub> 🫁")
    assert found.title == "Größe von α-Zellen < 5 µm: 東京 (V2) CO2 🫁"
    for date, year in [  # one without a year is followed by that of the electronic article
        ("<MedlineDate>1998 Dec-1999 Jan</MedlineDate>", 1998), ("<MedlineDate>Winter 2024</MedlineDate>", 2024),
        ("<Year>2O21</Year>", 2020), ("", 2020), ("<Year>20210</Year>", 2020),
    ]:  # fmt: skip
        assert read_one(date=date).year == year


def test_the_doi_is_the_article_s_own():
    own = '<ArticleId IdType="doi">10.1000/own</ArticleId>'
    invalid = '<ELocationID EIdType="doi" ValidYN="N">10.1000/wrong</ELocationID>'
    assert read_one(location=invalid, ids=own).doi == "10.1000/own"
    assert read_one(location='<ELocationID EIdType="pii">S1</ELocationID>').doi == ""  # not that of a reference
    assert read_one(location='<ELocationID EIdType="doi">javascript:x</ELocationID>').doi == ""


@each("parts, retracted", [
    ({"types": RETRACTED}, True), ({"corrections": correct("RetractionIn")}, True),
    ({"types": RETRACTED.replace("Retracted", "Retraction of"), "corrections": correct("RetractionOf")}, False),
    ({"corrections": correct("ExpressionOfConcernIn")}, False),
])  # fmt: skip
def test_a_retracted_article_is_marked_and_its_notice_is_not(parts, retracted):
    assert read_one(**parts).retracted is retracted


def test_a_chapter_of_a_book_is_an_article_of_its_book():
    found = read_articles(make_set(make_record("7"), make_book("8")))
    assert list(found) == ["7", "8"]
    assert (found["8"].title, found["8"].journal, found["8"].year) == ("A chapter", "A book of pearls", 2024)
    assert (found["8"].abstract, found["8"].types) == ("The text of a chapter.", ("Study Guide",))
    assert read_articles(make_set(make_book("8", date="")))["8"].year == 2019


def test_one_bad_record_costs_itself():
    bad = ["<PubmedArticle/>", "<PubmedArticle><MedlineCitation><PMID>x</PMID></MedlineCitation></PubmedArticle>",
           "<PubmedBookArticle/>", "<DeleteCitation><PMID>9</PMID></DeleteCitation>", "text"]  # fmt: skip
    assert list(read_articles(make_set(bad[0], make_record("7"), *bad[1:], make_record("8")))) == ["7", "8"]


@each("tag", ["i", "mml:math"])
def test_elements_in_elements_are_read_in_time_that_grows_with_their_number(tag):
    start = f"<{tag} xmlns:mml='http://www.w3.org/1998/Math/MathML'>".encode()
    deep = start * 100_000 + b"x" + f"</{tag}>".encode() * 100_000
    record = make_record("7", "TITLE").encode().replace(b"TITLE", deep)
    found = read_articles(DOCTYPE.encode() + b"<PubmedArticleSet>" + record + b"</PubmedArticleSet>")
    assert found["7"].title == "x"


def test_texts_and_lists_of_a_record_are_bounded():
    types = "".join(f"<PublicationType>type {number}</PublicationType>" for number in range(5000))
    found = read_one("word " * 1_000_000, types=types)
    assert len(found.title) <= 100_000
    assert len(found.types) == 200
