package work

import (
	"context"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/optimem/optimem/runtime"
)

// A model keeps the worker while it has items; another whose items nobody takes has it next, of several the one that
// waited longest.
func TestTurn(t *testing.T) {
	now := time.Unix(0, 0)
	turn := newTurn(time.Minute, func() time.Time { return now })
	may := func(model int, want bool, after time.Duration) {
		t.Helper()
		turn.mu.Lock()
		defer turn.mu.Unlock()
		if ok, d := turn.may(model); ok != want || d != after {
			t.Errorf("at %v: model %d may ask: %v, after %v", now.Sub(time.Unix(0, 0)), model, ok, d)
		}
	}
	may(0, true, 0)
	may(1, true, 0) // nobody has items
	turn.took(0, 2)
	may(1, false, time.Minute)
	may(0, true, 0)
	now = now.Add(time.Second)
	may(2, false, time.Minute)
	now = now.Add(58 * time.Second)
	may(1, false, time.Second)
	now = now.Add(time.Second)
	may(1, false, 0)
	turn.looked(1, false) // others take its items
	may(1, false, time.Minute)
	may(0, true, 0)
	now = now.Add(time.Hour)
	turn.looked(2, true)
	turn.looked(1, true)
	may(0, false, time.Minute)
	turn.ended(0)
	may(2, false, time.Minute) // an item of model 0 is under way still
	turn.ended(0)
	may(0, false, time.Minute)
	may(1, false, time.Minute)
	may(2, true, 0) // it waited longest
	may(0, false, time.Minute)
	may(1, true, 0) // model 2 asked, and had nothing
	may(0, true, 0)
	turn.took(0, 1)
	may(1, false, time.Minute)
	turn.took(1, 1) // it had asked before
	turn.ended(0)
	may(1, true, 0) // what it has under way makes it the next
	may(2, false, time.Minute)
	turn.ended(1)
	may(2, true, 0)
	turn.looked(2, true) // it waits no more
	may(0, true, 0)
}

// Who waits goes on when the turn ends, and when ctx does.
func TestTurnWait(t *testing.T) {
	turn := newTurn(time.Hour, time.Now)
	turn.took(0, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		turn.wait(context.Background(), 1, nil)
	}()
	wait(t, "the other waits", func() bool {
		turn.mu.Lock()
		defer turn.mu.Unlock()
		return len(turn.waits) == 1
	})
	turn.ended(0)
	<-done
	turn.took(1, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	turn.wait(ctx, 0, nil)
	turn = newTurn(time.Millisecond, time.Now)
	turn.took(0, 1)
	looks := 0
	go func() {
		for starves := false; !starves; time.Sleep(time.Millisecond) {
			turn.mu.Lock()
			starves = turn.starve[1]
			if ok, _ := turn.may(0); starves && ok {
				t.Error("who has the turn takes more, though another starves")
			}
			turn.mu.Unlock()
		}
		turn.ended(0)
	}()
	turn.wait(t.Context(), 1, func() bool {
		looks++
		return looks >= 3
	})
	if looks < 3 {
		t.Errorf("it went on after %d looks", looks)
	}
}

// While a model has items under way, another of the same worker takes no more than it had asked for before.
func TestWorkerStays(t *testing.T) {
	server := embedded(t)
	dir := t.TempDir()
	data, err := os.ReadFile(digits)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "digits.pt2"), data, 0o600)
	}
	if err == nil {
		err = os.CopyFS(filepath.Join(dir, "chat"), os.DirFS(chat))
	}
	if err != nil {
		t.Fatal(err)
	}
	begun, hold := make(chan struct{}), make(chan struct{})
	var once sync.Once
	hireFor(t, Options{URL: server.URL(), Stream: "pictures"}, dir, "digits", WorkerOptions{Stay: time.Hour}, func(runtime.Event) {
		once.Do(func() { close(begun) })
		<-hold
	})
	q := connect(t, server)
	wait(t, "the worker tells of both models", func() bool {
		_, err := q.told(t.Context(), "chat")
		return err == nil
	})
	done := make(chan error, 2)
	results := make(chan Result, 100)
	submit := func(model string, items iter.Seq[Item]) {
		done <- q.Submit(t.Context(), model, items, SubmitOptions{}, func(r Result) error {
			results <- r
			return nil
		})
	}
	go submit("digits", pictures(0, 1))
	pending := func(model string) (waiting uint64, under int) {
		told, err := q.told(t.Context(), model)
		if err != nil {
			t.Fatal(err)
		}
		c, err := q.stream.Consumer(t.Context(), told.Class)
		if err != nil {
			t.Fatal(err)
		}
		return c.CachedInfo().NumPending, c.CachedInfo().NumAckPending
	}
	<-begun
	lines, _ := questions(5)
	go submit("chat", prompts(lines))
	wait(t, "prompts are there", func() bool { waiting, under := pending("chat"); return waiting+uint64(under) == 5 })
	time.Sleep(300 * time.Millisecond)
	if waiting, under := pending("chat"); waiting < 4 || under > 1 {
		t.Errorf("%d prompts are under way beside a picture, %d wait", under, waiting)
	}
	close(hold)
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for range 6 {
		if r := <-results; r.Reason != "" {
			t.Errorf("%s: %s", r.Name, r.Reason)
		}
	}
}
