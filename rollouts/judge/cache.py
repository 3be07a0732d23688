"""Where the replies of a judge are kept: text in a config, which may be somebody else's, names no folder elsewhere."""

from ...errors import ConfigError
from ...utils.files import expand_path, get_cache_folder

FILE = "judge.sqlite"


def find_cache_folder(name: object) -> object:
    """Return the folder of a judge's replies: inside the user's cache folder if a config names it.

    Args:
        name: text is the name of a folder in there, because a config may be somebody else's. Anything else (a `Path`,
            which only a program can give, or None) is returned as it is.

    Raises:
        ConfigError: the name leads out of the user's cache folder.

    >>> find_cache_folder("reports").relative_to(get_cache_folder() / "judge").as_posix()
    'reports'
    """
    if not isinstance(name, str):
        return name
    root = (get_cache_folder() / "judge").resolve()
    try:
        folder = (root / expand_path(name)).resolve()
        inside = name.strip() and folder != root and folder.is_relative_to(root)
    except (OSError, ValueError, RuntimeError):  # a zero byte in it, a circle of links
        inside = False
    if not inside:
        raise ConfigError(
            f"cache = {name!r:.200}: replies are kept in your cache folder; allowed: the name of a folder in {root}",
            key="cache",
            given=name,
        )
    return folder
