"""Requests of users, made from the facts of a catalogue, and how well each software fits them."""

from .generator import RequestGenerator, split_of
from .previews import draw_preview
from .request import SUITABLE, Request, answer_question, grade

__all__ = ["SUITABLE", "Request", "RequestGenerator", "answer_question", "draw_preview", "grade", "split_of"]
