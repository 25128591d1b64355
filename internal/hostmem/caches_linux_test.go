package hostmem

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugeKiB returns how much of the mapping that an address lies in is in huge pages.
func hugeKiB(t *testing.T, p *byte) (kib int64) {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Skip("NOT CHECKED: ", err)
	}
	defer f.Close()
	at, inside := uint64(uintptr(unsafe.Pointer(p))), false
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var first, end uint64
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &first, &end); n == 2 {
			inside = first <= at && at < end
		} else if text, ok := strings.CutPrefix(lines.Text(), "AnonHugePages:"); ok && inside {
			if _, err := fmt.Sscan(text, &kib); err != nil {
				t.Fatal(err)
			}
			return kib
		}
	}
	t.Fatal("no such mapping")
	return 0
}

// TestCachesBitByBit: caches take the pages that were written to, and huge ones where all were; what they hold stays.
func TestCachesBitByBit(t *testing.T) {
	for _, room := range []bool{false, true} {
		before := Unwritten()
		const size, most = 5<<20 + 3*4096, 9 << 20
		b, err := Alloc(size, Caches)
		if room {
			b.Free()
			b, err = AllocRoom(size, most, Caches)
		}
		if err != nil {
			t.Fatal(err)
		}
		check := func(when string, want int64) {
			t.Helper()
			if got := Unwritten() - before; got != want {
				t.Errorf("%s: %d bytes are not written, want %d", when, got, want)
			}
		}
		check("at first", size)
		b.Bytes()[0], b.Bytes()[3<<20] = 1, 2
		check("two bytes", size-2*pageBytes)
		for at := int64(0); at < 2<<20; at += pageBytes {
			b.Bytes()[at+1] = byte(at >> 12)
		}
		check("the first part", size-2<<20-pageBytes)
		b.Settle()
		check("settled", size-2<<20-pageBytes)
		if kib := hugeKiB(t, &b.Bytes()[0]); kib != 2048 {
			full, err := Alloc(2<<20, Weights)
			if err != nil {
				t.Fatal(err)
			}
			clear(full.Bytes())
			if unix.Madvise(b.Bytes()[:2<<20], unix.MADV_COLLAPSE) != nil {
				t.Log("NOT CHECKED: the system makes no huge pages of small ones when it is asked to")
			} else if hugeKiB(t, &full.Bytes()[0]) > 0 {
				t.Errorf("%d KiB of a full part lie in huge pages", kib)
			} else {
				t.Log("NOT CHECKED: the system gives no huge pages")
			}
			full.Free()
		}
		if kib := hugeKiB(t, &b.Bytes()[3<<20]); kib != 0 {
			t.Errorf("%d KiB of a part that is not full lie in huge pages", kib)
		}
		for at := int64(0); at < 2<<20; at += pageBytes {
			if b.Bytes()[at+1] != byte(at>>12) {
				t.Fatalf("byte %d is %d", at+1, b.Bytes()[at+1])
			}
		}
		if b.Bytes()[0] != 1 || b.Bytes()[3<<20] != 2 || b.Bytes()[4<<20] != 0 {
			t.Error("other bytes")
		}
		if room {
			if !b.Resize(1<<20) || !b.Resize(most) {
				t.Fatal("no other size")
			}
			check("larger", most-1<<20)
			b.Bytes()[2<<20-1] = 3
			check("a part that was huge", most-1<<20-pageBytes)
		}
		b.Free()
		check("freed", 0)
	}
}
