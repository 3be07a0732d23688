"""An environment with two images of different size a task, played in every stack."""

from PIL import Image

from viewbox.envs.digits import Digits


class TwoDigits(Digits):
    """The digit that is asked for, and beside it the lower half of another canvas."""

    name = "two_digits"

    def count_images(self, task):
        return 2

    def images(self, task):
        (asked,) = super().images(task)
        (other,) = super().images(self.make_drawn(task.metadata["seed"] + 1000))
        return [asked, other.crop((0, other.height // 2, other.width, other.height)).resize((144, 96), Image.NEAREST)]
