package work

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// retryFor is how long a server may be away before who asks it gives up: long enough for a cluster to choose another leader, and
// for a server to be started again.
const retryFor = 2 * time.Minute

// patiently calls f until it succeeds, or fails for another reason than that a server is away for now.
func patiently(ctx context.Context, f func() error) error { return patientlyFor(ctx, retryFor, f) }

// patientlyFor is patiently, for a time.
func patientlyFor(ctx context.Context, d time.Duration, f func() error) error {
	until := time.Now().Add(d)
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := f()
		if err == nil || ctx.Err() != nil || !away(err) || time.Now().After(until) {
			return err
		}
		pause(ctx, wait)
	}
}

// away reports whether an error says that nobody answers for now.
func away(err error) bool {
	for _, e := range []error{
		nats.ErrDisconnected, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrConnectionReconnecting,
		jetstream.ErrNoStreamResponse,
		context.DeadlineExceeded, // that of one request
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	var answer *jetstream.APIError
	return errors.As(err, &answer) && (answer.Code == 503 && answer.ErrorCode != queueFull ||
		answer.ErrorCode == noPlace && strings.Contains(answer.Description, "peer offline"))
}

// noPlace is what a cluster answers that has too few servers for as many replicas: it may have them in a moment.
const noPlace jetstream.ErrorCode = 10005
