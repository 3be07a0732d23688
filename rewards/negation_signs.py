"""Writes signs and abbreviations in words, before folding loses them: "❌ nodule", "nodule (-)", "w/o", "no. 2".

A line end closes a sentence, a struck-out word does not count, and many signs mean "not".
"""

import re
import unicodedata

# Text that holds none of them: letters and spaces, and numbers between spaces, but not "no. 2" and "x 0".
_PLAIN = re.compile(r"(?:[A-Za-z .;,?]++|(?<![^ ])(?<![Nn][Oo] )(?<![OoSs]\. )(?<![xX] )[0-9]++(?![^ ]))*+")
_NO_SIGNS = re.compile(r"[A-Za-z0-9' .,;?]*+")
_ANSWERS = "no|none|absent|negative|neg|nil|yes|present|positive"
_NUMBERED = "accession|case|exam|figure|frame|image|lead|patient|scan|segment|series|slice|study|tooth"
_AFTER_NUMBERED = "|".join(rf"(?<=\b{word})" for word in _NUMBERED.split("|"))
_SPELLINGS = re.compile(
    r"(?P<number>№|(?<=[^\W\d_])[ \t]+nos?\.[ \t]?(?=\d)"  # "nodule no. 2"
    rf"|(?:{_AFTER_NUMBERED})[ \t]+nos?[ \t]+(?=\d))"  # "series no 3"
    r"|(?P<no>\bno{2,}\b|(?<!\w)[øØ](?!\w|\s*\d))"
    r"|(?P<value>(?<=\w)\s+[x×]\s?0(?![\w.])|(?<=s)\s?[(\[]\s?0\s?[)\]])"  # "nodule x0", "nodules (0)"
    r"|(?P<free>(?<=[^\W\d_]{3})free\b)"
    r"|(?P<negative>\A\s*neg\.(?=\s+(?-i:[a-z]))|\bneg\.(?=\s+for\b))"
    r"|(?P<diameter>[∅øØ⌀](?=\s*\d))"
    rf"|(?P<cell>(?<=\w)\s*\|\s*(?:{_ANSWERS})\s*\|)",  # of a table: it ends there
    re.IGNORECASE,
)
_SIGNS = re.compile(
    r"(?P<struck>~~[^~]+~~|~[^~]+~|<(?:s|del|strike)>[^<]*</(?:s|del|strike)>)|(?P<without>\bw/o(?:ut)?\b)"
    r"|(?P<rule>\br/o\b)"
    r"|(?P<no>\[ \]|(?<![^\n;.])\s?[(\[]\s?[-–−]\s?[)\]]|\bn/a\b|[-–−]ve\b)"
    r"|(?P<value>[(\[]\s?[-–−]\s?[)\]]|(?<=[:=])\s?[-–−0]\s?(?=$|[;,\n]|\.(?!\d))|(?<=\w)\s-\s?(?=$|[;,.\n]))"
    r"|(?P<end>[\n\r\u2028\u2029✅✔✓☑]|\s[-–—]{1,3}\s|—)|(?P<sign>[¬≠]|(?<![\w!])!(?=\w))",
    re.IGNORECASE,
)
_MEANINGS = {
    "diameter": " ",
    "end": " ; ",
    "free": "-free",
    "negative": " negative ",
    "no": " no ",
    "number": " number ",
    "rule": " rule out ",
    "sign": " not ",
    "struck": " ",
    "value": " (no) ",
    "without": " without ",
}
_CROSSES = re.compile(  # names of signs for no
    r"CROSS MARK|CROSS PRODUCT|CROSSING LANES|SQUARED CROSS|SALTIRE|(BALLOT|SCRIPT|CANCELLATION|MULTIPLICATION) X"
    r"|BALLOT BOX$|EMPTY SET|NO ENTRY|^NO |NO GOOD|PROHIBIT|THUMBS DOWN|DOES NOT|SQUARED NG|OCTAGONAL SIGN|HEAVY MINUS"
    r"|CIRCLED (TIMES|MINUS|DASH|DIVISION)"
)


class _Crosses(dict[int, str | int]):
    """A table for `str.translate` that writes crosses, stop signs and the like as "no", filled on demand."""

    def __missing__(self, code: int) -> str | int:
        self[code] = " no " if _CROSSES.search(unicodedata.name(chr(code), "")) else code
        return self[code]


_CROSSES_AS_NO = _Crosses()


def lower_plain(text: str) -> str | None:
    """The text in lower case, if it holds nothing but letters, numbers, spaces and `.;,?`, and no rare spelling."""
    if not _PLAIN.fullmatch(text):
        return None
    lower = text.lower()
    return None if "noo" in lower or "free" in lower or "neg." in lower else lower


def spell_out_signs(text: str) -> str:
    """The text with words for the signs and abbreviations that deny or number something.

    >>> [spell_out_signs(text) for text in ("mass x0", "nodule no. 2", "noooo", "nodulefree")]
    ['mass (no) ', 'nodule number 2', ' no ', 'nodule-free']
    """
    text = _SPELLINGS.sub(_spell_out, text)
    if _NO_SIGNS.fullmatch(text):
        return text
    return _SIGNS.sub(_spell_out, text if text.isascii() else text.translate(_CROSSES_AS_NO))


def _spell_out(sign: re.Match[str]) -> str:
    if sign.lastgroup == "cell":
        return f" {sign[0].replace('|', ' ')} ; "
    return _MEANINGS[sign.lastgroup or "struck"]
