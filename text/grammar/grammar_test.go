package grammar

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// accepts reports whether a whole text fits, byte by byte.
func accepts(t testing.TB, g *Grammar, text string) bool {
	t.Helper()
	m, err := NewEngine(g, NewVocabulary(nil)).Start()
	if err != nil {
		t.Fatal(err)
	}
	m, err = m.AdvanceBytes([]byte(text))
	if err != nil && !errors.Is(err, ErrRejected) {
		t.Fatal(err)
	}
	return err == nil && m.CanEnd()
}

func parse(t testing.TB, source string) *Grammar {
	t.Helper()
	g, err := ParseGBNF(source)
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	return g
}

const arithmetic = `root  ::= (expr "=" term "\n")+   # two comments
expr  ::= term ([-+*/] term)*
term  ::= num | "(" expr ")"
num   ::= [0-9]+`

const jsonGrammar = `root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [1-9] [0-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}`

// TestGBNF: texts that fit and texts that do not, for everything that the notation has.
func TestGBNF(t *testing.T) {
	for _, c := range []struct{ grammar, yes, no string }{
		{`root ::= "a"`, "a", "|b|aa"},
		{`root ::= "a" | "bc"`, "a|bc", "|ab|abc"},
		{`root ::= "a"*`, "|a|aaaa", "b|ab"},
		{`root ::= "ab"+`, "ab|abab", "|aba"},
		{`root ::= "a"? "b"`, "b|ab", "aab|a"},
		{`root ::= "a"{3}`, "aaa", "aa|aaaa"},
		{`root ::= "a"{2,}`, "aa|aaaaa", "a|"},
		{`root ::= "a"{1,3} "a"?`, "a|aa|aaaa", "|aaaaa"},
		{`root ::= "a"{ 0 , 2 }`, "|a|aa", "aaa"},
		{`root ::= [a-cx]+`, "abcx", "d|abd"},
		{`root ::= [^a-c]`, "d|é|漢|🐝|\n", "a|c|dd"},
		{`root ::= [a-]+`, "a-a", "b"},
		{`root ::= [a-zc-d] [^a-zc-d]`, "x1|z2", "xx|1x"},
		{`root ::= [\]\\"]+`, `]\"`, "a"},
		{`root ::= .`, "a|é|🐝|\n", "|ab"},
		{`root ::= "\x41\u00e9\U0001F41D\t\"\\"`, "Aé🐝\t\"\\", "A"},
		{`root ::= [à-ÿ]+ | [ぁ-ゟ]+`, "éü|あい", "éあ|e"},
		{`root ::= [\u0100-\uFFFF]`, "Ā|漢|\uffff", "\u00ff|🐝"},
		{`root ::= [\u0105-\u0250\U00010345-\U00020123]`, "ą|ł|ɐ|\U00010345|\U00012042|\U00020123", "Ą|ɑ|\U00010344|\U00020124"},
		{"root ::= (\n  \"a\" # one\n  | \"b\"\n) \"c\"\n", "ac|bc", "abc"},
		{"root ::= x-y\nx-y ::= \"1\"\n\n# end", "1", "2"},
		{"root ::= \"a\" |\n \"b\"", "a|b", "ab"},
		{"root ::= \"x\" root \"y\" | \"\"", "|xy|xxxyyy", "x|xxy|xyy"},
		{"root ::= (\"a\"* \"b\"*)*", "|abba|bbb", "c"},
		{"root ::= a a\na ::= \"(\" a* \")\"", "()()|(()())()", "()|()()()"},
		{"root ::= (\"a\" | b)* \"c\"\nb ::= \"x\" b? \"y\"", "c|axyac|xxyyc", "xxyc|xyyc"},
		{arithmetic, "1+2=3\n|(1*(2-3))=45\n9=9\n", "1+2=3|(1=1\n|1+=2\n"},
		{jsonGrammar, `{}|{"a": [1, 2.5e3, "x\n\u00e9", {"b":null}], "c": {}}|{"é":-0}`, `{"a"}|[1]|{"a":01}|{"a":[}]|{"a":"\x"}`},
	} {
		g := parse(t, c.grammar)
		for text := range strings.SplitSeq(c.yes, "|") {
			if !accepts(t, g, text) {
				t.Errorf("%s: does not take %q", c.grammar, text)
			}
		}
		for text := range strings.SplitSeq(c.no, "|") {
			if accepts(t, g, text) {
				t.Errorf("%s: takes %q", c.grammar, text)
			}
		}
	}
	if g := parse(t, jsonGrammar); len(g.nodes) > 3000 {
		t.Errorf("%d nodes: rules that contain themselves are copied", len(g.nodes))
	}
	if g := parse(t, `root ::= .`); accepts(t, g, "\xed\xa0\x80") || accepts(t, g, "\xff") {
		t.Errorf("a surrogate, or what is no UTF-8, is a character")
	}
}

// TestBadGrammarsAreRefused with the class and the line.
func TestBadGrammarsAreRefused(t *testing.T) {
	deep := strings.Repeat("(", 500) + `"a"` + strings.Repeat(")", 500)
	for source, want := range map[string]error{
		"":                                    ErrSyntax,
		`x ::= "a"`:                           ErrSyntax,
		`root ::= a`:                          ErrSyntax,
		`root = "a"`:                          ErrSyntax,
		`root ::= "a`:                         ErrSyntax,
		`root ::= [a`:                         ErrSyntax,
		`root ::= ("a"`:                       ErrSyntax,
		`root ::= "a")`:                       ErrSyntax,
		`root ::= *`:                          ErrSyntax,
		`root ::= "a"{`:                       ErrSyntax,
		`root ::= "a"{3,2}`:                   ErrSyntax,
		`root ::= "\q"`:                       ErrSyntax,
		`root ::= "\ud800"`:                   ErrSyntax,
		`root ::= "\x4"`:                      ErrSyntax,
		"root ::= \"\xff\"":                   ErrSyntax,
		`root ::= <think>`:                    ErrUnsupported,
		`root ::= !<[5]>`:                     ErrUnsupported,
		`root ::= root "a" | "b"`:             ErrUnsupported,
		"root ::= a\na ::= \"x\"? root":       ErrUnsupported,
		"root ::= (a*) root\na ::= \"x\"":     ErrUnsupported,
		`root ::= "a" root`:                   ErrNothing,
		`root ::= []`:                         ErrNothing,
		`root ::= "a"{99999}`:                 ErrLimit,
		`root ::= ((.{999}){999}){999}`:       ErrLimit,
		"root ::= " + deep:                    ErrLimit,
		strings.Repeat("#", maxSourceBytes+1): ErrLimit,
	} {
		_, err := ParseGBNF(source)
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, want) {
			t.Errorf("%.60q: %v, want %v", source, err, want)
		}
	}
	_, err := ParseGBNF("root ::= \"a\"\n\nx ::= [")
	var e *Error
	if !errors.As(err, &e) || e.Where != "line 3" {
		t.Errorf("%v, want line 3", err)
	}
}

// vocabulary makes tokens of the parts of texts, and of single bytes.
func vocabulary(r *rand.Rand, n int, texts ...string) [][]byte {
	tokens := [][]byte{nil} // the end of a sequence
	for b := range 256 {
		tokens = append(tokens, []byte{byte(b)})
	}
	all := strings.Join(texts, "")
	for len(tokens) < n {
		from := r.IntN(len(all))
		tokens = append(tokens, []byte(all[from:min(len(all), from+1+r.IntN(7))]))
	}
	return tokens
}

// TestMasksAreWhatTryingEveryTokenGives, along random walks through grammars with and without recursion.
func TestMasksAreWhatTryingEveryTokenGives(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, source := range []string{
		arithmetic, jsonGrammar, "root ::= a a\na ::= \"(\" a* \")\"", `root ::= ("é" | [à-ÿ] "🐝")* "x"{2,4} .`,
		"root ::= (\"a\" | b)* \"c\"\nb ::= \"x\" b? \"y\"", "root ::= x | \"(\" root \")\" root\nx ::= \"a\"? [^()]{0,3}",
		`root ::= "\"" [^"\\\x7F\x00-\x1F]{0,5} "\"" t
t ::= [^"\\\x7F\x00-\x1F]* | "\"" t`, `root ::= [^\x00-\x1F]{2,4}`,
		`root ::= [a-z\x80-\U0010FFFF]* "0" .*`, `root ::= [^a]{2} "!" | [à-ÿ]{5}`,
		"root ::= t \";\"\nt ::= [^\\x00-\\x1F;]* (\"(\" t \")\" [^\\x00-\\x1F;]*)?",
	} {
		tokens := vocabulary(r, 1200, `{"key": [1, -2.5, "text", {}], "b": null}, ((1+2)*3)=45`+"\n", "éüà🐝xxxx(())()axybyyc,\"]}}", "漢字",
			"the quick brown fox jumps over a lazy dog, and more; Straße über 漢字 🐝🐝 text text text")
		tokens = append(tokens, []byte("éüà"), []byte("àéüàz"), []byte("aé"))
		for _, bulky := range []int32{0, bulky} {
			e := NewEngine(parse(t, source), NewVocabulary(tokens))
			e.bulky = bulky
			for range 6 {
				tryAll(t, r, e, "", 25)
			}
		}
	}
}

// TestMasksOfManyGrammars are what trying every token gives: along a text that fits each, and at random from places of it on.
func TestMasksOfManyGrammars(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for i, c := range maskCases(t) {
		if testing.Short() && i%3 > 0 {
			continue
		}
		g, err := c.grammar()
		if err != nil {
			t.Fatal(err)
		}
		tokens := vocabulary(r, 700, c.Text, " the quick brown fox, größer als 漢字 🐝; \"x\": [1, {}]}\n\\n", c.Text)
		tokens = append(tokens, []byte("\xe6\xbc"), []byte("a\xc3"), []byte("\xa9 x"), []byte("x\xed\xa0\x80"), []byte("  \xff"))
		v := NewVocabulary(tokens)
		for _, bulky := range []int32{0, bulky} {
			e := NewEngine(g, v)
			e.bulky = bulky
			if bulky == 0 {
				e.Prepare(t.Context())
			}
			for j := range 4 {
				from := r.IntN(len(c.Text)) * min(j, 1)
				tryAll(t, r, e, c.Text[:from], 5)
			}
		}
	}
}

// tryAll goes on at random after a text, and wants masks to say of every token what trying it does.
func tryAll(t *testing.T, r *rand.Rand, e *Engine, text string, steps int) {
	t.Helper()
	m, err := e.Start()
	if err == nil {
		m, err = m.AdvanceBytes([]byte(text))
	}
	if err != nil {
		t.Fatal(err)
	}
	for range steps {
		mask, err := m.Mask()
		if err != nil {
			t.Fatal(err)
		}
		var allowed []int
		for id, token := range e.v.tokens {
			_, err := m.Advance(id)
			if err != nil && !errors.Is(err, ErrRejected) {
				t.Fatal(err)
			}
			if mask.Has(id) != (err == nil) {
				t.Fatalf("after %q: the mask says %v of %q, trying says %v", text, mask.Has(id), token, err)
			}
			if err == nil {
				allowed = append(allowed, id)
			}
		}
		if len(allowed) == 0 {
			if !m.CanEnd() {
				t.Fatalf("after %q: no way on", text)
			}
			break
		}
		id := allowed[r.IntN(len(allowed))]
		text += string(e.v.tokens[id])
		if m, err = m.Advance(id); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMatchersGoBackAndForget: an older matcher stays what it was, also after the engine forgot its states.
func TestMatchersGoBackAndForget(t *testing.T) {
	e := NewEngine(parse(t, jsonGrammar), NewVocabulary([][]byte{nil, []byte("{"), []byte("}"), []byte(`{"a":`), []byte(`"x"`), []byte("[[")}))
	start, err := e.Start()
	if err != nil {
		t.Fatal(err)
	}
	old, err := start.Advance(3)
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		for m, want := range map[Matcher]string{start: "010100", old: "010111"} {
			mask, err := m.Mask()
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for id := range want {
				got += string("01"[mask[0]>>id&1])
			}
			if got != want {
				t.Errorf("mask %s, want %s", got, want)
			}
		}
	}
	check()
	m := old
	for i := range 300 {
		if m, err = m.AdvanceBytes([]byte("[1,")); err != nil {
			t.Fatal(err)
		}
		if i == 150 {
			e.forget()
		}
		if _, err = m.Mask(); err != nil {
			t.Fatal(err)
		}
	}
	check()
	if m, err = m.AdvanceBytes([]byte("1")); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		if m, err = m.AdvanceBytes([]byte("]")); err != nil {
			t.Fatalf("bracket %d: %v", i, err)
		}
	}
	if m, err = m.Advance(2); err != nil || !m.CanEnd() {
		t.Errorf("the end: %v", err)
	}
	for _, bad := range []int{-1, 0, 6} {
		if _, err := m.Advance(bad); !errors.Is(err, ErrRejected) {
			t.Errorf("token %d: %v", bad, err)
		}
	}
	for range 2000 {
		if old, err = old.AdvanceBytes([]byte("[")); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrLimit) {
		t.Errorf("two thousand brackets: %v", err)
	}
}

// TestWaysThatLeadNowhereAreNotTaken: a token is allowed only if the text can end some time after it.
func TestWaysThatLeadNowhereAreNotTaken(t *testing.T) {
	for _, source := range []string{
		"root ::= r? \"a\"\nr ::= \"x\" r", "root ::= \"a\" | \"x\" r\nr ::= \"y\" r", `root ::= "a" | "x" []`,
		"root ::= \"a\" | r\nr ::= \"x\" (r | s) \"y\"\ns ::= \"z\" r",
	} {
		m, err := NewEngine(parse(t, source), NewVocabulary([][]byte{[]byte("a"), []byte("x")})).Start()
		if err != nil {
			t.Fatal(err)
		}
		mask, err := m.Mask()
		if _, gone := m.Advance(1); err != nil || !mask.Has(0) || mask.Has(1) || !errors.Is(gone, ErrRejected) {
			t.Errorf("%q: mask %b, %v; x: %v", source, mask, err, gone)
		}
	}
}

// TestAnEndIsPartOfAState: two states of the same places differ if the text may end in one of them.
func TestAnEndIsPartOfAState(t *testing.T) {
	e := NewEngine(parse(t, "root ::= \"x\" t | \"y\" (t | \"\")\nt ::= \"(\" t \")\" | \"z\""), NewVocabulary(nil))
	for _, text := range []string{"x", "y", "x", "y(z)"} {
		m, err := e.Start()
		if err == nil {
			m, err = m.AdvanceBytes([]byte(text))
		}
		if err != nil || m.CanEnd() != (text[0] == 'y') {
			t.Errorf("%q: an end: %v, %v", text, m.CanEnd(), err)
		}
	}
}

// TestStatesAreForgotten: a text with a state of its own for each byte leaves no more states behind than may be kept.
func TestStatesAreForgotten(t *testing.T) {
	e := NewEngine(parse(t, `root ::= "a"{0,1999} "b" "a"{0,1999} "c" "a"{1999}`), NewVocabulary(nil))
	m, err := e.Start()
	if err != nil {
		t.Fatal(err)
	}
	run := strings.Repeat("a", 1999)
	for i, b := range []byte(run + "b" + run + "c" + run) {
		if m.CanEnd() {
			t.Fatalf("an end after %d bytes", i)
		}
		if m, err = m.AdvanceBytes([]byte{b}); err != nil {
			t.Fatalf("byte %d: %v", i, err)
		}
		if len(e.states) > maxStates+1 {
			t.Fatalf("%d states after %d bytes", len(e.states), i)
		}
	}
	if !m.CanEnd() {
		t.Error("no end")
	}
}

// TestAmbiguousGrammarsEndAtALimit: texts that may be at thousands of places, and masks that would take minutes.
func TestAmbiguousGrammarsEndAtALimit(t *testing.T) {
	v := NewVocabulary(vocabulary(rand.New(rand.NewPCG(7, 8)), 3000, strings.Repeat("abcdefgh", 50)))
	for _, source := range []string{
		"root ::= s{500} \"x\"\ns ::= \"a\"? | \"(\" s \")\" | [b-h]{0,20}",
		"root ::= \"\" | a root \"x\" | a root \"y\"\na ::= \"a\"",
	} {
		m, err := NewEngine(parse(t, source), v).Start()
		for i := 0; err == nil && i < 3000; i++ {
			if m, err = m.AdvanceBytes([]byte("a")); err == nil {
				_, err = m.Mask()
			}
		}
		if !errors.Is(err, ErrLimit) {
			t.Errorf("%.40q: %v, want a limit", source, err)
		}
	}
}

func FuzzGBNF(f *testing.F) {
	for _, s := range []string{arithmetic, jsonGrammar, `root ::= ("é" | [^a-c]){2,3} . x*
x ::= "\x41" | x2
x2 ::= [] | y
y ::= "(" root ")"`} {
		f.Add(s, "(1+2)=3\n")
	}
	v := NewVocabulary(vocabulary(rand.New(rand.NewPCG(5, 6)), 400, `{"key": [1, -2.5, "text"]} ((1+2)*3)=45`+"\n"))
	f.Fuzz(func(t *testing.T, source, text string) {
		g, err := ParseGBNF(source)
		if err == nil {
			err = follow(t, NewEngine(g, v), text)
		}
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("an error without a class: %v", err)
		}
	})
}

func FuzzSchema(f *testing.F) {
	f.Add(person, personText)
	f.Add(`{"oneOf": [{"const": {"a": [1]}}, {"prefixItems": [{"$ref": "#/oneOf/0"}], "maxItems": 3}, {"pattern": "^(a|[^b]\\d)+?$", "type": "string"}]}`, `{"a": [1]}`)
	v := NewVocabulary(vocabulary(rand.New(rand.NewPCG(5, 6)), 400, `{"key": [1, -2.5, "text"]}`))
	f.Fuzz(func(t *testing.T, source, text string) {
		g, err := ParseSchema([]byte(source), SchemaOptions{})
		if err == nil {
			err = follow(t, NewEngine(g, v), text)
		}
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("an error without a class: %v", err)
		}
	})
}

// follow goes along a text as far as the grammar does, and wants every mask to say what comes of its tokens of one byte.
func follow(t *testing.T, e *Engine, text string) error {
	m, err := e.Start()
	if err != nil {
		return err
	}
	for i := range min(len(text), 20) {
		mask, err := m.Mask()
		if err != nil {
			return err
		}
		next, err := m.AdvanceBytes([]byte{text[i]})
		if err != nil && !errors.Is(err, ErrRejected) {
			return err
		}
		if mask.Has(1+int(text[i])) != (err == nil) {
			t.Errorf("the mask and the byte %q disagree", text[i])
		}
		if err != nil {
			return nil
		}
		m = next
	}
	return nil
}
