package work

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// parted is n parts and a bit.
func parted(n int) []byte {
	data := make([]byte, n*partBytes+5)
	for i := range data {
		data[i] = byte(i * i >> 9)
	}
	return data
}

func read(t *testing.T, b *bucket, name string) ([]byte, error) {
	t.Helper()
	var got bytes.Buffer
	err := b.get(t.Context(), name, func() (io.Writer, error) {
		got.Reset()
		return &got, nil
	})
	return got.Bytes(), err
}

// An object is what was put, also for the client library, and one of that for us.
func TestObject(t *testing.T) {
	q := connect(t, embedded(t))
	for name, data := range map[string][]byte{"none": {}, "one": []byte("x"), "full": parted(1)[:partBytes], "many": parted(5)} {
		if err := q.out.putBytes(t.Context(), name, data); err != nil {
			t.Fatal(err)
		}
		if got, err := read(t, q.out, name); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, want %d: %v", name, len(got), len(data), err)
		}
		if got, err := q.out.GetBytes(t.Context(), name); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s, by the library: %d bytes, want %d: %v", name, len(got), len(data), err)
		}
		if _, err := q.in.PutBytes(t.Context(), name, data); err != nil {
			t.Fatal(err)
		}
		if got, err := read(t, q.in, name); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s of the library: %d bytes, want %d: %v", name, len(got), len(data), err)
		}
	}
	if _, err := read(t, q.out, "nothing"); !errors.Is(err, jetstream.ErrObjectNotFound) {
		t.Error(err)
	}
}

// Who puts an object second changes nothing, also at the same time, and leaves nothing behind.
func TestObjectIsPutOnce(t *testing.T) {
	q := connect(t, embedded(t))
	data := parted(2)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := q.out.putBytes(context.Background(), "x", data); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	first, sequence, err := q.out.find(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := q.out.putBytes(t.Context(), "x", []byte("other")); err != nil {
		t.Fatal(err)
	}
	if again, s, err := q.out.find(t.Context(), "x"); err != nil || s != sequence || again.NUID != first.NUID {
		t.Errorf("it was put again: %v, %v", again, err)
	}
	if again, err := q.out.putAfter(t.Context(), "x", 0, content{write: func(w io.Writer) error {
		_, err := w.Write([]byte("other"))
		return err
	}}); !again || err != nil {
		t.Errorf("put in the place of nothing, where there is something: %v, %v", again, err)
	}
	if info, err := q.out.stream.Info(t.Context()); err != nil || info.State.Msgs != 4 {
		t.Errorf("%d messages for three parts and a name: %v", info.State.Msgs, err)
	}
	if got, err := read(t, q.out, "x"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes: %v", len(got), err)
	}
}

// An object of which a part is gone is none: it may be put anew. One whose writing fails is never there.
func TestObjectIsDamaged(t *testing.T) {
	q := connect(t, embedded(t))
	data := parted(2)
	if err := q.out.putBytes(t.Context(), "x", data); err != nil {
		t.Fatal(err)
	}
	if has, err := q.out.has(t.Context(), "x"); err != nil || !has {
		t.Fatal(has, err)
	}
	if err := q.out.stream.DeleteMsg(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if has, err := q.out.has(t.Context(), "x"); err != nil || has {
		t.Error("an object without its second part is there", err)
	}
	q.out.behind = 0
	begun := 0
	err := q.Output(t.Context(), "x", func() (io.Writer, error) {
		begun++
		return io.Discard, nil
	})
	if !errors.Is(err, ErrDamaged) || begun != readings {
		t.Errorf("%v, begun %d times", err, begun)
	}
	if err := q.out.putBytes(t.Context(), "x", data); err != nil {
		t.Fatal(err)
	}
	if got, err := read(t, q.out, "x"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("put anew, it has %d bytes: %v", len(got), err)
	}
	for _, m := range []struct{ subject, data string }{
		{q.out.partSubject("forged"), "abc"},
		{q.out.infoSubject("z"), `{"name":"z","nuid":"forged","size":3,"chunks":1,"digest":"SHA-256=AAAA"}`},
	} {
		if _, err := q.js.Publish(t.Context(), m.subject, []byte(m.data)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := read(t, q.out, "z"); !errors.Is(err, ErrDamaged) {
		t.Errorf("%q is not what its hash says: %v", got, err)
	}
	failed := errors.New("no more")
	if err := q.out.put(t.Context(), "y", content{write: func(w io.Writer) error {
		_, err := w.Write(data)
		return errors.Join(err, failed)
	}}); !errors.Is(err, failed) {
		t.Error(err)
	}
	if info, _, err := q.out.find(t.Context(), "y"); err != nil || info != nil {
		t.Errorf("what could not be written is there: %v, %v", info, err)
	}
}
