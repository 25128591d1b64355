package grammar

import (
	"encoding/hex"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var tokenFile = flag.String("tokens", "", "a vocabulary for the benchmarks: a token's bytes in hexadecimal on each line")

// benchVocabulary is 128,000 made tokens unless there is a file: words with and without a space before them, numbers, runs of
// punctuation and white space, letters of other scripts.
func benchVocabulary(b testing.TB) [][]byte {
	b.Helper()
	if *tokenFile != "" {
		text, err := os.ReadFile(*tokenFile)
		if err != nil {
			b.Fatal(err)
		}
		var tokens [][]byte
		for line := range strings.SplitSeq(string(text), "\n") {
			token, err := hex.DecodeString(line)
			if err != nil {
				b.Fatal(err)
			}
			tokens = append(tokens, token)
		}
		return tokens
	}
	r := rand.New(rand.NewPCG(3, 4))
	seen := make(map[string]bool)
	var tokens [][]byte
	add := func(s string) {
		if !seen[s] && len(tokens) < 128_000 {
			seen[s] = true
			tokens = append(tokens, []byte(s))
		}
	}
	for i := range 256 {
		add(string([]byte{byte(i)}))
	}
	for i := range 1000 {
		add(strings.TrimLeft("000"[:3-len(itoa(i))]+itoa(i), "")) // 000 … 999
		add(itoa(i))
	}
	letters := []rune("etaoinshrdlucmfwypvbgkjqxzéàüößñçабвгдежзиклмнопрстуф的一是不了人我在有他这中大来上")
	marks := []rune("\",:{}[]().;-_=+*/\\'`<>!?#$%&|~@^ \n\t")
	for len(tokens) < 128_000 {
		n := 1 + int(min(r.ExpFloat64()*4.5, 20))
		var w strings.Builder
		set := letters
		if r.IntN(20) == 0 {
			set, n = marks, 1+n/2
		} else if r.IntN(2) == 0 {
			w.WriteByte(' ')
		}
		script := len(set)
		if set[0] == 'e' {
			script = []int{26, 33, 55, len(letters)}[min(r.IntN(12)/3, 3)]
		}
		for range n {
			w.WriteRune(set[r.IntN(script)])
		}
		add(w.String())
	}
	return tokens
}

func itoa(i int) string {
	if i < 10 {
		return string(rune('0' + i))
	}
	return itoa(i/10) + string(rune('0'+i%10))
}

const person = `{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
	"email": {"type": "string", "pattern": "^[a-z0-9.]+@[a-z]+\\.[a-z]{2,3}$"}, "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}},
	"address": {"type": "object", "properties": {"street": {"type": "string", "maxLength": 40}, "zip": {"type": "string", "pattern": "^\\d{5}$"}},
	"required": ["street"], "additionalProperties": false}, "friends": {"type": "array", "items": {"$ref": "#"}}}, "required": ["name", "age"]}`

const personText = `{"name": "Ada \"L\" Lovelace, Gräfin", "age": 36, "email": "ada.l@example.org", "tags": ["red", "blue"], "address": {"street": "12 St James's Square", "zip": "12345"}, "friends": [{"name": "Charles Babbage", "age": 44, "friends": []}]}`

// BenchmarkMask measures the mask at every byte of a text. cold: nothing is known but the vocabulary's tree; warm: the grammar
// was seen before, the state was not; same: the state was.
func BenchmarkMask(b *testing.B) {
	v := NewVocabulary(benchVocabulary(b))
	schema, err := ParseSchema([]byte(person), SchemaOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name, text string
		g          *Grammar
	}{
		{"schema", personText, schema},
		{"json", personText, parse(b, jsonGrammar)},
		{"arithmetic", "(12+3*(4-5))/67=89\n1=1\n", parse(b, arithmetic)},
	} {
		for _, how := range []string{"cold", "warm", "same"} {
			b.Run(c.name+"/"+how, func(b *testing.B) {
				e := NewEngine(c.g, v)
				// The least of all passes for each place: other programs run too.
				times := make([]time.Duration, len(c.text)+1)
				run := func(measured bool) {
					m, err := e.Start()
					for i := 0; ; i++ {
						if err != nil {
							b.Fatal(err)
						}
						began := time.Now()
						mask, err2 := m.Mask()
						if took := time.Since(began); measured && (times[i] == 0 || took < times[i]) {
							times[i] = took
						}
						if err2 != nil || len(mask) == 0 {
							b.Fatal(err2)
						}
						if i == len(c.text) {
							return
						}
						m, err = m.AdvanceBytes([]byte(c.text[i : i+1]))
					}
				}
				run(how == "cold")
				for b.Loop() {
					switch how {
					case "cold":
						e = NewEngine(c.g, v)
						run(true)
					case "warm":
						e.forget() // all states, but not what tokens do at a place
						run(true)
					case "same":
						run(true)
					}
				}
				slices.Sort(times)
				b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e3, "µs/median")
				b.ReportMetric(float64(times[len(times)*9/10].Nanoseconds())/1e3, "µs/p90")
				b.ReportMetric(float64(times[len(times)-1].Nanoseconds())/1e3, "µs/max")
			})
		}
	}
}

// BenchmarkVocabulary measures making the tree, once for a tokenizer.
func BenchmarkVocabulary(b *testing.B) {
	tokens := benchVocabulary(b)
	for b.Loop() {
		if NewVocabulary(tokens).Len() != len(tokens) {
			b.Fatal("tokens are missing")
		}
	}
}
