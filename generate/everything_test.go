package generate_test

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/runtime"
)

// TestEverythingKeepsKeysAndValues: sequences go on with the keys and values of prompts that were there, although everything was given
// back meanwhile: on a device with memory of its own nothing is left of them there, on the CPU they stay, to the byte.
func TestEverythingKeepsKeysAndValues(t *testing.T) {
	for _, device := range []string{"cpu", "emu:memory=64MiB"} {
		fresh := engine(t, generate.Options{})
		e := engine(t, generate.Options{Session: runtime.Options{Device: device}})
		prompt := []int{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2}
		for i := range 3 {
			r := generate.Request{Prompt: append(slices.Clone(prompt), i), MaxTokens: 8}
			want, err := fresh.Generate(t.Context(), r, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.Generate(t.Context(), r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Tokens, want.Tokens) {
				t.Errorf("%s: %v, want %v", device, got.Tokens, want.Tokens)
			}
			caches := e.Session().Metrics().CacheBytes
			if err := e.Session().GiveBack(t.Context(), runtime.Everything); err != nil {
				t.Fatal(err)
			}
			left := int64(0)
			if device == "cpu" {
				left = caches
			}
			if m := e.Session().Metrics(); caches == 0 || m.HeldBytes != left || m.CacheBytes != left {
				t.Errorf("%s: %d bytes are held, %d of caches; %d were", device, m.HeldBytes, m.CacheBytes, caches)
			}
		}
		if e.Stats().SharedTokens == 0 {
			t.Errorf("%s: no keys and values were there", device)
		}
	}
}
