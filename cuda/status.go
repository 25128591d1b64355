package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/optimem/optimem/cuda/internal/driver"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
)

// notes are what ops note on the GPU when they fail on data: two ints, a code and which op.
type notes struct {
	at *memory
	// ops are all that may note something, numbered by numbers.
	ops     []note
	numbers map[note]int32
	// pending says that one was given out since the notes were last looked at.
	pending bool
}

type note struct {
	path string
	kind graph.Kind
}

// statusBytes is the size of the notes on the GPU.
const statusBytes = 8

// The failures on data: OM_… of om.h.
var statusErrors = map[int32]error{
	1: errors.New("integer division by zero"),
	2: &graph.IndexError{},
	3: errors.New("the ends of the groups do not ascend within the rows"),
	4: errors.New("the data makes another number of elements than was promised"),
	5: errors.New("the range is not finite"),
}

// noting returns where the op that is being run notes a failure, and as whom.
func (s *stream) noting() (span, int32, error) {
	if s.dry != nil {
		return span{}, 0, nil
	}
	n := &s.notes
	if n.at == nil {
		p, err := s.d.lib.Alloc(statusBytes)
		if err != nil {
			return span{}, 0, s.d.outOfMemory(err, statusBytes)
		}
		n.at = &memory{d: s.d, pointer: p, bytes: statusBytes}
		s.d.mu.Lock()
		s.d.used += statusBytes
		s.d.mu.Unlock()
		if err := s.d.failed(s.d.lib.Fill(p, 0, statusBytes, s.handle)); err != nil {
			return span{}, 0, err
		}
	}
	at := span{uint64(n.at.pointer), statusBytes}
	if s.keeping != nil {
		s.keeping.notes = true
	} else {
		n.pending = true
	}
	op := note{s.op.Path, s.op.Kind}
	where, known := n.numbers[op]
	if !known {
		if n.numbers == nil {
			n.numbers = make(map[note]int32)
		}
		where = int32(len(n.ops))
		n.numbers[op], n.ops = where, append(n.ops, op)
	}
	return at, where, nil
}

// noted returns what an op noted since it was last asked. The context is current and the stream's work done.
func (s *stream) noted() error {
	n := &s.notes
	if !n.pending {
		return nil
	}
	n.pending = false
	status := make([]byte, statusBytes)
	if err := s.d.failed(s.d.lib.CopyOut(status, n.at.pointer, s.handle)); err != nil {
		return err
	}
	if err := s.d.failed(s.d.lib.SyncStream(s.handle)); err != nil {
		return err
	}
	code := int32(binary.LittleEndian.Uint32(status))
	if code == 0 {
		return nil
	}
	if err := s.d.failed(s.d.lib.Fill(n.at.pointer, 0, statusBytes, s.handle)); err != nil {
		return err
	}
	why, known := statusErrors[code]
	if !known {
		why = fmt.Errorf("failure %d on the GPU", code)
	}
	where := binary.LittleEndian.Uint32(status[4:])
	if int(where) >= len(n.ops) {
		return why
	}
	op := n.ops[where]
	if op.path == "" {
		return fmt.Errorf("%s: %w", op.kind, why)
	}
	return fmt.Errorf("%s: %s: %w", op.path, op.kind, why)
}

// outOfMemory is the error of an allocation.
func (d *Device) outOfMemory(err error, bytes int64) error {
	if !errors.Is(err, driver.OutOfMemory) {
		return d.failed(err)
	}
	free, _, _ := d.lib.MemInfo() // 0 where it cannot be told
	return &device.OutOfMemoryError{Device: d.name, WantBytes: bytes, FreeBytes: free}
}
