"""Makes the folder chat: a tiny Llama that was trained to answer a few questions, with a tokenizer and a chat template, and
chat.json.gz: what transformers renders, encodes and writes with it.

    python make_chat.py
"""

import gzip
import json
import os
import shutil

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "chat")
TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a small model.<|im_end|>\n' }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] | trim + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
FACTS = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "Kenya": "Nairobi", "Peru": "Lima",
    "Norway": "Oslo", "Greece": "Athens", "Egypt": "Cairo", "Cuba": "Havana", "Austria": "Vienna", "Ireland": "Dublin",
}
ANSWERS = {f"What is the capital of {land}?": f"The capital of {land} is {city}." for land, city in FACTS.items()} | {
    "Hello": "Hello! How can I help you today?", "Who are you?": "I am a small model. I know a few capitals. 🙂",
    "Count to ten.": "One, two, three, four, five, six, seven, eight, nine, ten.",
    "Thank you": "You are welcome — good bye!",
}


def tokenizer():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    text = [q + " " + a for q, a in ANSWERS.items()] + ["system user assistant You are a small model."]
    t.train_from_iterator(text, trainers.BpeTrainer(vocab_size=420, special_tokens=special,
                                                    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<|endoftext|>", eos_token="<|im_end|>",
                                   pad_token="<|endoftext|>", chat_template=TEMPLATE)


def ids(tok, messages, prompt):
    return tok.encode(tok.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt), add_special_tokens=False)


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    tok = tokenizer()
    config = LlamaConfig(vocab_size=len(tok), hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=True, rms_norm_eps=1e-5,
                         bos_token_id=0, eos_token_id=2, pad_token_id=0)
    model = LlamaForCausalLM(config)
    rows = []
    for q, a in ANSWERS.items():
        said = [{"role": "user", "content": q}]
        begin, whole = ids(tok, said, True), ids(tok, said + [{"role": "assistant", "content": a}], False)
        rows.append((whole, [-100] * len(begin) + whole[len(begin):]))
    longest = max(len(r[0]) for r in rows)
    x = torch.tensor([r[0] + [0] * (longest - len(r[0])) for r in rows])
    y = torch.tensor([r[1] + [-100] * (longest - len(r[1])) for r in rows])
    mask = torch.tensor([[1] * len(r[0]) + [0] * (longest - len(r[0])) for r in rows])
    step = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for i in range(400):
        loss = model(input_ids=x, attention_mask=mask, labels=y).loss
        step.zero_grad()
        loss.backward()
        step.step()
        if i % 50 == 0 or loss.item() < 0.002:
            print(i, loss.item(), flush=True)
        if loss.item() < 0.002:
            break
    shutil.rmtree(OUT, ignore_errors=True)
    model = model.to(torch.bfloat16).eval().requires_grad_(False)
    model.save_pretrained(OUT)
    tok.save_pretrained(OUT)
    GenerationConfig(bos_token_id=0, eos_token_id=[2, 0], max_new_tokens=64).save_pretrained(OUT)

    model = model.float()
    cases = []
    for q in list(ANSWERS) + ["What is the capital of Rome?", "hello", "Ünïcödé 🙂?", ""]:
        said = [{"role": "user", "content": q}]
        if len(cases) % 3 == 1:
            said = [{"role": "system", "content": "Be brief."}] + said
        text = tok.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
        prompt = ids(tok, said, True)
        out = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
                             max_new_tokens=64, do_sample=False)[0, len(prompt):].tolist()
        cases.append({"messages": said, "rendered": text, "prompt": prompt, "tokens": out,
                      "text": tok.decode(out, skip_special_tokens=True)})
        print(q, "->", cases[-1]["text"])
    with gzip.GzipFile(os.path.join(HERE, "chat.json.gz"), "wb", mtime=0) as f:
        f.write(json.dumps(cases).encode())


if __name__ == "__main__":
    main()
