"""Small chat templates that treat tools as those of known models do."""

# ruff: noqa: E501 (answers and templates are long)

from __future__ import annotations

import json
from pathlib import Path

from tiny_model import BOS, EOS, write_model

# As Qwen3's: calls as JSON between tags, results in tags, thinking that can be turned off.
HERMES = """
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Answer with <tool_call></tool_call>.<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}"""

# As Llama 3.1's: a call excludes text, and there may be one alone.
LLAMA = """
{%- for message in messages %}
{%- if message.tool_calls %}
{%- if message.tool_calls | length != 1 %}{{ raise_exception("one call at once") }}{% endif %}
<|im_start|>assistant
{"name": "{{ message.tool_calls[0].function.name }}", "parameters": {{ message.tool_calls[0].function.arguments | tojson }}}<|im_end|>
{%- else %}<|im_start|>{{ message.role }}
{% if loop.last and tools %}Write {"name": function name, "parameters": object}. {{ tools | tojson }}{% endif %}{{ message.content }}<|im_end|>
{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

# As DeepSeek-R1's distillations': arguments as they are printed, calls only where the content is none.
DEEPSEEK = """
{%- for message in messages %}
{%- if message.role == "assistant" and message.content is none %}
{%- for call in message.tool_calls %}call {{ call.function.name + " " + call.function.arguments }}
{% endfor %}
{%- else %}{{ message.role }}: {{ message.content }}
{% endif %}{% endfor %}
{%- if add_generation_prompt %}<\uff5cAssistant\uff5c><think>
{% endif %}"""

# As Mistral's: ids of nine characters.
MISTRAL = """
{%- if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}
{%- for message in messages %}
{%- if message.tool_calls %}[TOOL_CALLS][
{%- for call in message.tool_calls %}
{%- if call.id | length != 9 %}{{ raise_exception("ids have nine characters") }}{% endif %}
{{- (call.function | tojson)[:-1] }}, "id": "{{ call.id }}"}{% if not loop.last %}, {% endif %}
{%- endfor %}]
{%- elif message.role == "tool" %}[TOOL_RESULTS]{{ message.tool_call_id }} {{ message.content }}[/TOOL_RESULTS]
{%- else %}[{{ message.role }}]{{ message.content }}
{%- endif %}{% endfor %}"""

# As Phi-4-mini's: tools are a part of the system message, and calls are not known.
PHI = """
{%- for message in messages %}<|{{ message.role }}|>{{ message.content }}
{%- if message.role == "system" and message.tools %}<|tool|>{{ message.tools }}<|/tool|>{% endif %}<|end|>
{%- endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""

# As Gemma 3's: the system's message is a part of the user's first one, and user and model take turns.
GEMMA = """
{%- set first = messages[0].content + "\n" if messages[0].role == "system" else "" %}
{%- for message in (messages[1:] if first else messages) %}
{%- if (message.role == "user") != (loop.index0 % 2 == 0) %}{{ raise_exception("roles must alternate") }}{% endif %}
<start_of_turn>{{ "model" if message.role == "assistant" else message.role }}
{{ (first if loop.first else "") + message.content }}<end_of_turn>
{%- endfor %}
{%- if add_generation_prompt %}
<start_of_turn>model
{% endif %}"""

# As Gemma 2's and Mistral 0.1's: the system has no place at all.
NO_SYSTEM = (
    """
{%- if messages[0].role == "system" %}{{ raise_exception("no system") }}{% endif %}"""
    + GEMMA
)

# As Mistral Small's: users and answers take turns, between which there may be calls and results.
STRICT_MISTRAL = (
    """
{%- set turn = namespace(number=0) %}
{%- for message in (messages[1:] if messages[0].role == "system" else messages) %}
{%- if message.role == "user" or (message.role == "assistant" and not message.tool_calls) %}
{%- if (message.role == "user") != (turn.number % 2 == 0) %}{{ raise_exception("roles must alternate") }}{% endif %}
{%- set turn.number = turn.number + 1 %}
{%- elif message.role not in ("assistant", "tool") %}{{ raise_exception("unknown role") }}{% endif %}
{%- endfor %}"""
    + MISTRAL
)

# As Mistral 0.3's and Nemo's: the system is shown beside the user's turn, where that is the last message.
SYSTEM_AT_THE_END = STRICT_MISTRAL.replace(
    "[{{ message.role }}]{{ message.content }}",
    """
{%- if message.role != "system" %}[{{ message.role }}]
{%- if loop.last and message.role == "user" and messages[0].role == "system" %}{{ messages[0].content }}

{% endif %}{{ message.content }}{% endif %}""",
)


def write_model_with(directory: Path, template: str) -> Path:
    write_model(directory)
    config = {"chat_template": template, "bos_token": BOS, "eos_token": EOS}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory
