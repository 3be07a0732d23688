"""Prints the table at the end of docs/models.md: `python docs/models_page.py`."""

from viewbox.engines.model_profiles import MODELS


def build_markdown_table() -> str:
    """Return the table in `docs/models.md`."""
    rows = ["| `model_type` | reply format | coordinates | thinking | a tool's image |", "|" + "---|" * 5]
    for model in MODELS:
        size = f" (sides in multiples of {model.pixel_multiple})" if model.pixel_multiple else ""
        tags = ", ".join(f"`{opening}` `{closing}`" for opening, closing in model.thinking or ()).replace("|", "\\|")
        cells = (model.reply_format or "default", f"{model.coordinates or 'default'}{size}", tags or "default")
        place = "in its message" if model.tool_images == "tool" else "in a user message"
        rows.append(f"| {', '.join(f'`{kind}`' for kind in model.kinds)} | {' | '.join(cells)} | {place} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(build_markdown_table(), end="")
