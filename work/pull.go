package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// pullWait is how long a server holds a request for the next item before it answers that there is none, and so how long
// a worker that stops waits at most until it asks no more.
var pullWait = 2 * time.Second

// maxPull is how many items a consumer is asked for at once, at most. A subscription has room for so many, and for what
// says that there are no more.
const maxPull = 1 << 12

// A pullRequest is what asks a consumer for items (ADR-13).
type pullRequest struct {
	Batch   int           `json:"batch"`
	NoWait  bool          `json:"no_wait,omitempty"`
	Expires time.Duration `json:"expires,omitempty"`
}

// pull asks a consumer once and returns what it sends. Unlike Fetch of the client library it does not leave when ctx is
// done, but when the server has ended the request: an item that was on its way then would go to nobody until the time
// is over in which this worker may acknowledge it.
func (q *Queue) pull(ctx context.Context, consumer string, r pullRequest) (messages []*nats.Msg, err error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	inbox := q.conn.NewInbox()
	sub, err := q.conn.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }() // the server sends no more, or it is drained
	if err := q.conn.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+q.name+"."+consumer, inbox, text); err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.Expires+20*time.Second)
	defer cancel()
	for len(messages) < r.Batch {
		m, err := sub.NextMsgWithContext(wait)
		if err != nil {
			messages, left := drain(sub, messages) // the server is away, or was started anew and knows of no request
			if errors.Is(err, context.DeadlineExceeded) {
				err = left
			}
			return messages, err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			messages = append(messages, m)
		case "100": // a sign of life
		case "404", "408": // no more items; the time is over
			return messages, nil
		case "503":
			return messages, nats.ErrNoResponders
		default:
			return messages, fmt.Errorf("the server answers %s: %s", status, m.Header.Get("Description"))
		}
	}
	return messages, nil
}

// drain ends a subscription and appends the items that came until the server has heard of it.
func drain(sub *nats.Subscription, messages []*nats.Msg) ([]*nats.Msg, error) {
	if err := sub.Drain(); err != nil {
		return messages, err
	}
	for {
		m, err := sub.NextMsg(20 * time.Second)
		if errors.Is(err, nats.ErrBadSubscription) || errors.Is(err, nats.ErrTimeout) {
			return messages, nil // all was read, and it is closed
		}
		if err != nil {
			return messages, err
		}
		if m.Header.Get("Status") == "" {
			messages = append(messages, m)
		}
	}
}
