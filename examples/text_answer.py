"""An environment without an answer schema: the model answers in plain text, compared word by word.

python examples/text_answer.py
"""

from PIL import Image, ImageDraw

import viewbox
from viewbox.rewards import TokenF1Reward

SHAPES = ("circle", "square")


class Describe(viewbox.BaseMultiTurnEnv):
    """Describe the one shape on the picture in a sentence."""

    name = "describe"
    max_turns = 3
    tools = ("zoom",)
    # Without `answer`, a reply that calls no tool is the answer; it is compared as the field "text".
    reward = TokenF1Reward(field="text", reference_field="report", stop_words=True)

    @property
    def tasks(self):
        return [
            viewbox.Task(
                f"shape-{shape}",
                prompt={"question": "What is on the picture?"},
                reference={"report": f"a white {shape} on a black background"},
                metadata={"shape": shape},
            )
            for shape in SHAPES
        ]

    def images(self, task):
        image = Image.new("L", (128, 128), 0)
        draw = ImageDraw.Draw(image)
        (draw.ellipse if task.metadata["shape"] == "circle" else draw.rectangle)((40, 40, 88, 88), fill=255)
        return [image]


if __name__ == "__main__":
    env = Describe()
    for reply in ("A white circle on a black background.", "There is a circle."):
        episode = env.play(env.tasks[0], lambda messages, reply=reply: reply)
        print(f"{episode.scores.total:.2f}  {episode.answer['text']}")
