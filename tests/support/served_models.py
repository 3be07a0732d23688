"""The models that the specialists of this process share."""

from viewbox.tools.specialists import serving


def forget_servers() -> None:
    """Forget every model, so that a specialist that is made from now on loads its own."""
    with serving._servers_lock:
        serving._servers.clear()
