package transformers_test

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A stepper feeds tokens of one sequence to a model that runs step by step.
type stepper struct {
	session *optimem.Session
	blocks  []int64
	at      int
	passes  int
	// ring are the blocks for windows that the sequence has in turn, none where they are those of all.
	ring []int64
	// keys and state are what the model keeps.
	keys, state bool
	// lengths is how many tokens the sequence will have, where the model wants to know.
	lengths int
}

// newStepper returns a stepper whose sequence lies in the blocks given, of a model with room for more. A number of
// blocks says that windows have so many.
func newStepper(t testing.TB, model *models.Model, context int, opts optimem.Options, ring ...int) *stepper {
	t.Helper()
	n := graph.Blocks(context)
	o := models.StepOptions{Blocks: n + 3, Context: context, States: 3}
	if len(ring) > 0 {
		o.WindowBlocks = ring[0] + 1
	}
	steps, err := model.Steps(o)
	if err != nil {
		t.Fatal(err)
	}
	session, err := optimem.Start(t.Context(), steps, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	s := &stepper{session: session}
	s.keys, s.state = model.Keeps()
	if stretch, _ := model.Stretch(); stretch > 0 && context > stretch {
		s.lengths = context
	}
	for i := range n {
		s.blocks = append(s.blocks, int64(n+2-i))
		if len(ring) > 0 {
			s.ring = append(s.ring, int64(1+(i+2)%ring[0]))
		}
	}
	return s
}

// feed runs a pass over tokens that follow, and returns the logits of all of them.
func (s *stepper) feed(t testing.TB, tokens []int64) []float32 {
	t.Helper()
	positions, wanted := make([]int64, len(tokens)), make([]int64, len(tokens))
	var tables, windows []int64
	for i := range tokens {
		positions[i], wanted[i] = int64(s.at+i), int64(i)
		tables, windows = append(tables, s.blocks...), append(windows, s.ring...)
	}
	in := optimem.Values{
		models.StepTokens: tensor.Of(tokens, len(tokens)), models.StepPositions: tensor.Of(positions, len(tokens)),
		models.StepWanted: tensor.Of(wanted, len(tokens)),
	}
	if s.keys {
		in[models.StepBlocks] = tensor.Of(tables, len(tokens), len(s.blocks))
	}
	if len(s.ring) > 0 {
		in[models.StepWindowBlocks] = tensor.Of(windows, len(tokens), len(s.ring))
	}
	if s.state { // passes take turns between two places
		places := slices.Repeat([]int64{graph.StateBefore, graph.StateNone}, len(tokens))
		s.passes++
		places[len(places)-1] = int64(1 + s.passes%2)
		if places[0] = int64(1 + (s.passes-1)%2); s.at == 0 {
			places[0] = graph.StateNone
		}
		in[models.StepStates] = tensor.Of(places, len(tokens), 2)
	}
	if s.lengths > 0 {
		in[models.StepLengths] = tensor.Of(slices.Repeat([]int64{int64(s.lengths)}, len(tokens)), len(tokens))
	}
	out, err := s.session.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	s.at += len(tokens)
	logits, err := tensor.Slice[float32](out[models.StepLogits])
	if err != nil {
		t.Fatal(err)
	}
	return logits
}

// TestStepsOfFolder: the logits of a text that is read in parts are those of the whole text.
func TestStepsOfFolder(t *testing.T) {
	ckpt, err := loader.Open(filepath.Join(configFolder, "tiny_llama"))
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tokens := make([]int64, 30)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range tokens {
		tokens[i] = rng.Int64N(32)
	}
	session, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	out, err := session.Run(t.Context(), optimem.Values{"input_ids": tensor.Of(tokens, 1, len(tokens))})
	if err != nil {
		t.Fatal(err)
	}
	want, err := tensor.Slice[float32](out["logits"])
	if err != nil {
		t.Fatal(err)
	}
	s := newStepper(t, model, 32, optimem.Options{})
	var got []float32
	for at := 0; at < len(tokens); {
		n := min(1+rng.IntN(7), len(tokens)-at)
		got = append(got, s.feed(t, tokens[at:at+n])...)
		at += n
	}
	if len(got) != len(want) {
		t.Fatalf("%d logits, want %d", len(got), len(want))
	}
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-5 {
			t.Fatalf("logit %d is %v, want %v", i, got[i], want[i])
		}
	}
}
