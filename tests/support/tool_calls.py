"""Calls of built-in tools on arrays, pictures and views: what comes back, what is shown, what is refused."""

from viewbox.images.view import View
from viewbox.tools import call_stateful


def call(name, image, arguments=None, **how):
    """The view after a call that succeeds, and its result."""
    now, result = call_stateful(name, image if isinstance(image, View) else View.of(image), arguments or {}, **how)
    assert result.error is None, result.error
    return now, result


def read(name, image, arguments=None, **how):
    """The result of a tool that leaves the view."""
    view = image if isinstance(image, View) else View.of(image)
    now, result = call(name, view, arguments, **how)
    assert now is view
    return result


def facts(name, image, **arguments):
    return read(name, image, arguments).facts


def after(image, *calls):
    """The view after a chain of (name, arguments)."""
    view = image if isinstance(image, View) else View.of(image)
    for name, arguments in calls:
        view, _ = call(name, view, arguments)
    return view


def shown(image, name, **arguments):
    """The pixels after a call, as whole numbers."""
    return after(image, (name, arguments)).to_uint8().astype(int)


def refused(name, image, arguments=None, **how):
    """The words of a call that is refused; it leaves the view."""
    view = image if isinstance(image, View) else View.of(image)
    now, result = call_stateful(name, view, {} if arguments is None else arguments, **how)
    assert now is view
    assert (result.success, result.image) == (False, None)
    return result.error
