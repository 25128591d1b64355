"""Records which random JSON values are valid by random schemas, as jsonschema says: python schemas.py --out FILE --count N.

Values have their properties in the schema's order, integers without a fraction and numbers without an exponent, so that the
grammar of a schema must take what is valid and nothing else. Each line: {"schema": …, "values": [[text, valid], …]}.
"""
import argparse, gzip, json, random

import jsonschema

r = random.Random(1)
WORDS = ["a", "b", "ab", "abc", "é", "🐝", "x y", "", "\"q\"", "\n", "name", "12", "a1", "A"]
PATTERNS = ["^[a-c]+$", "b", "^\\d{1,2}$", "^(a|é).*$", "[A-Z]|1$", "^x?\\s?y?$", "^[^a]*$"]


def schema(depth):
    kinds = ["integer", "number", "string", "boolean", "null", "enum", "const"] + (["object", "array", "anyOf", "oneOf", "tuple", "list", "ref"] if depth else [])
    k = r.choice(kinds)
    s = {}
    if k in ("integer", "number"):
        s["type"] = k
        for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if r.random() < 0.3:
                s[key] = r.choice([-120, -10, -3, -1, 0, 1, 2, 9, 10, 55, 100, 999])
    elif k == "string":
        s["type"] = k
        c = r.random()
        if c < 0.3:
            s["pattern"] = r.choice(PATTERNS)
        elif c < 0.7:
            s["minLength"] = r.randrange(3)
            if r.random() < 0.7:
                s["maxLength"] = r.randrange(1, 5)
    elif k in ("boolean", "null"):
        s["type"] = k
    elif k == "enum":
        s["enum"] = [value(None, 1) for _ in range(r.randrange(1, 4))]
    elif k == "const":
        s["const"] = value(None, 1)
    elif k == "object":
        s["type"] = "object"
        names = r.sample(WORDS[:11], r.randrange(4))
        s["properties"] = {n: schema(depth - 1) for n in names}
        s["required"] = [n for n in names if r.random() < 0.4]
        s["additionalProperties"] = r.choice([False, True, schema(0)])
    elif k == "array":
        s["type"] = "array"
        s["items"] = schema(depth - 1)
        if r.random() < 0.5:
            s["minItems"] = r.randrange(3)
        if r.random() < 0.5:
            s["maxItems"] = r.randrange(4)
    elif k == "tuple":
        s["type"] = "array"
        s["prefixItems"] = [schema(depth - 1) for _ in range(r.randrange(1, 4))]
        if r.random() < 0.5:
            s["items"] = r.choice([False, schema(0)])
        if r.random() < 0.5:
            s["minItems"] = r.randrange(4)
    elif k == "anyOf":
        s["anyOf"] = [schema(depth - 1) for _ in range(r.randrange(1, 4))]
    elif k == "oneOf":
        s["oneOf"] = [{"type": "string", "maxLength": 3}, {"type": "integer"}, {"type": "array", "items": schema(depth - 1)}][:r.randrange(1, 4)]
    elif k == "list":
        s["type"] = r.sample(["integer", "string", "null", "boolean", "number"], 2)
    else:
        s["$ref"] = "#/$defs/tree"
    return s


def value(s, depth):
    """A value that mostly fits a schema."""
    if r.random() < 0.12 or s is None or s is True or s is False:
        c = r.randrange(8 if depth else 6)
        return [None, r.random() < 0.5, r.randrange(-20, 130), r.choice([0.5, -1.25, 9.75, 100.5]), r.choice(WORDS), r.choice(WORDS),
                [value(None, 0) for _ in range(r.randrange(3))] if depth else 1,
                {w: value(None, 0) for w in r.sample(WORDS[:8], r.randrange(3))} if depth else 2][c]
    if "const" in s:
        return s["const"]
    if "enum" in s:
        return r.choice(s["enum"])
    if "anyOf" in s or "oneOf" in s:
        return value(r.choice(s.get("anyOf") or s["oneOf"]), depth)
    if "$ref" in s:
        return value(TREE, depth)
    t = s["type"]
    if isinstance(t, list):
        t = r.choice(t)
    if t == "integer":
        return r.choice([r.randrange(-130, 130), r.randrange(-3, 12), r.randrange(-1000, 2000)])
    if t == "number":
        return r.choice([r.randrange(-130, 130), r.randrange(-40, 40) / 4, 0])
    if t == "string":
        return r.choice(WORDS) + (r.choice(WORDS) if r.random() < 0.3 else "")
    if t in ("boolean", "null"):
        return r.random() < 0.5 if t == "boolean" else None
    if t == "array":
        out = [value(p, depth - 1) for p in s.get("prefixItems", [])]
        for _ in range(r.randrange(4)):
            out.append(value(s.get("items"), max(depth - 1, 0)))
        return out[:r.randrange(5)]
    out = {}
    for n, p in s.get("properties", {}).items():
        if n in s.get("required", []) and r.random() < 0.95 or r.random() < 0.5:
            out[n] = value(p, max(depth - 1, 0))
    if r.random() < 0.3:
        n = r.choice([w for w in WORDS if "\"" not in w and "\n" not in w])
        if n not in s.get("properties", {}):
            out[n] = value(s.get("additionalProperties"), 0)
    return out


TREE = {"type": "object", "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
        "required": ["v"], "additionalProperties": False}


def escaped_key(v):
    if isinstance(v, dict):
        return any("\"" in k or "\n" in k or escaped_key(x) for k, x in v.items())
    return isinstance(v, list) and any(escaped_key(x) for x in v)


def main():
    global r
    p = argparse.ArgumentParser()
    p.add_argument("--out", required=True)
    p.add_argument("--count", type=int, default=200)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    r = random.Random(a.seed)
    with gzip.GzipFile(a.out, "wb", 9, mtime=0) as z:
        for _ in range(a.count):
            s = schema(3)
            s["$defs"] = {"tree": TREE}
            check = jsonschema.Draft202012Validator(s)
            values = []
            for _ in range(12):
                v = value(s, 2)
                if escaped_key(v) or "pattern" in json.dumps(s) and "\\n" in json.dumps(v):  # $ of Python is before a newline too
                    continue
                # What a schema spells out, and names, are taken only as they are.
                escaped = r.random() < 0.5 and "\\u" not in json.dumps(s) and "{" not in json.dumps(v) and "pattern" not in json.dumps(s)
                text = json.dumps(v, ensure_ascii=escaped, separators=r.choice([None, (",", ":")]))
                values.append([text, check.is_valid(v)])
            z.write((json.dumps({"schema": s, "values": values}) + "\n").encode())


main()
