"""Writes a language model of half a megabyte into a folder: a Llama with weights drawn by chance, always the same.

    build/engine/venv/bin/python tests/engine/model.py FOLDER

Its answers mean nothing, but it is served, cached and stored as a model of any size is. The tokenizer learns from the texts
that come with Python's own help.
"""
import pydoc_data.topics
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 2048
CONTEXT = 8192
ROLES = ('system', 'user', 'assistant', 'tool')
SPECIAL = ['<|pad|>', '<|bos|>', '<|eos|>', *('<|%s|>' % role for role in ROLES), '<|end|>']
TEMPLATE = '''{{ bos_token }}{% if tools %}<|system|>{{ tools | tojson }}<|end|>{% endif %}
{%- for m in messages %}<|{{ m['role'] if m['role'] in ['user', 'assistant', 'tool'] else 'system' }}|>
{%- if m['content'] is string %}{{ m['content'] }}{% elif m['content'] %}{{ m['content'] | map(attribute='text') | join('') }}{% endif -%}
{%- for c in m['tool_calls'] or [] %}{{ c['function'] | tojson }}{% endfor -%}
<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}'''


def tokenizer():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(pydoc_data.topics.topics.values(), trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=SPECIAL,
        show_progress=False))
    fast = PreTrainedTokenizerFast(tokenizer_object=made, pad_token=SPECIAL[0], bos_token=SPECIAL[1], eos_token=SPECIAL[2])
    fast.chat_template = TEMPLATE
    return fast


def network():
    torch.manual_seed(7)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, max_position_embeddings=CONTEXT, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        tie_word_embeddings=True)).to(torch.bfloat16)


if __name__ == '__main__':
    tokenizer().save_pretrained(sys.argv[1])
    network().save_pretrained(sys.argv[1])
