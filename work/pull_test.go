package work

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func init() { pullWait = 300 * time.Millisecond } // workers of tests stop quickly

// What a server sends to a pull that is cancelled, or ends, at the same moment is returned, not lost until its time is
// over.
func TestPullLosesNothing(t *testing.T) {
	q := connect(t, embedded(t))
	consumer, err := q.stream.CreateOrUpdateConsumer(t.Context(), jetstream.ConsumerConfig{
		Durable: "all", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	const rounds, expires = 200, 20 * time.Millisecond
	got := 0
	for i := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		pulled := make(chan error)
		go func() {
			messages, err := q.pull(ctx, "all", pullRequest{Batch: 1, Expires: expires})
			got += len(messages)
			pulled <- err
		}()
		time.Sleep(expires + time.Duration(i%20-15)*200*time.Microsecond)
		if err := q.conn.Publish(q.workSubject("x"), []byte(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		if err := q.conn.Flush(); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-pulled; err != nil {
			t.Fatal(err)
		}
	}
	var info *jetstream.ConsumerInfo
	wait(t, "every item is sent, or waits", func() bool {
		info, err = consumer.Info(t.Context())
		return err == nil && info.NumAckPending+int(info.NumPending) == rounds
	})
	if info.NumAckPending != got {
		t.Errorf("%d items were sent, and %d returned", info.NumAckPending, got)
	}
	if got == 0 {
		t.Error("nothing was pulled")
	}
}

// A pull ends by itself when there is nothing.
func TestPullNothing(t *testing.T) {
	q := connect(t, embedded(t))
	if _, err := q.stream.CreateOrUpdateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "all", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	for _, r := range []pullRequest{{Batch: 3, NoWait: true}, {Batch: 1, Expires: 100 * time.Millisecond}} {
		if messages, err := q.pull(t.Context(), "all", r); err != nil || len(messages) != 0 {
			t.Errorf("%+v: %d items, %v", r, len(messages), err)
		}
	}
	if _, err := q.pull(t.Context(), "none", pullRequest{Batch: 1, NoWait: true}); err == nil {
		t.Error("there is no such consumer, and no error")
	}
}
