"""What the model reads of a task in `chest_xray`."""

from viewbox.envs.vqa.questions import write_choices
from viewbox.records import Task

FORMS = {  # of answers in words, by kind
    "closed": "Answer with yes or no.",
    "choice": "Answer with one of these choices.",
    "open": "Answer in as few words as possible.",
}
FIELDS = {"answer": "answer", "size_mm": "answer", "findings": "findings", "bbox": "bbox"}  # reference -> answer


def write_system_prompt(*, asks: bool, json: bool) -> str:
    """The first sentences of the system prompt. `asks`: the model may ask a question back."""
    how = 'alone in "ask"' if json else "as a reply that ends with a question mark"
    asking = f" You may ask the referring doctor a question, {how}." if asks else ""
    return (
        "You read chest radiographs. The patient's left is on the right of the picture. Tools may be wrong: weigh what "
        f"they say against the film.{asking}"
    )


def write_question(task: Task, *, json: bool) -> str:
    """The question, its choices, and the form of the answer."""
    lines, choices = [str(task.prompt["question"])], task.prompt.get("choices")
    if choices:
        lines.append(write_choices(choices))
    if "answer" in task.reference:
        lines.append(FORMS[str(task.reference.get("kind", "open"))])
    elif "size_mm" in task.reference:
        lines.append("Answer with a number.")
    if json:
        asked = [f'"{name}"' for field, name in FIELDS.items() if field in task.reference]
        lines.append(f"Fill in {' and '.join(asked)}; leave the rest null.")
    return "\n".join(lines)
