package grammar

import (
	"errors"
	"strings"
	"testing"
)

// TestSchemas: values that fit and values that do not, for each keyword.
func TestSchemas(t *testing.T) {
	for _, c := range []struct{ schema, yes, no string }{
		{`{"type": "null"}`, "null", "nul;true"},
		{`{"type": ["boolean", "null"]}`, "true;false;null", "0"},
		{`{"type": "integer"}`, "0;-5;123", "01;1.0;+1;-"},
		{`{"type": "number"}`, "0;-5.25;1e9;1E-3", "01;.5;1."},
		{`{"type": "integer", "minimum": 7, "maximum": 132}`, "7;9;10;99;100;132", "6;133;0;07;-8;1000"},
		{`{"type": "integer", "exclusiveMinimum": -13, "maximum": 5}`, "-12;-1;0;5", "-13;6;-100;-0.0"},
		{`{"type": "integer", "minimum": 1200}`, "1200;1999;20000", "1199;999;-5000"},
		{`{"type": "integer", "maximum": -8}`, "-8;-10;-999", "-7;0;8"},
		{`{"type": "integer", "minimum": 1.5, "exclusiveMaximum": 4}`, "2;3", "1;4"},
		{`{"type": "number", "minimum": 0, "exclusiveMaximum": 2}`, "0;0.5;1.999;1", "2;2.0;-0.1;-1"},
		{`{"type": "number", "exclusiveMinimum": -2, "maximum": 1}`, "-1.5;-0.25;0;1;1.00;0.75", "-2;-2.0;1.01;-3"},
		{`{"type": "number", "exclusiveMaximum": 0}`, "-0.5;-3;-0.001", "0;-0;-0.0;0.5"},
		{`{"exclusiveMinimum": 3}`, "3.001;4;99.5", "3;3.0;2.9;-4"},
		{`{"type": "number", "minimum": 3, "maximum": 3}`, "3;3.0", "3.1;2.9"},
		{`{"type": "string"}`, `"";"aé🐝";"\"\\\n";"\ud83d\udc1d"`, `a;"\x";"a;"\ud83d"`},
		{`{"type": "string", "minLength": 2, "maxLength": 3}`, `"ab";"é🐝\n";"\ud83d\udc1dx"`, `"a";"abcd";"\ud83d\udc1d"`},
		{`{"pattern": "^[a-c]+\\d{2}$"}`, `"a12";"abc00"`, `"12";"a1";"xa12";"a123"`},
		{`{"pattern": "^a.b$"}`, `"a b";"a\"b";"a🐝b"`, `"ab";"a\nb";"a\rb"`},
		{`{"pattern": "b|^c"}`, `"b";"abc";"cx"`, `"ac";""`},
		{`{"pattern": "^(?:\"|\\\\|\\n)?[^a-z]\\.$"}`, `"\"A.";"\\1.";"\né.";"É."`, `"a.";"1x"`},
		{`{"format": "date"}`, `"2024-02-29";"2023-12-31";"2000-02-29"`, `"2023-02-29";"1900-02-29";"2023-13-01";"2023-04-31";"2023-1-1"`},
		{`{"format": "date-time"}`, `"2024-02-29T23:59:59Z";"2024-01-01T00:00:00.125+05:30"`, `"2024-02-29 10:00:00Z";"2024-02-29T24:00:00Z"`},
		{`{"format": "uuid"}`, `"123e4567-e89b-12d3-a456-426614174000"`, `"123e4567e89b12d3a456426614174000"`},
		{`{"format": "ipv4"}`, `"0.0.0.0";"255.249.10.1"`, `"256.1.1.1";"1.1.1";"01.1.1.1"`},
		{`{"type": "array", "items": {"type": "null"}}`, "[];[null];[null, null]", "[null,];[1]"},
		{`{"items": {"type": "null"}, "minItems": 2, "maxItems": 3}`, "[null,null];[null,null,null]", "[];[null];[null,null,null,null]"},
		{`{"type": "array", "maxItems": 0}`, "[]", "[1]"},
		{`{"prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}, "minItems": 1}`, "[1];[1,2];[1,2,3,3]", "[];[2];[1,3];[1,2,4]"},
		{`{"prefixItems": [{"const": 1}, {"const": 2}], "items": false}`, "[];[1];[1,2]", "[1,2,3]"},
		{`{"prefixItems": [{"const": 1}, {"const": 2}], "minItems": 3, "maxItems": 4}`, `[1,2,"x"];[1,2,[],{}]`, "[1,2];[1,2,3,4,5]"},
		{`{"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}, "required": ["b"]}`,
			`{"b":2};{"a":1,"b":2};{"b": 2, "c": 3};{"a":1,"b":2,"c":3}`, `{};{"a":1};{"b":2,"a":1};{"b":2,};{,"b":2};{"b":2,"d":1}`},
		{`{"properties": {"a": {"const": 1}, "b": {"const": 2}}}`, `{};{"a":1};{"b":2};{"a":1, "b":2}`, `{"c":1};{"a":1 "b":2}`},
		{`{"type": "object"}`, `{};{"x": [1, {"y": null}]}`, `[];{1:2}`},
		{`{"properties": {"ab": {"const": 1}}, "additionalProperties": {"type": "null"}}`,
			`{};{"ab":1};{"a":null};{"abc":null,"b":null};{"ab":1,"":null}`, `{"ab":null};{"a":1};{"a":null,"ab":1}`},
		{`{"required": ["x"], "additionalProperties": {"type": "integer"}}`, `{"x":1};{"x":1,"y":2}`, `{};{"y":2};{"x":null}`},
		{`{"additionalProperties": {"type": "integer"}}`, `{};{"a":1,"\n":2}`, `{"a":null}`},
		{`{"enum": ["a\"b", 1, null, [1, "x"], {"k": true}]}`, `"a\"b";1;null;[1,"x"];[1, "x"];{"k":true};{"k": true}`, `"a";2;[1];{}`},
		{`{"enum": ["a", 1, 2.5], "type": ["string", "integer"]}`, `"a";1`, "2.5"},
		{`{"const": {"b": [], "a": {}}}`, `{"b":[],"a":{}};{"b": [], "a": {}}`, `{"a":{},"b":[]}`},
		{`{"anyOf": [{"type": "integer"}, {"const": "x"}]}`, `5;"x"`, `"y";1.5`},
		{`{"oneOf": [{"type": "integer"}, {"type": "string"}]}`, `5;"x"`, `null`},
		{`{"oneOf": [{"properties": {"t": {"const": "a"}, "v": {"type": "null"}}, "required": ["t"], "type": "object"}, {"$ref": "#/$defs/b"}],
		  "$defs": {"b": {"properties": {"t": {"enum": ["b", "c"]}}, "required": ["t"], "type": "object"}}}`, `{"t":"a","v":null};{"t":"c"}`, `{"t":"b","v":null};{}`},
		{`{"allOf": [{"type": "integer"}]}`, "5", `"x"`},
		{`{"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["v", "next"]}}}`,
			`{"v":1,"next":null};{"v":1,"next":{"v":2,"next":{"v":3,"next":null}}}`, `{"v":1};{"v":1,"next":{}}`},
		{`{"type": "array", "items": {"$ref": "#"}}`, "[];[[],[[]]]", "[1]"},
		{`{"$ref": "#/definitions/a~1b%25/anyOf/1", "definitions": {"a/b%": {"anyOf": [{"const": 1}, {"const": 2}]}}}`, "2", "1"},
		{`true`, `{"a": [1, null, true, "x", 2.5e1]};5;"x"`, `;{a:1};[1,]`},
		{`{}`, `{"a":1}`, ``},
		{`{"title": "t", "description": "d", "type": "integer", "default": 5, "$schema": "x", "$id": "y"}`, "1", "null"},
	} {
		g, err := ParseSchema([]byte(c.schema), SchemaOptions{})
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		for text := range strings.SplitSeq(c.yes, ";") {
			if !accepts(t, g, text) {
				t.Errorf("%s: does not take %s", c.schema, text)
			}
		}
		for text := range strings.SplitSeq(c.no, ";") {
			if accepts(t, g, text) {
				t.Errorf("%s: takes %s", c.schema, text)
			}
		}
	}
}

// TestWhiteSpaceIsBounded, and can be switched off.
func TestWhiteSpaceIsBounded(t *testing.T) {
	schema := []byte(`{"properties": {"a": {"type": "array"}}}`)
	loose, err := ParseSchema(schema, SchemaOptions{})
	if err != nil {
		t.Fatal(err)
	}
	compact, err := ParseSchema(schema, SchemaOptions{Compact: true})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][2]bool{
		`{"a":[1,2]}`:                               {true, true},
		`{ "a": [ 1, 2 ] }`:                         {true, false},
		"{\n  \"a\": [\n\t\t1,\n    2\n  ]\n}":      {true, false},
		"{  \"a\":[]}":                              {false, false},
		"{\n" + strings.Repeat(" ", 21) + `"a":[]}`: {false, false},
		` {"a":[]}`:                                 {false, false},
	} {
		if got := [2]bool{accepts(t, loose, text), accepts(t, compact, text)}; got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestWhatASchemaCannotSayIsRefused with the class, and the place of the keyword.
func TestWhatASchemaCannotSayIsRefused(t *testing.T) {
	deep := strings.Repeat(`{"items":`, 150) + "true" + strings.Repeat("}", 150)
	for _, c := range []struct {
		schema string
		class  error
		where  string
	}{
		{`{"properties": {"a/b": {"multipleOf": 2}}}`, ErrUnsupported, "/properties/a~1b/multipleOf"},
		{`{"not": {}}`, ErrUnsupported, "/not"},
		{`{"uniqueItems": true}`, ErrUnsupported, "/uniqueItems"},
		{`{"minProperties": 1}`, ErrUnsupported, "/minProperties"},
		{`{"patternProperties": {}}`, ErrUnsupported, "/patternProperties"},
		{`{"if": true}`, ErrUnsupported, "/if"},
		{`{"x-mine": 1}`, ErrUnsupported, "/x-mine"},
		{`{"items": {"$id": "x"}}`, ErrUnsupported, "/items/$id"},
		{`{"format": "email"}`, ErrUnsupported, "/format"},
		{`{"pattern": "a", "maxLength": 3}`, ErrUnsupported, "/pattern"},
		{`{"format": "date", "maxLength": 3}`, ErrUnsupported, "/format"},
		{`{"pattern": "(?=a)b"}`, ErrUnsupported, "/pattern"},
		{`{"pattern": "a\\b"}`, ErrUnsupported, "/pattern"},
		{`{"pattern": "a^b"}`, ErrUnsupported, "/pattern"},
		{`{"pattern": "(a"}`, ErrSyntax, "/pattern"},
		{`{"pattern": "[b-a]"}`, ErrSyntax, "/pattern"},
		{`{"pattern": "a**"}`, ErrSyntax, "/pattern"},
		{`{"pattern": "a{9999}"}`, ErrLimit, "/pattern"},
		{`{"type": "number", "minimum": 0.5}`, ErrUnsupported, "/minimum"},
		{`{"type": "string", "minimum": 5}`, ErrUnsupported, "/minimum"},
		{`{"enum": ["a"], "minLength": 3}`, ErrUnsupported, "/minLength"},
		{`{"anyOf": [true], "oneOf": [true]}`, ErrUnsupported, "/oneOf"},
		{`{"anyOf": [true], "type": "null"}`, ErrUnsupported, "/type"},
		{`{"allOf": [true, true]}`, ErrUnsupported, "/allOf"},
		{`{"oneOf": [{"type": "integer"}, {"type": "number"}]}`, ErrUnsupported, "/oneOf"},
		{`{"oneOf": [{"type": "string"}, {"enum": ["x"]}]}`, ErrUnsupported, "/oneOf"},
		{`{"oneOf": [{"type": "object", "properties": {"a": {"const": 1}}}, {"type": "object", "properties": {"a": {"const": 2}}}]}`, ErrUnsupported, "/oneOf"},
		{`{"items": [{"type": "null"}]}`, ErrUnsupported, "/items"},
		{`{"$ref": "http://x/y"}`, ErrUnsupported, "/$ref"},
		{`{"$ref": "#/no"}`, ErrSyntax, "/$ref"},
		{`{"$ref": "#"}`, ErrUnsupported, ""},
		{`{"type": "thing"}`, ErrSyntax, "/type"},
		{`{"type": []}`, ErrSyntax, "/type"},
		{`{"minLength": -1}`, ErrSyntax, "/minLength"},
		{`{"minLength": "x"}`, ErrSyntax, "/minLength"},
		{`{"maxLength": 99999}`, ErrLimit, "/maxLength"},
		{`{"minimum": 1e999}`, ErrSyntax, "/minimum"},
		{`{"required": "a"}`, ErrSyntax, "/required"},
		{`{"properties": []}`, ErrSyntax, "/properties"},
		{`{"enum": 5}`, ErrSyntax, "/enum"},
		{`{"anyOf": []}`, ErrSyntax, "/anyOf"},
		{`{"properties": {"a": 5}}`, ErrSyntax, "/properties/a"},
		{`{"a": 1, "a": 2}`, ErrSyntax, ""},
		{`[]`, ErrSyntax, ""},
		{`{`, ErrSyntax, ""},
		{`false`, ErrNothing, ""},
		{`{"enum": []}`, ErrNothing, ""},
		{`{"minLength": 3, "maxLength": 2}`, ErrNothing, ""},
		{`{"type": "integer", "minimum": 3, "maximum": 2}`, ErrNothing, ""},
		{`{"properties": {"a": false}, "required": ["a"]}`, ErrNothing, ""},
		{`{"properties": {}, "required": ["a"]}`, ErrNothing, ""},
		{deep, ErrLimit, ""},
		{`{"oneOf": [` + strings.Repeat(`{"const": 1},`, maxBranches) + `{"const": 2}]}`, ErrLimit, "/oneOf"},
		{`{"properties": {"` + strings.Repeat("k", maxKeyBytes+1) + `": true}, "additionalProperties": true}`, ErrLimit, ""},
		{`{"items": {"items": {"maxItems": 2000}, "maxItems": 2000}, "maxItems": 2000}`, ErrLimit, ""},
	} {
		_, err := ParseSchema([]byte(c.schema), SchemaOptions{})
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, c.class) || c.where != "" && e.Where != c.where {
			t.Errorf("%.80s: %v, want %v at %s", c.schema, err, c.class, c.where)
		}
	}
}
