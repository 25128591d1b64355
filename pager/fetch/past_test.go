package fetch

import (
	"sync/atomic"
	"testing"

	"github.com/optimem/optimem/storage"
)

// A heldFile is one that the host holds in memory: a queue takes no read of it, but for one that reads past that.
type heldFile struct {
	*queuedFile
	past int
}

func (f *heldFile) Queue(n int) (storage.ReadQueue, error) {
	q, err := f.queuedFile.Queue(n)
	return refusing{q}, err
}

func (f *heldFile) QueuePast(n int) (storage.ReadQueue, error) {
	f.past++
	return f.queuedFile.Queue(n)
}

func (f *heldFile) ReadsPast() bool { return true }

type refusing struct{ storage.ReadQueue }

func (refusing) Begin(int, []byte, int64) bool { return false }

// TestPastCache: what the host holds is read by queues where the plan says so, by goroutines that copy it where it does not.
func TestPastCache(t *testing.T) {
	for _, past := range []bool{false, true} {
		f := &heldFile{queuedFile: &queuedFile{file: newFile(64 * storage.AlignBytes)}}
		p := ringed(f, 2, 5, 3, 7, 1, 4)
		p.PastCache = past
		ring, to := slotsOf(p)
		d := NewDirect(p, to, nil, Options{Readers: 2, Read: new(atomic.Int64)})
		for range 3 {
			if err := runPass(t.Context(), d, p, f.data, ring); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if (f.past == 1) != past || (f.begun >= 15) != past {
			t.Errorf("past the page cache %v: %d queues are, which began %d reads", past, f.past, f.begun)
		}
	}
}
