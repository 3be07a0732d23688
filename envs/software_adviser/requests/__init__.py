"""Requests of users, made from the facts of a catalogue, and how well each software fits them."""

from viewbox.envs.software_adviser.requests.generator import RequestGenerator, split_of
from viewbox.envs.software_adviser.requests.previews import draw_preview
from viewbox.envs.software_adviser.requests.relevance import SUITABLE, grade
from viewbox.envs.software_adviser.requests.request import Request, answer_question

__all__ = ["SUITABLE", "Request", "RequestGenerator", "answer_question", "draw_preview", "grade", "split_of"]
