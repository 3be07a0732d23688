"""The prompts of `digits`, word for word as the shipped model was trained on them.

The default prompts (`envs/prompts/*.j2`) are written for models that can follow longer instructions. The shipped
model has 0.9 million parameters and knows only these sentences. A test pins their bytes.
"""

from viewbox.frozen import FrozenDict

SYSTEM = """\
{{ system }}
Coordinates are in {{ unit }}: x to the right, y down.
{%- if view_field %}

Every picture has a view number. Give the number of the view that your box refers to as "{{ view_field }}" (0: the first picture).
{%- endif %}
{%- if max_total_calls is not none and max_turns > 1 %}

At most {{ max_total_calls }} tool call{{ "" if max_total_calls == 1 else "s" }} in total.
{%- endif %}

When you are sure, answer with one JSON object: {{ answer_format }}"""

LAST_TURN = "Last turn: no more tool calls. Answer now with {{ keys | join(', ') if keys else 'plain text' }}."

TEMPLATES = FrozenDict(
    system=SYSTEM,
    malformed="Invalid reply: {{ reason }}. Reply with a tool call or with {{ answer_format }}",
    finalize="Stop and answer now with {{ answer_format }}",
    notes="Turn {{ turn }} of {{ max_turns }}. Call a tool or give the final answer.",
    last_turn=LAST_TURN,
)
