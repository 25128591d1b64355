package runtime

import (
	"context"
	"time"
)

// A Priority says which of the requests that wait for a model goes first: 1 before 2, up to [LastPriority]. 0 is
// [DefaultPriority], and more than the last is the last.
type Priority int

// The priorities.
const (
	FirstPriority   Priority = 1
	DefaultPriority Priority = 4
	LastPriority    Priority = 7
)

// PriorityStep is what one step of a priority is worth: who waits so long is as good as who came now a step before it.
const PriorityStep = 10 * time.Second

// Since returns when a request counts as having come that came then. Requests go in the order of what this returns, so
// that one of the last priority is overtaken only by those that came within (LastPriority − FirstPriority) ×
// PriorityStep after it, a minute, and nothing waits for good.
func (p Priority) Since(came time.Time) time.Time {
	if p <= 0 {
		p = DefaultPriority
	}
	return came.Add(time.Duration(min(p, LastPriority)-FirstPriority) * PriorityStep)
}

// CallOptions say how a call of a member of a pool waits. The zero value is right.
type CallOptions struct {
	// Priority says which of the member's calls that wait go first. A turn that has begun is not interrupted, and calls
	// of other members do not count.
	Priority Priority
	// Into are tensors for the outputs, as [Session.RunInto] takes them; nil has the call make them.
	Into Values
}

// RunWith is [Member.Run] for a call that waits as options say.
func (m *Member) RunWith(ctx context.Context, in Values, opts CallOptions) (Values, error) {
	c := &call{ctx: ctx, in: in, into: opts.Into, done: make(chan struct{}), since: opts.Priority.Since(m.pool.now())}
	if err := m.do(c); err != nil {
		return nil, err
	}
	return c.x.out, nil
}
