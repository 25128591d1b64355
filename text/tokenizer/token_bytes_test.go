package tokenizer_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"github.com/optimem/optimem/text/tokenizer"
)

// TestTokenBytes: the bytes of tokens, put together, are the text that they decode to, whichever tokens they are; a tokenizer of
// which that cannot be said refuses.
func TestTokenBytes(t *testing.T) {
	separate, equal := 0, 0
	for name, file := range files(t) {
		tok, err := tokenizer.Parse(file)
		if err != nil {
			t.Fatal(err)
		}
		begin, err := tok.TokenBytes(true)
		var refused *tokenizer.UnsupportedError
		if errors.As(err, &refused) {
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		later, err := tok.TokenBytes(false)
		if err != nil || len(later) != len(begin) {
			t.Fatalf("%s: %d and %d tokens: %v", name, len(begin), len(later), err)
		}
		separate++
		for id, a := range tok.AddedTokens() {
			if a.Special && int(id) < len(begin) && (len(begin[id]) > 0 || len(later[id]) > 0) {
				t.Errorf("%s: special token %q adds %q and %q", name, a.Content, begin[id], later[id])
			}
		}
		all := tok.AddedTokens()
		for id, bytes := range later {
			added, special := all[uint32(id)]
			if got := tok.Bytes(uint32(id)); special && added.Special && string(got) != added.Content || !added.Special && string(got) != string(bytes) {
				t.Errorf("%s: token %d alone has %q, want %q or %q", name, id, got, bytes, added.Content)
			}
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			var ids []uint32
			var text []byte
			for range 1 + rng.IntN(6) {
				id := rng.IntN(len(later))
				bytes := later[id]
				if len(ids) == 0 {
					bytes = begin[id]
				}
				if len(bytes) > 0 || len(ids) > 0 && text != nil {
					ids, text = append(ids, uint32(id)), append(text, bytes...)
				}
			}
			if !utf8.Valid(text) {
				continue
			}
			if got := tok.Decode(ids, true); got != string(text) {
				t.Fatalf("%s: %v decodes to %q, its bytes are %q", name, ids, got, text)
			}
			equal++
		}
	}
	if separate < 5 || equal < 10000 {
		t.Errorf("%d tokenizers, %d texts: too few", separate, equal)
	}
	t.Logf("%d tokenizers, %d texts", separate, equal)
}
