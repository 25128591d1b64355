package work

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrDamaged says that an object of a queue is not whole, or has other bytes than were put there. Who submits its item
// again has it made anew.
var ErrDamaged = errors.New("what is stored is damaged")

// partBytes is what a part of an object takes, below what a message may.
const partBytes = 960 << 10

// partOf is what a part of an object takes on a server: less than usual where messages may not be so long.
func partOf(maxPayload int64) int {
	const others = 4 << 10 // headers and a subject
	return int(max(min(partBytes, maxPayload-others), 1<<10))
}

// A bucket is an object store in the format of NATS (ADR-20), which other programs read. Unlike those of the client
// library it puts an object once: its name appears when each of its parts has been acknowledged, and who comes second
// changes nothing. It reads part by part, so that a server that ends in between costs one request.
type bucket struct {
	jetstream.ObjectStore // to be told of names
	name                  string
	behind                time.Duration // as a replica that answers may be
	js                    jetstream.JetStream
	stream                jetstream.Stream
}

// openBucket opens an object store, or makes it.
func openBucket(ctx context.Context, js jetstream.JetStream, config jetstream.ObjectStoreConfig) (_ *bucket,
	err error) {
	b := &bucket{name: config.Bucket, js: js, behind: 30 * time.Second}
	b.ObjectStore, err = js.ObjectStore(ctx, config.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		b.ObjectStore, err = js.CreateObjectStore(ctx, config)
	}
	if errors.Is(err, jetstream.ErrBucketExists) { // somebody made it meanwhile
		b.ObjectStore, err = js.ObjectStore(ctx, config.Bucket)
	}
	if err == nil {
		b.stream, err = js.Stream(ctx, "OBJ_"+config.Bucket)
	}
	return b, err
}

func (b *bucket) infoSubject(name string) string {
	return "$O." + b.name + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
}

func (b *bucket) partSubject(id string) string { return "$O." + b.name + ".C." + id }

// find returns what is said of an object, nil where there is none, and the message that says so.
func (b *bucket) find(ctx context.Context, name string) (info *jetstream.ObjectInfo, sequence uint64, err error) {
	var m *jetstream.RawStreamMsg
	err = patiently(ctx, func() error {
		m, err = b.stream.GetLastMsgForSubject(ctx, b.infoSubject(name))
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	info = new(jetstream.ObjectInfo)
	if json.Unmarshal(m.Data, info) != nil || info.Deleted || info.NUID == "" {
		info = nil
	}
	return info, m.Sequence, nil
}

// has reports whether an object is there with all its parts.
func (b *bucket) has(ctx context.Context, name string) (bool, error) {
	info, _, err := b.find(ctx, name)
	if err != nil || info == nil {
		return false, err
	}
	return b.whole(ctx, info)
}

// whole reports whether all parts of an object are there.
func (b *bucket) whole(ctx context.Context, info *jetstream.ObjectInfo) (whole bool, err error) {
	subject := b.partSubject(info.NUID)
	err = patiently(ctx, func() error {
		about, err := b.stream.Info(ctx, jetstream.WithSubjectFilter(subject))
		if err == nil {
			whole = about.State.Subjects[subject] == uint64(info.Chunks)
		}
		return err
	})
	return whole, err
}

// A content is what an object is to have.
type content struct {
	// write writes it. It may be called again.
	write func(io.Writer) error
	// sum is its SHA-256 where that is known, else nil.
	sum []byte
}

// put puts an object unless it is there.
func (b *bucket) put(ctx context.Context, name string, c content) error {
	return patiently(ctx, func() error { return b.putUnless(ctx, name, c) })
}

// putNew is put for an object that was not there a moment ago, and whose name had no message: it is looked for only if
// somebody put it meanwhile.
func (b *bucket) putNew(ctx context.Context, name string, c content) error {
	if again, err := b.putAfter(ctx, name, 0, c); !again && (err == nil || !away(err)) {
		return err
	}
	return b.put(ctx, name, c)
}

func (b *bucket) putUnless(ctx context.Context, name string, c content) error {
	for range 200 { // a replica that answers may be behind
		info, sequence, err := b.find(ctx, name)
		if err == nil && info != nil {
			if whole, err := b.whole(ctx, info); whole || err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		if again, err := b.putAfter(ctx, name, sequence, c); !again {
			return err
		}
		pause(ctx, 20*time.Millisecond)
	}
	return fmt.Errorf("%s: others put it, and it is not there", name)
}

// putAfter puts an object in the place of what a message said of its name. Where another did so meanwhile, it is to be
// looked at again.
func (b *bucket) putAfter(ctx context.Context, name string, sequence uint64, c content) (again bool, err error) {
	p := &parts{ctx: ctx, b: b, subject: b.partSubject(rand.Text()), most: partOf(b.js.Conn().MaxPayload())}
	drop := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = b.stream.Purge(ctx, jetstream.WithPurgeSubject(p.subject)) // else they go after the time that all is kept
	}
	sum, w := sha256.New(), io.Writer(p)
	if c.sum == nil {
		w = io.MultiWriter(sum, p)
	}
	if err = c.write(w); err == nil {
		err = p.flush()
	}
	if err != nil {
		drop()
		return false, err
	}
	if c.sum == nil {
		c.sum = sum.Sum(nil)
	}
	info := jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: uint32(p.most)}},
		Bucket:     b.name, NUID: p.subject[len(b.partSubject("")):], Size: p.total, Chunks: p.sent,
		Digest: digestValue(c.sum),
	}
	m := nats.NewMsg(b.infoSubject(name))
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	if m.Data, err = json.Marshal(info); err != nil {
		return false, err
	}
	err = patiently(ctx, func() error {
		_, err := b.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(sequence))
		return err
	})
	var refused *jetstream.APIError
	if !errors.As(err, &refused) ||
		refused.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence &&
			refused.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequenceConstant {
		return false, err // where nobody answered, the name may have been stored: the parts stay
	}
	there, _, err := b.find(ctx, name)
	if err == nil && there != nil && there.NUID == info.NUID {
		return false, nil // it was stored before, and the answer was lost
	}
	if err == nil {
		drop()
	}
	return err == nil, err
}

// parts publishes what is written as the parts of an object, one after another, each when the one before is
// acknowledged.
type parts struct {
	ctx     context.Context
	b       *bucket
	subject string
	// most is what a part has at most.
	most   int
	buffer []byte
	sent   uint32
	total  uint64
}

// Write publishes parts as they are full.
func (p *parts) Write(data []byte) (int, error) {
	n := len(data)
	for len(data) > 0 {
		k := min(p.most-len(p.buffer), len(data))
		if p.buffer, data = append(p.buffer, data[:k]...), data[k:]; len(p.buffer) == p.most {
			if err := p.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (p *parts) flush() error {
	err := p.send(p.buffer)
	p.buffer = p.buffer[:0]
	return err
}

// writeAll publishes all that there is, without a copy of it.
func (p *parts) writeAll(data []byte) error {
	for ; len(data) > p.most; data = data[p.most:] {
		if err := p.send(data[:p.most]); err != nil {
			return err
		}
	}
	return p.send(data)
}

func (p *parts) send(part []byte) error {
	if len(part) == 0 {
		return nil
	}
	// A part that nobody acknowledged may be there or not: the object is begun anew, under another name.
	if _, err := p.b.js.Publish(p.ctx, p.subject, part, jetstream.WithRetryAttempts(0)); err != nil {
		return err
	}
	p.sent++
	p.total += uint64(len(part))
	return nil
}

// readings is how often an object is read that is not what was put.
const readings = 3

// get writes an object to what begin returns, which it calls again where what was read is not what was put.
func (b *bucket) get(ctx context.Context, name string, begin func() (io.Writer, error)) error {
	return b.getOf(ctx, name, func(*jetstream.ObjectInfo) (io.Writer, error) { return begin() })
}

// getOf is get to what begin returns for what is said of the object.
func (b *bucket) getOf(ctx context.Context, name string, begin func(*jetstream.ObjectInfo) (io.Writer, error)) error {
	until := time.Now().Add(b.behind)
	for reading := 1; ; reading++ {
		info, _, err := b.find(ctx, name)
		if err != nil {
			return err
		}
		if info == nil {
			return jetstream.ErrObjectNotFound
		}
		w, err := begin(info)
		if err != nil {
			return err
		}
		if err = b.read(ctx, info, w, until); !errors.Is(err, ErrDamaged) || reading == readings {
			return err
		}
	}
}

// digestValue is how an object store says a SHA-256.
func digestValue(sum []byte) string { return "SHA-256=" + base64.URLEncoding.EncodeToString(sum) }

// read writes the parts of an object to w.
func (b *bucket) read(ctx context.Context, info *jetstream.ObjectInfo, w io.Writer, until time.Time) error {
	sum := sha256.New()
	next, total := uint64(1), uint64(0)
	for range info.Chunks {
		m, err := b.part(ctx, b.partSubject(info.NUID), next, until)
		if err != nil {
			return err
		}
		next = m.Sequence + 1
		if total += uint64(len(m.Data)); total > info.Size || len(m.Data) == 0 {
			return fmt.Errorf("%s: %w", info.Name, ErrDamaged)
		}
		_, _ = sum.Write(m.Data)
		if _, err := w.Write(m.Data); err != nil {
			return err
		}
	}
	if total != info.Size || digestValue(sum.Sum(nil)) != info.Digest {
		return fmt.Errorf("%s: %w", info.Name, ErrDamaged)
	}
	return nil
}

// part is the next part of an object.
func (b *bucket) part(ctx context.Context, subject string, next uint64,
	until time.Time) (*jetstream.RawStreamMsg, error) {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		var m *jetstream.RawStreamMsg
		err := patiently(ctx, func() (err error) {
			m, err = b.stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject(subject))
			return err
		})
		if !errors.Is(err, jetstream.ErrMsgNotFound) {
			return m, err
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("a part of it is gone: %w", ErrDamaged)
		}
		if pause(ctx, wait); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// putBytes puts an object of bytes, unless it is there.
func (b *bucket) putBytes(ctx context.Context, name string, data []byte) error {
	sum := sha256.Sum256(data)
	return b.put(ctx, name, contentOf(data, sum[:]))
}

// contentOf is bytes, and their SHA-256.
func contentOf(data, sum []byte) content {
	return content{sum: sum, write: func(w io.Writer) error {
		p, ok := w.(*parts)
		if !ok {
			panic("BUG: an object whose hash is known is hashed")
		}
		return p.writeAll(data)
	}}
}
