// Package work has many machines run models over items that wait in a queue of NATS JetStream, which a worker can hold in itself.
//
// A submitter puts the inputs of an item into an object store and a note of them into a work queue; workers with the model take
// notes, as many as share a pass, put the outputs into another object store and only then acknowledge. An output's key is a hash
// of the model, the device, and the inputs: work that is repeated, because a worker died or was slow, puts the same bits in the
// same place, so that nothing is lost and nothing is there twice. What cannot be run goes to a dead-letter stream with the reason.
//
// Inputs are arrays, or pictures as files have them, which workers have become numbers while passes run.
//
// Items of a model that writes are prompts, many of which it answers at once; outputs are answers, the same for the
// same seed. Those of a model that makes vectors are texts.
//
// It does not know how a model runs, or where files come from.
//
//	server, err := work.Embed(dir, "127.0.0.1:4222") // or a server elsewhere
//	queue, err := work.Connect(ctx, work.Options{URL: server.URL(), Stream: "pictures"}) // defer queue.Close()
//	err = queue.Work(ctx, registry, work.WorkerOptions{Progress: progress})
//	err = queue.Submit(ctx, "resnet50", items, work.SubmitOptions{}, func(r work.Result) error { … })
package work

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Options say where a queue is.
type Options struct {
	// URL is where servers are, with commas between.
	URL string
	// Server, where it is not nil, is asked in the place of URL: one of this process, without a network.
	Server *Server
	// Stream names the queue: 1 to 64 of A–Z a–z 0–9 _ -.
	Stream string
	// Credentials is a file of NATS credentials or of the seed of an nkey, CA one of certificates of authorities; "" is
	// none, and those of the host.
	Credentials, CA string
	// Inbox is what the subjects of answers begin with, so that users of one account do not hear each other's; "" is
	// _INBOX.
	Inbox string
	// Replicas is on how many servers of a cluster all of it lies, where it is made now; 0 is 1.
	Replicas int
	// Keep is how long inputs, outputs and reasons are kept, where the queue is made now; 0 is 7 days.
	Keep time.Duration
}

var streamName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// A server is given dialFor to answer and openFor to have its streams and the others of its cluster, and is taken for
// gone when it has not answered for two of pingEvery.
const (
	dialFor   = 10 * time.Second
	openFor   = time.Minute
	pingEvery = 20 * time.Second
)

// maxWaiting is how many items wait in a queue at most. More are refused, and their submitters wait.
const maxWaiting = 1 << 20

// A Queue is a connection to a queue. Any number of goroutines call any methods.
type Queue struct {
	name     string
	conn     *nats.Conn
	js       jetstream.JetStream
	stream   jetstream.Stream
	dead     jetstream.Stream
	in, out  *bucket
	models   jetstream.KeyValue
	lostConn chan struct{}
	// refusal is the last thing that a server did not let us do.
	refusal atomic.Pointer[error]
}

// Connect connects to a queue, which is made where it is not there yet. It waits for servers of a cluster that are away
// for now.
func Connect(ctx context.Context, opts Options) (_ *Queue, err error) {
	if !streamName.MatchString(opts.Stream) {
		return nil, fmt.Errorf("work: %q is no name of a stream: 1 to 64 letters, digits, _ and -", opts.Stream)
	}
	q := &Queue{name: opts.Stream, lostConn: make(chan struct{})}
	settings := []nats.Option{
		nats.Name("optimem"), nats.MaxReconnects(-1), nats.ClosedHandler(func(*nats.Conn) { close(q.lostConn) }),
		nats.Timeout(dialFor), nats.PingInterval(pingEvery), nats.SyncQueueLen(maxPull + 64),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				q.refusal.Store(&err)
			}
		}),
	}
	if opts.Credentials != "" {
		who, err := credentials(opts.Credentials)
		if err != nil {
			return nil, err
		}
		settings = append(settings, who)
	}
	if opts.Inbox != "" {
		settings = append(settings, nats.CustomInboxPrefix(opts.Inbox))
	}
	if opts.CA != "" {
		settings = append(settings, nats.RootCAs(opts.CA))
	}
	if opts.Server != nil {
		opts.URL = opts.Server.URL()
		settings = append(settings, nats.InProcessServer(opts.Server.server))
	}
	if q.conn, err = nats.Connect(opts.URL, settings...); err != nil {
		return nil, fmt.Errorf("%s: %w", redacted(opts.URL), err)
	}
	defer func() {
		if err != nil {
			q.Close()
		}
	}()
	if q.js, err = jetstream.New(q.conn); err != nil {
		return nil, err
	}
	err = patientlyFor(ctx, openFor, func() error {
		err := q.open(ctx, max(opts.Replicas, 1), cmp.Or(opts.Keep, 7*24*time.Hour))
		if refusal := q.refusal.Load(); err != nil && refusal != nil { // a server says so beside, and does not answer
			return fmt.Errorf("the server does not let us: %w", *refusal)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", opts.Stream, err)
	}
	return q, nil
}

// credentials are those of a file: a user's JWT and seed, or the seed of an nkey alone.
func credentials(path string) (nats.Option, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	defer clear(text)
	if bytes.Contains(text, []byte("BEGIN NATS USER JWT")) {
		return nats.UserCredentials(path), nil
	}
	who, err := nats.NkeyOptionFromSeed(path)
	if err != nil {
		return nil, fmt.Errorf("%s: neither NATS credentials nor the seed of an nkey: %w", path, err)
	}
	return who, nil
}

// redacted is a list of addresses without passwords.
func redacted(list string) string {
	var all []string
	for text := range strings.SplitSeq(list, ",") {
		if !strings.Contains(text, "://") {
			text = "nats://" + text
		}
		u, err := url.Parse(text)
		if err != nil {
			all = append(all, "a server")
			continue
		}
		if u.User != nil { // a name alone may be a token
			u.User = url.User("xxxxx")
		}
		all = append(all, u.String())
	}
	return strings.Join(all, ",")
}

// open opens or makes all that a queue has.
func (q *Queue) open(ctx context.Context, replicas int, keep time.Duration) (err error) {
	q.stream, err = q.makeStream(ctx, jetstream.StreamConfig{
		Name: q.name, Subjects: []string{q.name + ".work.>"}, Retention: jetstream.WorkQueuePolicy,
		Discard: jetstream.DiscardNew,
		MaxMsgs: maxWaiting, MaxMsgSize: maxNoteBytes, Replicas: replicas,
		Description: "what optimem's workers are to do",
	})
	if err != nil {
		return err
	}
	q.dead, err = q.makeStream(ctx, jetstream.StreamConfig{
		Name: q.name + "-dead", Subjects: []string{q.name + ".dead.>"}, MaxMsgsPerSubject: 1, MaxAge: keep,
		Replicas:    replicas,
		Description: "what could not be run, and why", AllowDirect: true,
	})
	if err != nil {
		return err
	}
	for name, b := range map[string]**bucket{q.name + "-in": &q.in, q.name + "-out": &q.out} {
		if *b, err = openBucket(ctx, q.js, jetstream.ObjectStoreConfig{Bucket: name, TTL: keep,
			Replicas: replicas}); err != nil {
			return err
		}
	}
	q.models, err = q.js.KeyValue(ctx, q.name+"-models")
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		q.models, err = q.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: q.name + "-models",
			Replicas: replicas})
	}
	if errors.Is(err, jetstream.ErrBucketExists) {
		q.models, err = q.js.KeyValue(ctx, q.name+"-models")
	}
	return err
}

// makeStream opens a stream as it is, or makes it.
func (q *Queue) makeStream(ctx context.Context, config jetstream.StreamConfig) (jetstream.Stream, error) {
	s, err := q.js.Stream(ctx, config.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = q.js.CreateStream(ctx, config)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // somebody made it meanwhile
		s, err = q.js.Stream(ctx, config.Name)
	}
	return s, err
}

// Close ends the connection. Workers and submitters of it end with an error.
func (q *Queue) Close() { q.conn.Close() }

// Output writes the output of an item, by its key: a safetensors file, or an [Answer] as a line of JSON. It is written
// to what begin returns, an empty place, which is asked for again where what was read is not what was put. It is as it
// was put when Output returns nil; [ErrDamaged] says that it cannot be had, and that a worker makes it anew when the
// item is submitted again.
func (q *Queue) Output(ctx context.Context, key string, begin func() (io.Writer, error)) error {
	if err := q.out.get(ctx, key, begin); err != nil {
		return fmt.Errorf("output %.64s: %w", key, err)
	}
	return nil
}

func (q *Queue) workSubject(class string) string { return q.name + ".work." + class }

func (q *Queue) deadSubject(key string) string { return q.name + ".dead." + key }
