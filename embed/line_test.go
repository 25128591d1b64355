package embed_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/optimem/optimem/embed"
	"github.com/optimem/optimem/runtime"
)

// held starts an embedder of which the first pass waits until free is called; lengths are those of the passes so far.
func held(t *testing.T) (e *embed.Embedder, lengths func() []int, begun <-chan struct{}, free func()) {
	t.Helper()
	hold, first := make(chan struct{}), make(chan struct{})
	free = sync.OnceFunc(func() { close(hold) })
	t.Cleanup(free) // before the embedder is closed
	opts := embed.Options{}
	var once sync.Once
	var passes []int
	opts.Session.Observe = func(ev runtime.Event) {
		switch ev.Kind {
		case runtime.GroupDone:
			once.Do(func() { close(first); <-hold })
		case runtime.PassDone:
			for _, o := range ev.Plan.Lowered.Graph.Outputs {
				if o.Name == "last_hidden_state" {
					passes = append(passes, o.Operand.Layout.Shape[1])
				}
			}
		}
	}
	_, e = start(t, longer(t), opts)
	t.Cleanup(free)
	return e, func() []int { return passes }, first, free
}

// longer is a folder that takes texts of a hundred tokens.
func longer(t *testing.T) string {
	folder := named(t, "bert").unpack(t)
	change(t, folder, "sentence_bert_config.json", "", `{"max_seq_length":100}`)
	return folder
}

// inLine returns once so many requests wait.
func inLine(e *embed.Embedder, n int) {
	for e.Stats().Waiting != n {
		time.Sleep(time.Millisecond)
	}
}

// Texts of one padded length, and of others.
const (
	shortText = "more words"
	longText  = "a text of rather more words than that, which takes more than eight tokens in any case, so that it is padded otherwise"
)

// TestLine: texts of requests that wait go through the model together where they have about one length, with the bits
// that each has alone; one whose caller went away holds nobody up.
func TestLine(t *testing.T) {
	e, _, begun, free := held(t)
	_, alone := start(t, longer(t), embed.Options{})
	list := [][]string{{shortText}, {shortText, longText}, {"third"}, {longText, shortText}, {"third"}}
	var calls sync.WaitGroup
	calls.Go(func() { vectors(t, e, "", "first") })
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := e.Embed(ctx, embed.Request{Texts: []string{longText}})
		left <- err
	}()
	inLine(e, 1)
	for i, texts := range list {
		calls.Go(func() {
			if got, want := vectors(t, e, "", texts...), vectors(t, alone, "", texts...); !slices.Equal(got.Data, want.Data) {
				t.Errorf("request %d has other bits than alone", i)
			}
		})
		inLine(e, i+2)
	}
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who went away: %v", err)
	}
	inLine(e, len(list))
	free()
	calls.Wait()
	if s := e.Stats(); s.Passes != 3 || s.Texts != 8 || s.Waiting != 0 || s.Joined != 4+1 {
		t.Errorf("%+v: the first, short ones and long ones are three passes", s)
	}
}

// TestPriorities: requests that wait go by their priority, and one of the last before all that came a minute after it,
// by the test's clock.
func TestPriorities(t *testing.T) {
	e, lengths, begun, free := held(t)
	start, second := time.Now(), 0
	e.SetClock(func() time.Time { return start.Add(time.Duration(second) * time.Second) })
	var calls sync.WaitGroup
	calls.Go(func() { vectors(t, e, "", "first") })
	<-begun
	for i, w := range []struct {
		second   int
		priority runtime.Priority
	}{{0, 7}, {1, 0}, {2, 1}, {31, 0}, {61, 1}} {
		second = w.second // requests that came before it are in line
		calls.Go(func() {
			// Each has a length of its own, and so many texts that a pass costs less than padding.
			texts := slices.Repeat([]string{strings.Repeat("word ", 2*i+1)}, 20)
			if _, err := e.Embed(t.Context(), embed.Request{Texts: texts, Priority: w.priority}); err != nil {
				t.Error(err)
			}
		})
		inLine(e, i+1)
	}
	free()
	calls.Wait()
	if got, want := lengths()[1:], []int{22, 14, 8, 30, 38}; !slices.Equal(got, want) {
		t.Errorf("passes of lengths %v, not %v", got, want)
	}
}
