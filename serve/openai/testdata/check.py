"""Asks a server what programs with openai-python and langchain-openai ask, and prints what they see.

    python check.py URL

TestClients starts the server and compares what is printed with clients.txt; README.md says how.
"""

import asyncio
import json
import sys
from typing import Literal

import openai
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI as LangChainCompletions, OpenAIEmbeddings
from pydantic import BaseModel

URL = sys.argv[1]
client = openai.OpenAI(base_url=URL + "/v1", api_key="none")
HELLO = [{"role": "user", "content": "Hello"}]
WEATHER = {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]}}, "required": ["city"]}}}


class Answer(BaseModel):
    city: Literal["Rome", "Paris"]
    sure: bool


def say(name, *values):
    print(name + ":", json.dumps(values, ensure_ascii=False, default=str), flush=True)


def models():
    say("models", [m.id for m in client.models.list()], client.models.retrieve("tiny").owned_by)


def chat():
    raw = client.chat.completions.with_raw_response.create(model="tiny", messages=HELLO)
    r = raw.parse()
    say("chat", r.choices[0].message.content, r.choices[0].finish_reason, r.usage.prompt_tokens, r.usage.completion_tokens,
        r.object, r.choices[0].message.role, raw.headers["x-request-id"].startswith("req_"))
    many = client.chat.completions.create(model="tiny", messages=HELLO, n=3, seed=5, temperature=1.5, max_tokens=8)
    again = client.chat.completions.create(model="tiny", messages=HELLO, n=3, seed=5, temperature=1.5, max_tokens=8)
    say("the same again", [c.message.content for c in many.choices] == [c.message.content for c in again.choices],
        len({c.message.content for c in many.choices}) > 1)
    r = client.chat.completions.create(model="tiny", messages=HELLO, logprobs=True, top_logprobs=2, stop=[" How"])
    said = r.choices[0].logprobs.content
    say("logprobs", b"".join(bytes(t.bytes) for t in said).decode(), len(said[0].top_logprobs), said[0].top_logprobs[0].token == said[0].token)


def stream():
    text, usage, why = "", None, None
    for chunk in client.chat.completions.create(model="tiny", messages=HELLO, stream=True, stream_options={"include_usage": True}):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
            why = chunk.choices[0].finish_reason or why
        usage = chunk.usage or usage
    say("stream", text, why, usage.total_tokens, usage.prompt_tokens_details.cached_tokens > 0)

    async def main():
        other = openai.AsyncOpenAI(base_url=URL + "/v1", api_key="none")
        parts = [c.choices[0].delta.content or "" async for c in await other.chat.completions.create(model="tiny", messages=HELLO, stream=True)]
        return "".join(parts)

    say("async stream", asyncio.run(main()))
    with client.chat.completions.stream(model="tiny", messages=HELLO) as events:
        kinds = {e.type for e in events}
        say("stream helper", events.get_final_completion().choices[0].message.content, sorted(kinds))


def formats():
    r = client.chat.completions.parse(model="tiny", messages=[{"role": "user", "content": "What is the capital of Italy?"}], response_format=Answer)
    say("parsed", type(r.choices[0].message.parsed).__name__, r.choices[0].message.parsed.city in ("Rome", "Paris"))
    r = client.chat.completions.create(model="tiny", messages=HELLO, response_format={"type": "json_object"}, max_tokens=60)
    say("json object", r.choices[0].message.content.startswith("{"))


def tools():
    r = client.chat.completions.create(model="tools", messages=HELLO, tools=[WEATHER], tool_choice="required", max_tokens=100)
    call = r.choices[0].message.tool_calls[0]
    say("required call", call.function.name, list(json.loads(call.function.arguments)), r.choices[0].finish_reason, r.choices[0].message.content)
    r = client.chat.completions.create(model="scripted", messages=HELLO, tools=[WEATHER])
    say("calls", r.choices[0].message.content, [(c.type, c.function.name, c.function.arguments) for c in r.choices[0].message.tool_calls], r.choices[0].finish_reason)
    with client.chat.completions.stream(model="scripted", messages=HELLO, tools=[WEATHER]) as events:
        for _ in events:
            pass
        m = events.get_final_completion().choices[0].message
    say("streamed calls", m.content, [(c.function.name, c.function.arguments) for c in m.tool_calls])
    history = HELLO + [r.choices[0].message.model_dump(), {"role": "tool", "tool_call_id": r.choices[0].message.tool_calls[0].id, "content": "sun"}]
    r = client.chat.completions.create(model="tools", messages=history[:3], max_tokens=2)
    say("history", r.usage.completion_tokens)


def completions():
    prompt = "<|im_start|>system\nYou are a small model.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    r = client.completions.create(model="tiny", prompt=prompt, max_tokens=40, logprobs=1)
    say("completion", r.choices[0].text, r.choices[0].finish_reason, "".join(r.choices[0].logprobs.tokens))
    say("streamed completion", "".join(c.choices[0].text for c in client.completions.create(model="tiny", prompt=prompt, max_tokens=40, stream=True)))


def embeddings():
    r = client.embeddings.create(model="vectors", input=["Rome", "capital of France"])
    floats = client.embeddings.create(model="vectors", input=["Rome", "capital of France"], encoding_format="float")
    say("embeddings", [len(d.embedding) for d in r.data], r.usage.prompt_tokens,
        [[round(x, 6) for x in d.embedding] for d in r.data] == [[round(x, 6) for x in d.embedding] for d in floats.data])
    say("dimensions", len(client.embeddings.create(model="vectors", input="Rome", dimensions=3).data[0].embedding))


def errors():
    def fails(name, f):
        try:
            f()
            say(name, "no error")
        except openai.APIError as e:
            say(name, type(e).__name__, getattr(e, "status_code", None), e.code, e.param, e.message[:120])

    fails("no model", lambda: client.chat.completions.create(model="none", messages=HELLO))
    fails("too long", lambda: client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "word " * 500}]))
    fails("unknown", lambda: client.chat.completions.create(model="tiny", messages=HELLO, extra_body={"surprise": 1}))
    fails("a picture", lambda: client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]}]))
    fails("tokens of strangers", lambda: client.embeddings.create(model="vectors", input=[[1, 2]]))
    fails("in the middle", lambda: list(client.chat.completions.create(model="broken", messages=HELLO, stream=True)))
    fails("busy", lambda: client.with_options(max_retries=0).chat.completions.create(model="busy", messages=HELLO))
    r = client.chat.completions.create(model="busy", messages=HELLO)  # comes back when it is told to
    say("retried", r.choices[0].message.content)


def langchain():
    chat = ChatOpenAI(base_url=URL + "/v1", api_key="none", model="tiny", temperature=0)
    r = chat.invoke([SystemMessage("You are a small model."), HumanMessage("Hello")])
    say("langchain", r.content, r.response_metadata["finish_reason"], r.usage_metadata["total_tokens"])
    parts = list(chat.stream("Hello", stream_usage=True))
    say("langchain stream", "".join(p.content for p in parts), [p.usage_metadata["total_tokens"] for p in parts if p.usage_metadata])
    say("langchain batch", [m.content for m in chat.batch(["Hello", "Thank you"])])
    for method in ("json_schema", "function_calling"):
        model = ChatOpenAI(base_url=URL + "/v1", api_key="none", model="tools", max_tokens=120).with_structured_output(Answer, method=method)
        say("langchain " + method, type(model.invoke("What is the capital of Italy?")).__name__)
    tools = ChatOpenAI(base_url=URL + "/v1", api_key="none", model="scripted").bind_tools([WEATHER])
    r = tools.invoke("Hello")
    say("langchain tools", r.content, [(c["name"], c["args"]) for c in r.tool_calls])
    whole = None
    for p in tools.stream("Hello"):
        whole = p if whole is None else whole + p
    say("langchain streamed tools", whole.content, [(c["name"], c["args"]) for c in whole.tool_calls])
    more = tools.invoke([HumanMessage("Hello"), r] + [ToolMessage("sun", tool_call_id=c["id"]) for c in r.tool_calls])
    say("langchain history", len(more.tool_calls))
    text = LangChainCompletions(base_url=URL + "/v1", api_key="none", model="tiny", max_tokens=4, temperature=0)
    say("langchain completions", len(text.invoke("Hello")) > 0)
    vectors = OpenAIEmbeddings(base_url=URL + "/v1", api_key="none", model="vectors", check_embedding_ctx_length=False)
    say("langchain embeddings", len(vectors.embed_query("Rome")), [len(v) for v in vectors.embed_documents(["Rome", "Oslo"])])


print("openai", openai.__version__)
for step in (models, chat, stream, formats, tools, completions, embeddings, errors, langchain):
    step()
