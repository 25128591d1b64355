package embed

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A line is the requests that wait for the model. Texts of any of them go through it together where they have about one
// length: a vector's bits depend on its text, not on what else is in the pass.
type line struct {
	now func() time.Time

	mu      sync.Mutex
	waiting []*job
	// full is the length of the last pass that had as many texts as are possible.
	full int
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

// PerPass is how many texts of the greatest length share a pass at most; of shorter ones more do.
func (e *Embedder) PerPass() int {
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
	for i := range j.texts {
		j.texts[i].of = j
	}
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

// next takes the texts of the next pass: of the first request the longest, and of all requests those that are best
// padded to its length.
func (e *Embedder) next() (parts []part, length int) {
	l := &e.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running = len(l.waiting) > 0; !l.running {
		return nil, 0
	}
	first := l.waiting[0]
	length = e.padded(len(first.texts[0].ids))
	all, worth := first.texts, passWorth
	for _, j := range l.waiting[1:] {
		all = append(all[:len(all):len(all)], j.upTo(length, e.padded)...)
	}
	if len(l.waiting) > 1 {
		slices.SortStableFunc(all, func(a, b encoded) int { return e.padded(len(b.ids)) - e.padded(len(a.ids)) })
	}
	if e.paged.Load() {
		worth = pagedWorth
	}
	most := max(e.passTokens()/length, 1)
	for _, t := range all[:e.filled(all, min(e.together(all, worth), most), most, worth)] {
		i := slices.IndexFunc(parts, func(p part) bool { return p.job == t.of })
		if i < 0 {
			i, parts = len(parts), append(parts, part{job: t.of})
		}
		parts[i].texts = append(parts[i].texts, t)
	}
	for _, p := range parts {
		if begin := slices.IndexFunc(p.job.texts, func(t encoded) bool { return t.index == p.texts[0].index }); begin == 0 {
			p.job.texts = p.job.texts[len(p.texts):]
		} else {
			p.job.texts = slices.Delete(p.job.texts, begin, begin+len(p.texts))
		}
		if l.stats.Texts += int64(len(p.texts)); p.job != first {
			l.stats.Joined += int64(len(p.texts))
		}
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(j *job) bool { return len(j.texts) == 0 })
	l.stats.Passes++
	return parts, length
}

// filled is how many of the texts, the longest first, go through a pass of so many, of which most are possible: as many
// as are where a pass of that shape was before, so that it has a plan, and padding costs less than a plan does.
func (e *Embedder) filled(texts []encoded, n, most, worth int) int {
	length := e.padded(len(texts[0].ids))
	if n == most {
		e.line.full = length
	}
	end, padding := min(most, len(texts)), 0
	if e.line.full != length || end < most {
		return n
	}
	for _, t := range texts[n:end] {
		padding += length - e.padded(len(t.ids))
	}
	if padding > worth {
		return n
	}
	return end
}

// upTo are the texts that are padded to a length at most, as many as a pass could have.
func (j *job) upTo(length int, padded func(int) int) []encoded {
	begin := slices.IndexFunc(j.texts, func(t encoded) bool { return padded(len(t.ids)) <= length })
	if begin < 0 {
		return nil
	}
	return j.texts[begin:min(begin+passTokens/shortest, len(j.texts))]
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
