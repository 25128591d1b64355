package transformers_test

import "testing"

// exportedMore are the models of the zoo that see, hear, or read and write.
var exportedMore = []string{"vit", "deit", "dinov2", "clip_text", "clip_vision", "t5", "bart", "whisper-tiny"}

// TestGraphsMore is TestGraphs for those.
func TestGraphsMore(t *testing.T) {
	for _, name := range exportedMore {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sameGraphs(t, name, readConfig(t, name))
		})
	}
}
