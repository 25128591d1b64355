package embed

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/models/transformers"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestPoolingModes computes every mode by hand, with and without the tokens of a prompt, and where they are all there is.
func TestPoolingModes(t *testing.T) {
	states := []float32{1, 8, 3, 2, 8, -1} // three tokens of two numbers
	root := func(n float64) float32 { return float32(math.Sqrt(n)) }
	low := float32(math.Inf(-1))
	for mode, want := range map[string][3][]float32{
		"cls":                  {{1, 8}, {3, 2}, {1, 8}},
		"max":                  {{8, 8}, {8, 2}, {low, low}},
		"mean":                 {{4, 3}, {5.5, 0.5}, {0, 0}},
		"mean_sqrt_len_tokens": {{12 / root(3), 9 / root(3)}, {11 / root(2), 1 / root(2)}, {0, 0}},
		"weightedmean":         {{31. / 6, 9. / 6}, {30. / 5, 1. / 5}, {0, 0}},
		"lasttoken":            {{8, -1}, {8, -1}, {0, 0}},
	} {
		for i, prompt := range []int{0, 1, 5} {
			p := pooling{modes: []string{"cls", mode}}
			got := make([]float32, 4)
			p.pool(got, states, 2, prompt)
			for k, w := range want[i] {
				if g := got[2+k]; g != w && math.Abs(float64(g-w)) > 1e-6 {
					t.Errorf("%s behind %d tokens: %v, want %v", mode, prompt, got[2:], want[i])
				}
			}
			p.prompts = true
			if p.pool(got, states, 2, prompt); got[0] != 1 || mode == "max" && got[2] != 8 {
				t.Errorf("%s: the prompt does not count: %v", mode, got)
			}
		}
	}
}

// TestPadded: lengths grow with texts, by little, and never beyond the positions that there are.
func TestPadded(t *testing.T) {
	e := &Embedder{folder: &Folder{encoder: &transformers.Encoder{}}}
	seen := make(map[int]bool)
	for n := range 512 + 1 {
		p := e.padded(n)
		if p < n || n > 0 && p < 8 || n > 8 && p-n >= max(2, n/16) || p < e.padded(max(n-1, 0)) {
			t.Errorf("%d tokens become %d", n, p)
		}
		seen[p] = true
	}
	if len(seen) > 80 || e.padded(0) != 0 || e.padded(8001) != 8192 {
		t.Errorf("%d lengths; 8001 tokens become %d", len(seen), e.padded(8001))
	}
	e.folder.encoder.Positions = 509
	if e.padded(500) != 509 || e.padded(509) != 509 {
		t.Errorf("500 tokens become %d of 509", e.padded(500))
	}
	e.folder.encoder.Positions = 5
	if e.padded(1) != 5 || e.padded(5) != 5 {
		t.Errorf("a token becomes %d of 5", e.padded(1))
	}
}

// TestTogether: texts share passes so that padding and passes cost the least, as trying all ways to cut them shows.
func TestTogether(t *testing.T) {
	e := &Embedder{folder: &Folder{encoder: &transformers.Encoder{}}, near: passTokens}
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		texts := make([]encoded, 1+random.IntN(40))
		for i := range texts {
			texts[i].ids = make([]uint32, random.IntN(40))
		}
		slices.SortFunc(texts, func(a, b encoded) int { return len(b.ids) - len(a.ids) })
		var lengths []int
		for _, text := range texts {
			if n := e.padded(len(text.ids)); n > 0 {
				lengths = append(lengths, n)
			}
		}
		if len(lengths) == 0 {
			continue
		}
		for _, worth := range []int{0, 20, passWorth, pagedWorth} {
			least := make([]int, len(lengths)+1) // of the texts from i on
			for i := len(lengths) - 1; i >= 0; i-- {
				least[i] = math.MaxInt
				for j := i + 1; j <= len(lengths); j++ {
					least[i] = min(least[i], (j-i)*lengths[i]+worth+least[j])
				}
			}
			cost := 0
			for at := 0; at < len(lengths); {
				n := e.together(texts[at:], worth)
				if n < 1 || at+n > len(lengths) {
					t.Fatalf("%d texts of %d share a pass", n, len(lengths)-at)
				}
				cost += n*lengths[at] + worth
				at += n
			}
			if cost != least[0] {
				t.Errorf("%v, a pass worth %d: %d, and %d is the least", lengths, worth, cost, least[0])
			}
		}
	}
}

// TestNearTokens: passes of narrow models are small where their weights are in memory, and only there.
func TestNearTokens(t *testing.T) {
	for _, c := range []struct {
		width, threads int
		device         string
		want           int
	}{
		{384, 1, "", 341}, {384, 2, "cpu", 682}, {384, 1000, "", passTokens}, {16, 1, "", passTokens}, {nearWidth, 1, "", 227},
		{nearWidth + 1, 1, "", passTokens}, {384, 1, "cuda", passTokens},
	} {
		got := nearTokens(c.width, runtime.Options{Threads: c.threads, Device: c.device})
		if got != c.want {
			t.Errorf("%+v: %d tokens", c, got)
		}
	}
	e := &Embedder{near: 5}
	if e.passTokens() != 5 {
		t.Errorf("%d tokens in memory", e.passTokens())
	}
	if e.paged.Store(true); e.passTokens() != passTokens {
		t.Errorf("%d tokens of weights that are brought", e.passTokens())
	}
}

// TestFilled: what is left of texts of a length goes with shorter ones through a pass of a shape that was there, where
// little is padded.
func TestFilled(t *testing.T) {
	e := &Embedder{folder: &Folder{encoder: &transformers.Encoder{}}}
	texts := func(lengths ...int) (list []encoded) {
		for _, n := range lengths {
			list = append(list, encoded{ids: make([]uint32, n)})
		}
		return list
	}
	for i, c := range []struct {
		texts []encoded
		n     int
		want  int
	}{
		{texts(20, 20, 18, 18, 18), 2, 2}, // none was full
		{texts(20, 20, 20, 20), 4, 4},
		{texts(20, 20, 18, 18, 18), 2, 4},
		{texts(20, 18, 18), 1, 1}, // there are no more
		{texts(20, 8, 8, 8), 1, 1},
		{texts(18, 18, 16, 16), 2, 2}, // of another length
	} {
		if got := e.filled(c.texts, c.n, 4, passWorth); got != c.want {
			t.Errorf("case %d: %d texts, not %d", i, got, c.want)
		}
	}
}

// TestWiden: elements of tables and layers become float32 whatever they are stored as.
func TestWiden(t *testing.T) {
	order := binary.NativeEndian
	pair := func(a, b []byte) []byte { return slices.Concat(a, b) }
	for d, raw := range map[tensor.DType][]byte{
		tensor.Float32:  pair(order.AppendUint32(nil, math.Float32bits(1.5)), order.AppendUint32(nil, math.Float32bits(-2))),
		tensor.Float64:  pair(order.AppendUint64(nil, math.Float64bits(1.5)), order.AppendUint64(nil, math.Float64bits(-2))),
		tensor.Float16:  pair(order.AppendUint16(nil, 0x3e00), order.AppendUint16(nil, 0xc000)),
		tensor.BFloat16: pair(order.AppendUint16(nil, 0x3fc0), order.AppendUint16(nil, 0xc000)),
	} {
		got := make([]float32, 2)
		if !widen(got, d, raw) || !slices.Equal(got, []float32{1.5, -2}) {
			t.Errorf("%v: %v", d, got)
		}
	}
	got := make([]float32, 2)
	if !widen(got, tensor.Int8, []byte{3, 0xfe}) || !slices.Equal(got, []float32{3, -2}) {
		t.Errorf("int8: %v", got)
	}
	if widen(nil, tensor.Int64, nil) {
		t.Error("int64 is a float")
	}
}

// TestNormalized: a vector's length becomes 1; zeros stay zeros.
func TestNormalized(t *testing.T) {
	x := []float32{3, -4}
	if normalized(x); !slices.Equal(x, []float32{0.6, -0.8}) {
		t.Errorf("%v", x)
	}
	x = []float32{0, 0}
	if normalized(x); !slices.Equal(x, []float32{0, 0}) {
		t.Errorf("zeros: %v", x)
	}
}

// TestLetters: a text is cut after so many characters, not bytes.
func TestLetters(t *testing.T) {
	for _, c := range []struct {
		most       int
		text, want string
	}{{0, "abc", "abc"}, {2, "ab", "ab"}, {2, "äöü", "äö"}, {3, "äöü", "äöü"}, {1, "ab", "a"}} {
		table := &table{maxLetters: c.most}
		if got := table.letters(c.text); got != c.want {
			t.Errorf("%d of %q: %q", c.most, c.text, got)
		}
	}
	if got := (&table{maxLetters: 4}).letters(strings.Repeat("é", 100)); got != "éééé" {
		t.Errorf("%q", got)
	}
}
