"""What `digits` says to the model, word for word as the shipped model was trained on it.

The default texts (`envs/templates`) are for models that can read a longer instruction; this one has 0.9 million
parameters and knows these sentences. A test holds their bytes.
"""

from viewbox.frozen import FrozenDict

OPENING = """\
{{ system }}
Coordinates are {{ unit }}, x right, y down.
{%- if view_field %}

Pictures have view numbers. A box is in the view whose number you give as "{{ view_field }}" (0: the first picture).
{%- endif %}
{%- if total_calls is not none and max_turns > 1 %}

At most {{ total_calls }} call{{ "" if total_calls == 1 else "s" }} of tools in all.
{%- endif %}

When you are sure, answer with one JSON object: {{ skeleton }}"""

LAST_TURN = "Last turn: no more tool calls. Answer now with {{ keys | join(', ') if keys else 'plain text' }}."

TEMPLATES = FrozenDict(
    opening=OPENING,
    malformed="Not usable: {{ reason }}. Reply with a tool call or with {{ skeleton }}",
    finalise="Stop and answer now with {{ skeleton }}",
    notes="Turn {{ turn }} of {{ max_turns }}. Go on: call a tool or give the final answer.",
    last_turn=LAST_TURN,
)
