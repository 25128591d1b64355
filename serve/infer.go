package serve

import (
	"context"
	"math"
	"time"

	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve/oip"
)

// infer answers a request to a version. What is wrong is an error for [told]. The answer's bytes are charged to b,
// whose owner frees it when they are written.
func (r *Registry) infer(ctx context.Context, v *version, name string, request *oip.Request, b *body) (_ *oip.Response, err error) {
	begin := time.Now()
	c := &call{request: request, name: name, version: v.number, body: b}
	id := request.ID
	if p := passageOf(ctx); p != nil {
		p.model, p.version, id = v.model, v.number, p.id
	}
	defer func() { err = r.finish(ctx, v, c, begin, err, "request", id) }()
	ctx, cancel, err := withTimeout(ctx, request.Parameters)
	if err != nil {
		return nil, err
	}
	defer cancel()
	if c.priority, err = priorityOf(request.Parameters); err != nil {
		return nil, err
	}
	i, release, err := v.use(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	done, err := r.admit(ctx, v, i, c.priority)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := i.infer(ctx, c); err != nil {
		return nil, err
	}
	return c.response, nil
}

// finish counts a call that is over, and returns what is wrong with it for those who asked, nil where nothing is. What
// was wrong here is logged, with what else is known of the call.
func (r *Registry) finish(ctx context.Context, v *version, c *call, begin time.Time, err error, known ...any) error {
	status := 200
	if err != nil {
		e := told(ctx, err)
		if status, err = e.Status, e; status == 500 {
			r.log.Error("a request failed", append([]any{"model", v.name(), "error", e.Err}, known...)...)
		}
	}
	v.stats.done(c, status, time.Since(begin))
	return err
}

// priorityOf is what the parameter priority says: 1 goes first, 0 is as those that say nothing.
func priorityOf(parameters map[string]any) (runtime.Priority, error) {
	switch p := parameters["priority"].(type) {
	case nil:
		return runtime.DefaultPriority, nil
	case int64:
		if p == 0 {
			return runtime.DefaultPriority, nil
		}
		if p > 0 {
			return runtime.Priority(min(p, int64(runtime.LastPriority))), nil
		}
	}
	return 0, refuse(400, "the parameter priority is no number of 0 or more")
}

// withTimeout bounds a request by its parameter timeout, in microseconds.
func withTimeout(ctx context.Context, parameters map[string]any) (context.Context, context.CancelFunc, error) {
	switch us := parameters["timeout"].(type) {
	case nil:
		return ctx, func() {}, nil
	case int64:
		if us >= 0 && us <= math.MaxInt64/1000 {
			if us == 0 { // none, as Triton has it
				return ctx, func() {}, nil
			}
			ctx, cancel := context.WithTimeout(ctx, time.Duration(us)*time.Microsecond)
			return ctx, cancel, nil
		}
	}
	return nil, nil, refuse(400, "the parameter timeout is no number of microseconds")
}
