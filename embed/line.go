package embed

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A line is the requests that wait for the model. Texts of any of them go through it together where they have about the
// same length: a vector's bits depend on the text alone, not on what else is in the pass.
type line struct {
	now func() time.Time

	mu      sync.Mutex
	waiting []*job
	// running says that a goroutine runs passes, which it does as long as anybody waits.
	running bool
	stats   Stats
}

// Stats count what an embedder did.
type Stats struct {
	// Passes counts passes, Texts those that went through them, and Joined those of them that were not of the request
	// which was first.
	Passes, Texts, Joined int64
	// Waiting is how many requests have texts that are in no pass yet.
	Waiting int
}

// A job is the texts of a request that no pass had yet, the longest first.
type job struct {
	ctx    context.Context
	since  time.Time
	prompt int
	texts  []encoded
	// out takes what passes give; there is room for all of it.
	out chan pooled
}

// A pooled is the state of a text, or why there is none, and none of what follows.
type pooled struct {
	text   int
	vector []float32
	err    error
}

// A part is texts of a job that are in a pass.
type part struct {
	*job
	texts []encoded
}

// Stats returns what the embedder did so far.
func (e *Embedder) Stats() Stats {
	e.line.mu.Lock()
	defer e.line.mu.Unlock()
	s := e.line.stats
	s.Waiting = len(e.line.waiting)
	return s
}

// Together is how many texts of the greatest length share a pass at most; of shorter ones more do.
func (e *Embedder) Together() int {
	f := e.folder
	if f.encoder == nil || f.table != nil {
		return 1
	}
	longest := f.encoder.Positions
	if most := e.opts.MaxTokens; most > 0 && (longest == 0 || most < longest) {
		longest = most
	}
	return max(passTokens/max(e.padded(longest), 1), 1)
}

// wait has a request's texts go through the model, and gives their states as they come.
func (e *Embedder) wait(ctx context.Context, j *job, give func(text int, vector []float32)) error {
	l, left := &e.line, len(j.texts)
	j.ctx, j.out = ctx, make(chan pooled, left+1)
	l.mu.Lock()
	i := len(l.waiting)
	for i > 0 && j.since.Before(l.waiting[i-1].since) {
		i--
	}
	l.waiting = slices.Insert(l.waiting, i, j)
	if !l.running {
		l.running = true
		go e.run()
	}
	l.mu.Unlock()
	defer l.leave(j)
	for ; left > 0; left-- {
		if err := ctx.Err(); err != nil {
			return err
		}
		select {
		case p := <-j.out:
			if p.err != nil {
				return p.err
			}
			give(p.text, p.vector)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// leave forgets a job.
func (l *line) leave(j *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(x *job) bool { return x == j })
}

// run runs passes until nobody waits.
func (e *Embedder) run() {
	for {
		parts, length := e.next()
		if len(parts) == 0 {
			return
		}
		err := e.shared(parts, length)
		if err == nil {
			continue
		}
		for _, p := range parts {
			if len(parts) > 1 { // whose fault it was shows when each goes alone
				err = e.shared([]part{p}, length)
			}
			if err != nil {
				e.line.leave(p.job)
				select {
				case p.out <- pooled{err: err}:
				default: // it has one
				}
			}
		}
	}
}

// next takes the texts of the next pass: those of the first request, the longest, and what is about as long of the others.
func (e *Embedder) next() (parts []part, length int) {
	l := &e.line
	l.mu.Lock()
	defer l.mu.Unlock()
	room, least := 0, 0
	for i, j := range slices.Clone(l.waiting) {
		if i == 0 {
			length = e.padded(len(j.texts[0].ids))
			room = max(passTokens/max(length, 1), 1)
			least = e.padded(len(j.texts[e.together(j.texts)-1].ids))
		}
		begin := slices.IndexFunc(j.texts, func(t encoded) bool { return e.padded(len(t.ids)) <= length })
		if begin < 0 || room == 0 {
			continue
		}
		end := begin
		for end < len(j.texts) && end-begin < room && e.padded(len(j.texts[end].ids)) >= least {
			end++
		}
		if begin == end {
			continue
		}
		p := part{j, slices.Clone(j.texts[begin:end])}
		j.texts = slices.Delete(j.texts, begin, end)
		room -= len(p.texts)
		if len(j.texts) == 0 {
			l.waiting = slices.DeleteFunc(l.waiting, func(x *job) bool { return x == j })
		}
		if parts = append(parts, p); i > 0 {
			l.stats.Joined += int64(len(p.texts))
		}
		l.stats.Texts += int64(len(p.texts))
	}
	if l.running = len(parts) > 0; l.running {
		l.stats.Passes++
	}
	return parts, length
}

// shared runs a pass, as long as anybody is there whose texts are in it.
func (e *Embedder) shared(parts []part, length int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var here atomic.Int64
	here.Store(int64(len(parts)))
	for _, p := range parts {
		stop := context.AfterFunc(p.ctx, func() {
			if here.Add(-1) == 0 {
				cancel()
			}
		})
		defer stop()
	}
	return e.pass(ctx, parts, length)
}
