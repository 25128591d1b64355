"""Writes masks.json, the grammars and texts of BenchmarkGrammars and benchmarks/run_grammar.py: python masks.py > masks.json"""
import json

WORD = "Ada \"L\" Lovelace, Gräfin"
person = {"type": "object", "properties": {
    "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "email": {"type": "string", "pattern": "^[a-z0-9.]+@[a-z]+\\.[a-z]{2,3}$"},
    "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}},
    "address": {"type": "object", "properties": {"street": {"type": "string", "maxLength": 40},
                                                  "zip": {"type": "string", "pattern": "^\\d{5}$"}},
                "required": ["street"], "additionalProperties": False},
    "friends": {"type": "array", "items": {"$ref": "#"}}}, "required": ["name", "age"]}
person_text = {"name": WORD, "age": 36, "email": "ada.l@example.org", "tags": ["red", "blue"],
               "address": {"street": "12 St James's Square", "zip": "12345"},
               "friends": [{"name": "Charles Babbage", "age": 44, "friends": []}]}


def nested(depth):
    leaf = {"type": "object", "properties": {"id": {"type": "integer"}, "note": {"type": "string", "maxLength": 200}}, "required": ["id", "note"]}
    for i in range(depth):
        leaf = {"type": "object", "properties": {"level": {"const": i}, "title": {"type": "string"}, "inner": leaf}, "required": ["level", "title", "inner"]}
    return leaf


def nested_text(depth):
    text = {"id": 7, "note": "a note of some length, with commas: and 漢字 too"}
    for i in range(depth):
        text = {"level": i, "title": f"Level number {i}", "inner": text}
    return text


obj = lambda props, **more: {"type": "object", "properties": props, "required": list(props), **more}
string = {"type": "string"}
schemas = [
    ("person", person, person_text),
    ("any value", {}, {"a": [1, -2.5e3, None, True, "x\ny \u00e9"], "b": {"c": {"d": ["deep", {"e": "deeper"}]}}}),
    ("nested objects", nested(8), nested_text(8)),
    ("enum of 300", {"enum": [f"{a} {b}" for a in "red green blue violet orange crimson teal navy black white".split()
                              for b in "apple pear plum cherry fig lemon lime mango melon grape peach kiwi date olive onion leek bean pea rice oat wheat rye corn soy beet kale chard cress dill mint".split()]},
     "violet mango"),
    ("patterns", obj({"word": {"type": "string", "pattern": "^[A-Za-z]+( [A-Za-z]+)*$"}, "no e": {"type": "string", "pattern": "^[^e]*$"},
                      "code": {"type": "string", "pattern": "^[A-Z]{2,8}-\\d{3,9}(-[a-z_]{1,32})?$"}, "has": {"type": "string", "pattern": "needle"},
                      "path": {"type": "string", "pattern": "^(/[^/]+)+/?$"}}),
     {"word": "The quick brown Fox", "no e": "a short string without it 漢字", "code": "ABC-12345-some_part", "has": "in hay a needle lies", "path": "/usr/local/share/man"}),
    ("formats", obj({"d": {"format": "date"}, "t": {"format": "date-time"}, "u": {"format": "uuid"}, "ip": {"format": "ipv4"}}),
     {"d": "2024-02-29", "t": "2024-02-29T23:59:59.125Z", "u": "123e4567-e89b-12d3-a456-426614174000", "ip": "192.168.10.255"}),
    ("numbers", obj({"a": {"type": "integer", "minimum": -1234, "maximum": 98765}, "b": {"type": "number", "minimum": 0, "exclusiveMaximum": 1000},
                     "c": {"type": "number"}, "d": {"type": "array", "items": {"type": "integer", "minimum": 7, "maximum": 132}}}),
     {"a": -987, "b": 999.125, "c": -1.5e-07, "d": [7, 10, 99, 132]}),
    ("short strings", obj({"a": {"type": "string", "maxLength": 10}, "b": {"type": "string", "minLength": 3, "maxLength": 30}, "c": {"type": "string", "minLength": 20}}),
     {"a": "ten charsX", "b": "between three and thirty", "c": "at least twenty characters, and more"}),
    ("long string", {"type": "string", "minLength": 5, "maxLength": 1500}, "The quick brown fox jumps over the lazy dog; größer als 漢字. " * 5),
    ("arrays", {"type": "array", "items": {"type": "array", "prefixItems": [{"type": "number"}, string, {"type": "boolean"}], "items": False, "minItems": 3}, "minItems": 1, "maxItems": 20},
     [[1, "a word", True], [2.5, "another \"word\"", False]]),
    ("any of", {"type": "array", "items": {"anyOf": [obj({"type": {"const": "text"}, "text": string}), obj({"type": {"const": "image"}, "url": {"type": "string", "pattern": "^https?://[^ ]+$"}}),
                                                     {"type": "integer"}, {"type": "null"}, {"type": "array", "items": string}]}},
     [{"type": "text", "text": "what is said"}, {"type": "image", "url": "https://example.org/a.png?x=1"}, 5, None, ["a", "b c"]]),
    ("further properties", {"type": "object", "properties": {"name": string, "names": string}, "additionalProperties": {"type": ["string", "integer"]}},
     {"name": "one", "namesake": "two", "other": 3, "yet another": "four"}),
    ("any properties", {"type": "object", "additionalProperties": {"type": "array", "items": {}}}, {"first": [1, {"x": "y"}], "second": ["text, here", []]}),
    ("tree", {"$ref": "#/$defs/n", "$defs": {"n": obj({"value": string, "left": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}, "right": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}})}},
     {"value": "root", "left": {"value": "a leaf", "left": {"value": "deeper", "left": None, "right": None}, "right": None}, "right": None}),
    ("60 properties", obj({f"field_{i}": [string, {"type": "integer"}, {"type": "boolean"}, {"enum": ["low", "medium", "high"]}][i % 4] for i in range(60)}),
     {f"field_{i}": [f"value of {i}", i, i % 8 == 2, "medium"][i % 4] for i in range(60)}),
    ("60 optional", {"type": "object", "properties": {f"key{i}": [string, {"type": "integer"}, {"type": "boolean"}][i % 3] for i in range(60)}},
     {f"key{i}": [f"value of {i}", i, i % 2 == 0][i % 3] for i in range(0, 60, 3)}),
]
js = r'''root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [1-9] [0-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}'''
c = r'''root ::= (declaration)*
declaration ::= type " " identifier "(" parameter? ")" "{" ws statement* "}" ws
type ::= "int" | "float" | "char"
identifier ::= [a-zA-Z_] [a-zA-Z_0-9]*
parameter ::= type " " identifier
statement ::= (type " " identifier ws "=" ws expression ";" ws) | (identifier ws "=" ws expression ";" ws) | (identifier ws "(" argList? ")" ";" ws) |
  ("return" ws expression ";" ws) | ("while" "(" condition ")" "{" ws statement* "}" ws) | ("for" "(" forInit ";" ws condition ";" ws forUpdate ")" "{" ws statement* "}" ws) |
  ("if" "(" condition ")" "{" ws statement* "}" ws ("else" "{" ws statement* "}" ws)?) | comment
forInit ::= type " " identifier ws "=" ws expression | identifier ws "=" ws expression
forUpdate ::= identifier ws "=" ws expression
condition ::= expression ws relation ws expression
relation ::= "<=" | "<" | "==" | "!=" | ">=" | ">"
expression ::= term (ws ("+" | "-") ws term)*
term ::= factor (ws ("*" | "/") ws factor)*
factor ::= identifier | number | "-" factor | identifier "(" argList? ")" | "(" ws expression ws ")" | string
argList ::= expression ("," ws expression)*
number ::= [0-9]+
string ::= "\"" [^"\n\\]* "\""
comment ::= "//" [^\n]* "\n" ws
ws ::= [ \t\n]*'''
c_text = '''int main(int argc_count){
  // it counts what is there, größer & 漢字
  int total = 0;
  for(int i = 0; i < argc_count; i = i + 1){
    total = total + (i * -factor(i, 3)) / 2;
    print("the total so far", total);
  }
  return total;
}
'''
gbnf = [
    ("json", js, json.dumps(person_text, ensure_ascii=False)),
    ("arithmetic", 'root  ::= (expr "=" term "\\n")+\nexpr  ::= term ([-+*/] term)*\nterm  ::= num | "(" expr ")"\nnum   ::= [0-9]+', "(12+3*(4-5))/67=89\n1=1\n"),
    ("c", c, c_text),
    ("list", 'root ::= ("- " [^\\n]+ "\\n")+', "- the first item\n- größer, 漢字\n- a third one (with marks)\n"),
    ("numbered list", 'root ::= item+\nitem ::= [1-9] [0-9]? ". " [A-Z] [^\\r\\n]{2,80} "\\n"', "1. The first item of them\n2. Another one: größer, 漢字\n"),
    ("all", "root ::= .*", 'what is "this"?\n漢字 größer'),
    ("no quote", 'root ::= [^"]*', "it is so, 漢字 größer"),
    ("no e", 'root ::= [^e]* "e" [^x]{2,5}', "what is in this then it"),
    ("until", 'root ::= .* "\\"end\\""', 'it "en" is "end"'),
    ("words", 'root ::= [a-z]+ (" " [a-z]+)*', "the quick brown fox jumps over the lazy dog"),
    ("sentences", 'root ::= sentence+\nsentence ::= [A-Z] [a-z]* (("," | ";")? " " [a-z]+)* [.!?] " "?', "The quick brown fox, so it is said, jumps. Over the lazy dog! "),
    ("short", "root ::= [a-zA-Z ]{1,40}", "the quick brown Fox jumps over the"),
    ("ascii", "root ::= [\\x20-\\x7e\\n]*", 'what is "this"?\nIt is text.'),
    ("identifier", "root ::= [a-zA-Z_] [a-zA-Z0-9_]*", "a_name9_of_things"),
    ("scripts", "root ::= ([а-яА-ЯёЁ]+ | [ぁ-ゟ゠-ヿ一-龯]+ | [à-ÿ]+ | [a-z ]+ | [\\U0001F300-\\U0001FAFF])*", "привет мир 漢字かなカナ àéü strasen 🐝🐝 ende"),
    ("accents", "root ::= [a-zà-ÿ ]{3,200}", "gröser als das überflüssige mas am ende"),
    ("nesting", 'root ::= t ";"\nt ::= [^();]* ("(" t ")" [^();]*)*', "a text (with ((some) (nesting, größer)) in) it;"),
    ("nested words", 'root ::= e\ne ::= [a-z ]* ("[" e "]" [a-z ]* | "{" e "}" [a-z ]* | "<" e ">" [a-z ]*)*', "a text [with {some <more> words} in it] and so"),
    ("deep", 'root ::= "[" root "]" | "(" root root ")" | [a-z]* ', "[[[[[[([[a]]([[b]]c))]]]]]]"),
    ("alternatives", "root ::= (" + " | ".join(json.dumps(f"{a}{b}{c} ") for a in ("", "un", "re", "over", "out") for b in "do load turn write read play work run build make take form act test sort".split()
                                             for c in ("", "ing", "er", "able", "s")) + ")+", "unloading rewrites overplays outruns doable "),
    ("xml", 'root ::= element\nelement ::= "<" name (" " name "=\\"" [^"<&]* "\\"")* (">" content "</" name ">" | "/>")\ncontent ::= ([^<&] | "&" ("lt" | "gt" | "amp") ";" | element)*\nname ::= [a-z] [a-z0-9-]*',
     '<page id="one two"><p>Some text &amp; more <b>bold größer</b></p><br/></page>'),
    ("markdown", 'root ::= block+\nblock ::= ("#"{1,6} " " line | "- " line | "```" [a-z]* "\\n" (line)* "```\\n" | line) \nline ::= [^\\n`#-] [^\\n]* "\\n" | "\\n"',
     "# A heading\n\nSome text, größer.\n- an item\n```go\nfunc main() {}\n```\nThe end\n"),
]
cases = [{"name": n, "schema": s, "text": json.dumps(t, ensure_ascii=False)} for n, s, t in schemas]
cases += [{"name": n, "gbnf": s, "text": t} for n, s, t in gbnf]
print("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]")
