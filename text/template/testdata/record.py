"""Records what transformers renders: python record.py TEMPLATES... writes cases of chat templates to standard output.

Each line is one case: {"template": source or name, "request": {...}, "want": text} or "error" instead of "want".
The templates are files; with --expressions N, N random expressions are drawn instead (seed --seed).
"""
import argparse, datetime, gzip, json, os, random, sys

import jinja2
from transformers.utils import chat_template_utils as u

NOW = datetime.datetime(2026, 3, 7, 16, 5, 9, 120034)


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


u.datetime = Clock

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Get the weather <of> a \"city\" & more",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "A city, e.g. Zürich"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            "days": {"type": "array", "items": {"type": "integer"}, "description": "days"}},
            "required": ["city"]}}},
    {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {
        "a": {"type": "number"}, "b": {"type": ["number", "null"]}, "o": {"type": "object", "properties": {"x": {"type": "boolean"}}}},
        "required": ["a", "b"]}, "return": {"type": "number"}}},
]
DOCS = [{"title": "Bees", "text": "Bees make honey."}, {"title": "Tea", "text": "Tea is\nmade of leaves."}]
PLAIN = [{"role": "user", "content": "Hello, who are you?"}]
MULTI = [
    {"role": "system", "content": "You are kind.\n\nCutting Knowledge: none "},
    {"role": "user", "content": " What is 1 < 2 & 'x'? "},
    {"role": "assistant", "content": "<think>\nIt holds.\n</think>\n\nYes \"it\" is. \U0001f41d"},
    {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": "Because.", "reasoning_content": "Numbers are ordered.\n"},
    {"role": "user", "content": "Grüße\n"},
]
CALLS = [
    {"role": "system", "content": "Use tools."},
    {"role": "user", "content": "Weather in Zürich?"},
    {"role": "assistant", "content": "", "tool_calls": [
        {"id": "call12345", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": [1, 2], "unit": None}}}]},
    {"role": "tool", "tool_call_id": "call12345", "name": "get_weather", "content": "{\"t\": 12.5, \"s\": \"sun\"}"},
    {"role": "assistant", "content": "12.5 degrees."},
    {"role": "user", "content": "Add 1 and 2.5"},
    {"role": "assistant", "content": None, "reasoning_content": "Call add.", "tool_calls": [
        {"id": "abcdefghi", "type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2.5, "o": {"x": True, "y": 1e20}}}},
        {"id": "abcdefghj", "type": "function", "function": {"name": "add", "arguments": {"a": -3, "b": 0.1}}}]},
    {"role": "tool", "tool_call_id": "abcdefghi", "name": "add", "content": "3.5"},
    {"role": "tool", "tool_call_id": "abcdefghj", "name": "add", "content": "-2.9"},
]
PARTS = [
    {"role": "user", "content": [{"type": "text", "text": "Look:"}, {"type": "image"}, {"type": "text", "text": " what is it? "}]},
    {"role": "assistant", "content": [{"type": "text", "text": "A bee."}]},
    {"role": "user", "content": [{"type": "text", "text": "Sure?"}]},
]
TEXT = json.loads(json.dumps(CALLS))
for m in TEXT:
    for c in m.get("tool_calls") or []:
        c["function"]["arguments"] = json.dumps(c["function"]["arguments"])
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}

REQUESTS = {
    "plain": dict(messages=PLAIN, add_generation_prompt=True),
    "multi": dict(messages=MULTI, add_generation_prompt=True),
    "multi off": dict(messages=MULTI, add_generation_prompt=True, extra=dict(enable_thinking=False, thinking=False)),
    "tools": dict(messages=CALLS, tools=TOOLS, add_generation_prompt=True),
    "tools on": dict(messages=CALLS[:6], tools=TOOLS, add_generation_prompt=False,
                     extra=dict(enable_thinking=True, thinking=True, reasoning_effort="high", date_string="1 May 2026")),
    "tool text": dict(messages=TEXT, tools=TOOLS, add_generation_prompt=True),
    "parts": dict(messages=PARTS, add_generation_prompt=False),
    "documents": dict(messages=MULTI[:2], documents=DOCS, add_generation_prompt=True),
    "continued": dict(messages=MULTI[:3], continue_final_message=True),
    "empty": dict(messages=[]),
}


def render(source, request):
    r = json.loads(json.dumps(request))
    kwargs = {**TOKENS, **r.pop("extra", {})}
    out, _ = u.render_jinja_template([r["messages"]], tools=r.get("tools"), documents=r.get("documents"), chat_template=source,
        add_generation_prompt=r.get("add_generation_prompt", False),
        continue_final_message=r.get("continue_final_message", False), **kwargs)
    return out[0]


def case(source, name, request):
    try:
        return {"template": name, "request": request, "want": render(source, REQUESTS[request])}
    except Exception as e:
        return {"template": name, "request": request, "error": type(e).__name__ + ": " + str(e)[:200]}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out")
    p.add_argument("files", nargs="+")
    a = p.parse_args()
    lines = [{"tokens": TOKENS, "requests": REQUESTS, "now": NOW.isoformat()}]
    for f in a.files:
        source = open(f, newline="").read()
        name = os.path.basename(f).removesuffix(".jinja")
        lines.append({"name": name, "source": source})
        lines += [case(source, name, r) for r in REQUESTS]
    text = "".join(json.dumps(l) + "\n" for l in lines)
    with gzip.GzipFile(a.out, "wb", 9, mtime=0) as z:
        z.write(text.encode())


main()
