"""Requests to an endpoint of a model, whose failures end one episode (`ReplyError`) or the run (`EndpointError`)."""

from ...network.connection import Connection as AnyConnection
from ...network.errors import AddressError
from ..generator import GeneratorError, ReplyError


class EndpointError(AddressError, GeneratorError):
    """The endpoint cannot be used at all; ends the run. `status` is the HTTP status that said so, if one did."""


class Connection(AnyConnection):
    """One address of an endpoint, its key, and what is known about it."""

    request_error = ReplyError
    address_error = EndpointError
