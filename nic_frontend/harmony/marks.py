"""The special tokens of harmony, the format in which OpenAI's gpt-oss models read and write
(https://github.com/openai/harmony, docs/format.md):

    <|start|>assistant<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...
"""

from __future__ import annotations

START, END, MESSAGE, CHANNEL = "<|start|>", "<|end|>", "<|message|>", "<|channel|>"
CONSTRAIN, RETURN, CALL = "<|constrain|>", "<|return|>", "<|call|>"
# Their ids in o200k_harmony, the vocabulary of all published models.
IDS = {
    RETURN: 200002,
    CONSTRAIN: 200003,
    CHANNEL: 200005,
    START: 200006,
    END: 200007,
    MESSAGE: 200008,
    CALL: 200012,
}
MARKS = tuple(IDS)
ENDS = (END, RETURN, CALL)  # of a message

ANALYSIS, COMMENTARY, FINAL = "analysis", "commentary", "final"
FUNCTIONS = "functions."  # with which the recipients of calls begin
ASSISTANT = "assistant"
