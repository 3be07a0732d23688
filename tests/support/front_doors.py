"""What the tests of an environment do at each front door: the driver, `viewbox rollout`, verifiers."""

from tests.support import verifiers_server as scripted
from viewbox.core.messages import to_openai_messages


def map_overviews(env):
    """The tasks of an environment by their first image, by which a server tells conversations apart."""
    return {scripted.get_first_image(to_openai_messages(env.reset(task, seed=0).messages)): task for task in env.tasks}
