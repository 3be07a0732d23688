"""PubMed's records as they really look: missing fields, unicode, structured abstracts, books, retractions."""

import pytest

from tests.support.literature_server import DOCTYPE, make_book, make_record, make_set
from viewbox.network.errors import UnusableReplyError
from viewbox.tools.search.eutils import read_articles
from viewbox.tools.search.records import Article

BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9)
)


def read_one(*settings, **parts):
    (found,) = read_articles(make_set(make_record("7", *settings, **parts))).values()
    return found


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


def test_a_record_without_abstract_is_an_article_without_abstract():
    record = make_record("7").replace("<Abstract>", "<Nothing>").replace("</Abstract>", "</Nothing>")
    found = read_articles(make_set(record))["7"]
    assert (found.abstract, found.title) == ("", "A sign of the chest")


def test_only_a_pmid_is_needed():
    bare = "<PubmedArticle><MedlineCitation><PMID>7</PMID></MedlineCitation></PubmedArticle>"
    assert read_articles(make_set(bare)) == {"7": Article("7", url="https://pubmed.ncbi.nlm.nih.gov/7/")}


def test_formulas_markup_and_unicode_become_one_line():
    math = '<mml:math xmlns:mml="http://www.w3.org/1998/Math/MathML">\n <mml:mi>V</mml:mi>\n 2\n</mml:math>'
    found = read_one(f"Größe von <i>α</i>-Zellen &lt; 5&#160;µm: 東京\n ({math}) CO<sub>2</sub> 🫁")
    assert found.title == "Größe von α-Zellen < 5 µm: 東京 (V2) CO2 🫁"


def test_the_year_is_found_in_every_form_of_a_date():
    for date, year in [
        ("<MedlineDate>1998 Dec-1999 Jan</MedlineDate>", 1998),
        ("<MedlineDate>Winter 2024</MedlineDate>", 2024),
        ("<Year>2O21</Year>", 2020),  # then the date of the electronic article
        ("", 2020),
        ("<Year>20210</Year>", 2020),
    ]:
        assert read_one(date=date).year == year


def test_the_doi_is_the_article_s_own():
    own = '<ArticleId IdType="doi">10.1000/own</ArticleId>'
    invalid = '<ELocationID EIdType="doi" ValidYN="N">10.1000/wrong</ELocationID>'
    assert read_one(location=invalid, ids=own).doi == "10.1000/own"
    assert read_one(location='<ELocationID EIdType="pii">S1</ELocationID>').doi == ""  # not that of a reference
    assert read_one(location='<ELocationID EIdType="doi">javascript:x</ELocationID>').doi == ""


def test_a_retracted_article_is_marked_and_its_notice_is_not():
    for parts, retracted in [
        ({"types": "<PublicationType>Retracted Publication</PublicationType>"}, True),
        ({"corrections": '<CommentsCorrections RefType="RetractionIn"/>'}, True),
        (
            {
                "types": "<PublicationType>Retraction of Publication</PublicationType>",
                "corrections": '<CommentsCorrections RefType="RetractionOf"/>',
            },
            False,
        ),  # the notice itself
        ({"corrections": '<CommentsCorrections RefType="ExpressionOfConcernIn"/>'}, False),
    ]:
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


def test_no_records_are_no_articles():
    assert read_articles(make_set()) == {}


def test_what_is_no_set_of_articles_is_refused_with_its_reason():
    for content, reason in [
        (b"<eFetchResult><ERROR>ID list is empty!</ERROR></eFetchResult>", "eFetchResult ID list is empty!"),
        (b"<ERROR>Search Backend failed</ERROR>", "ERROR Search Backend failed"),
        (b"<PubmedArticleSet><PubmedArticle>", "not XML"),
        (b"<PubmedArticleSet>\x00</PubmedArticleSet>", "not XML"),
        (b'<?xml version="1.0" encoding="utf-99"?><PubmedArticleSet/>', "not XML"),
        (b"", "not XML"),
        (b"\xff\xfe", "not XML"),
        ((BOMB + "]><PubmedArticleSet>&j;</PubmedArticleSet>").encode(), "EntitiesForbidden"),
        (
            b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><PubmedArticleSet>&e;</PubmedArticleSet>',
            "Forbidden",
        ),
        (b'<!DOCTYPE x [<!ENTITY % e SYSTEM "http://127.0.0.1/x">%e;]><PubmedArticleSet/>', "Forbidden"),
    ]:
        with pytest.raises(UnusableReplyError, match=reason):
            read_articles(content)


@pytest.mark.parametrize("tag", ["i", "mml:math"])
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
