"""Files that are fetched: pictures, and what pretends to be one."""

import gzip
import io
import struct
import zipfile
import zlib

from PIL import Image

SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
HTML = b"<!DOCTYPE html><html><body>Not found</body></html>"
PDF = b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\n%%EOF\n"


def encode(form="PNG", size=(20, 10), mode="RGB", **settings):
    out = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert(mode).save(out, form, **settings)
    return out.getvalue()


def make_zip():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.txt", "a")
    return out.getvalue()


def make_chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def insert_chunk(kind, body):
    """A good PNG with one more chunk behind its header."""
    whole = encode()
    return whole[:33] + make_chunk(kind, body) + whole[33:]


def insert_segment(kind, body):
    """A good JPEG with one more segment at its beginning."""
    whole = encode("JPEG")
    return whole[:2] + b"\xff" + kind + struct.pack(">H", len(body) + 2) + body + whole[2:]


def store_in_pixels(text):
    """A PNG whose pixels, stored without compression, are a text."""
    body = b"\0" + text
    header = struct.pack(">IIBBBBB", len(text), 1, 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(body, 0)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(make_chunk(*one) for one in chunks)


def declare_size(width, height):
    """A PNG of a few bytes that says it has this many pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 100)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(make_chunk(*one) for one in chunks)


def damage_checksum():
    whole = bytearray(encode())
    whole[20] ^= 1
    return bytes(whole)


GOOD = {
    "a PNG": encode(),
    "a gray PNG": encode(mode="L"),
    "a PNG with alpha": encode(mode="RGBA"),
    "a PNG with a palette": encode(mode="P"),
    "a PNG with text": insert_chunk(b"tEXt", b"Comment\0A figure of an article"),
    "a large PNG": encode(size=(1500, 1200)),
    "a JPEG": encode("JPEG"),
    "a gray JPEG": encode("JPEG", mode="L"),
    "a progressive JPEG": encode("JPEG", size=(300, 200), progressive=True),
    "a JPEG with EXIF": encode("JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0"),
    "a JPEG with a comment": insert_segment(b"\xfe", b"Figure 1"),
    "a JPEG that is filled up": encode("JPEG") + bytes(100),
    "a large JPEG": encode("JPEG", size=(1500, 1200), quality=95),
}
# What is refused, and a part of the reason.
BAD = {
    "SVG": (SVG, "it is SVG"),
    "SVG behind an XML head": (b'<?xml version="1.0"?>\n<!-- a -->' + SVG, "it is SVG"),
    "SVG with a mark of byte order": (b"\xef\xbb\xbf" + SVG, "it is SVG"),
    "SVG in UTF-16": (SVG.decode().encode("utf-16"), "neither PNG, JPEG nor text"),
    "SVG behind a long comment": (b"<!--" + b"a" * 5000 + b"-->" + SVG, "application/xml; allowed"),
    "compressed SVG": (gzip.compress(SVG), "it is gzip"),
    "HTML": (HTML, "it is HTML"),
    "HTML behind spaces": (b"\n\n   " + HTML, "it is HTML"),
    "a script": (b"alert(1)", "neither JSON nor XML"),
    "JSON": (b'{"image": "a"}', "application/json; allowed"),
    "XML": (b"<a/>", "application/xml; allowed"),
    "nothing": (b"", "it is empty"),
    "spaces": (b"   ", "it is empty"),
    "zeros": (bytes(1000), "NUL"),
    "GIF": (encode("GIF"), "it is GIF"),
    "WebP": (encode("WEBP"), "it is WebP"),
    "TIFF": (encode("TIFF"), "it is TIFF"),
    "BMP": (encode("BMP"), "it is BMP"),
    "PDF": (PDF, "it is PDF"),
    "ZIP": (make_zip(), "it is ZIP"),
    "a program": (b"\x7fELF" + bytes(100), "it is a program"),
    "half a PNG": (encode()[:-20], "damaged PNG"),
    "the head of a PNG": (encode()[:8], "damaged PNG"),
    "a PNG with a wrong checksum": (damage_checksum(), "a checksum is wrong"),
    "a PNG that begins with another chunk": (encode()[:8] + make_chunk(b"tEXt", b"a") + encode()[8:], "damaged PNG"),
    "a PNG with 30,000 chunks": (encode()[:33] + make_chunk(b"tEXt", b"") * 30_000 + encode()[33:], "20000 parts"),
    "a JPEG without its end": (encode("JPEG")[:-2], "it has no end"),
    "half a JPEG": (encode("JPEG")[:60], "damaged JPEG"),
    "a JPEG with 30,000 segments": (b"\xff\xd8" + b"\xff\xe1\0\x02" * 30_000 + b"\xff\xd9", "20000 parts"),
    "a JPEG filled with 0xFF": (b"\xff\xd8" + b"\xff" * 100_000, "20000 parts"),
    "a PNG and a ZIP": (encode() + make_zip(), "bytes behind its end"),
    "a PNG and HTML": (encode() + HTML, "bytes behind its end"),
    "a PNG and a PNG": (encode() + encode(), "bytes behind its end"),
    "a PNG with HTML in its text": (insert_chunk(b"tEXt", b"Comment\0<ScRiPt>alert(1)</script>"), "something else"),
    "a PNG with a ZIP in its text": (insert_chunk(b"tEXt", b"Comment\0" + make_zip()), "something else"),
    "a PNG with a PDF in its text": (insert_chunk(b"tEXt", b"Comment\0" + PDF), "something else"),
    "a PNG with PHP in its text": (insert_chunk(b"iTXt", b"Comment\0\0\0\0\0<?php system('id');"), "something else"),
    "a PNG with HTML in its pixels": (store_in_pixels(HTML), "something else"),
    "a JPEG and a ZIP": (encode("JPEG") + make_zip(), "bytes behind its end"),
    "a JPEG and HTML": (encode("JPEG") + HTML, "bytes behind its end"),
    "a JPEG with a ZIP in a comment": (insert_segment(b"\xfe", make_zip()), "something else"),
    "a JPEG with HTML in a comment": (insert_segment(b"\xfe", HTML), "something else"),
    "a JPEG with SVG in its metadata": (insert_segment(b"\xe1", SVG), "something else"),
    "a PNG with the name of a GIF": (b"GIF89a" + encode(), "it is GIF"),
    "a PNG behind HTML": (HTML + encode(), "neither PNG, JPEG nor text"),
}
