// Package hostmem allocates the memory of tensors outside Go's heap: aligned to 4096 bytes, as direct reads require,
// backed by huge pages where that helps, and counted by purpose. It puts no load on the garbage collector.
//
// It does not know what the memory contains. The owner of a [Buf] must free it, once, after the last reader is done,
// and nobody may touch the bytes of a freed buffer. Tests find leaks by comparing [InUse] before and after. [Limit]
// bounds all buffers and Go's heap together.
//
//	buf, err := hostmem.Alloc(slotBytes, hostmem.Weights)
//	if err != nil {
//		return err
//	}
//	defer buf.Free()
package hostmem

import (
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"unsafe"
)

// alignBytes is the alignment of every buffer's address.
const alignBytes = 4096

// hugeBytes is the size of a huge page, and of the buffers from which on one is worth asking for.
const hugeBytes = 2 << 20

// pageBytes is what the system gives and takes back at least.
var pageBytes = int64(os.Getpagesize())

// A Purpose is what memory is for.
type Purpose uint8

// The purposes.
const (
	Weights Purpose = iota
	Activations
	Workspace
	Staging
	Caches
	numPurposes
)

var purposes = [numPurposes]string{"weights", "activations", "workspace", "staging", "caches"}

// String returns the purpose as reports name it.
func (p Purpose) String() string {
	if p >= numPurposes {
		return fmt.Sprintf("purpose(%d)", uint8(p))
	}
	return purposes[p]
}

var inUse [numPurposes]atomic.Int64

// InUse returns the bytes allocated for a purpose and not freed, in the whole process.
func InUse(p Purpose) int64 { return inUse[p].Load() }

// A Buf is a run of memory outside the heap, zero at first.
type Buf struct {
	data   []byte
	mapped []byte
	// room is what data may become, up to most, of which the rest takes no memory; nil where it is data.
	room    []byte
	most    int64
	purpose Purpose
	// huge says of parts of caches, from the first on, whether they lie in huge pages.
	huge  []bool
	freed atomic.Bool
}

// Alloc returns a buffer of the given size. The caller frees it.
func Alloc(bytes int64, purpose Purpose) (*Buf, error) {
	if bytes < 0 || bytes > math.MaxInt-hugeBytes {
		return nil, fmt.Errorf("allocate %d bytes for %v: impossible size", bytes, purpose)
	}
	if purpose >= numPurposes {
		panic("BUG: hostmem: " + purpose.String())
	}
	b := &Buf{purpose: purpose}
	if err := take(bytes, purpose); err != nil {
		return nil, fmt.Errorf("allocate %d bytes for %v: %w", bytes, purpose, err)
	}
	if bytes > 0 {
		align := alignBytes
		slack := alignBytes - 1 // Go's memory, and pages smaller than that, may begin anywhere
		if bytes >= hugeBytes {
			align, slack = hugeBytes, hugeBytes
		}
		var err error
		if b.mapped, err = acquire(int(bytes) + slack); err != nil {
			giveBack(bytes, purpose)
			return nil, fmt.Errorf("allocate %d bytes for %v: %w", bytes, purpose, err)
		}
		skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b.mapped)))) & (align - 1)
		b.data = b.mapped[skip : skip+int(bytes) : skip+int(bytes)]
		if bytes >= hugeBytes || purpose == Caches {
			b.advise(b.data)
		}
	}
	b.note(b.data)
	return b, nil
}

// AllocRoom is [Alloc] of a buffer that [Buf.Resize] can make as large as most, where the system allows that.
func AllocRoom(bytes, most int64, purpose Purpose) (*Buf, error) {
	if !CanResize || bytes <= 0 || most <= bytes || most > math.MaxInt-3*hugeBytes {
		return Alloc(bytes, purpose)
	}
	if err := take(bytes, purpose); err != nil {
		return nil, fmt.Errorf("allocate %d bytes for %v: %w", bytes, purpose, err)
	}
	room := (int(most) + hugeBytes - 1) &^ (hugeBytes - 1)
	mapped, err := reserve(room + hugeBytes)
	if err != nil {
		giveBack(bytes, purpose)
		return Alloc(bytes, purpose)
	}
	b := &Buf{mapped: mapped, purpose: purpose}
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(mapped)))) & (hugeBytes - 1)
	b.room, b.most = mapped[skip:skip+room:skip+room], most
	b.data = b.room[:bytes:bytes]
	b.advise(b.room)
	b.note(b.data)
	return b, nil
}

// advise asks for huge pages, but for small ones of all that caches may become.
func (b *Buf) advise(all []byte) {
	if b.purpose == Caches {
		adviseSmall(all)
		return
	}
	adviseHuge(b.data[:len(b.data)&^(hugeBytes-1)])
}

// Resize makes the buffer smaller or larger where it is, and reports whether it did: nothing has changed where it did
// not. What it keeps stays as it is; what was beyond is gone. Slices of it from before are not to be used any more.
func (b *Buf) Resize(bytes int64) bool {
	if now := int64(len(b.data)); b.room == nil || bytes <= 0 || bytes > b.most || b.freed.Load() {
		return bytes == now
	} else if bytes > now {
		if take(bytes-now, b.purpose) != nil {
			return false
		}
		b.data = b.room[:bytes:bytes]
		b.advise(b.room)
	} else if bytes < now {
		end := (bytes + pageBytes - 1) &^ (pageBytes - 1)
		if !discard(b.room[end:max(now, end)], b.room[bytes&^(hugeBytes-1):]) {
			return false
		}
		b.data = b.room[:bytes:bytes]
		giveBack(now-bytes, b.purpose)
	}
	b.note(b.data)
	return true
}

// Bytes returns the buffer's memory, which is valid until Free or Resize.
func (b *Buf) Bytes() []byte { return b.data }

// Free gives the memory back. It panics when the buffer was freed before: by then the memory may be another's.
func (b *Buf) Free() {
	if b.freed.Swap(true) {
		panic("BUG: hostmem: freed twice")
	}
	b.note(nil)
	mapped, bytes := b.mapped, int64(len(b.data))
	b.data, b.mapped, b.room = nil, nil, nil
	if mapped != nil {
		if err := release(mapped); err != nil {
			panic("BUG: hostmem: " + err.Error())
		}
	}
	giveBack(bytes, b.purpose)
}
