package pickle

import (
	"io"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/optimem/optimem/loader/internal/limit"
)

// A repeated is a pickle that is too long to keep: a head, a part many times over, and a tail.
type repeated struct {
	head, part, tail string
	n                int64
}

func (r repeated) size() int64 {
	return int64(len(r.head)) + r.n*int64(len(r.part)) + int64(len(r.tail))
}

func (r repeated) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) {
		o := off + int64(n)
		middle := o - int64(len(r.head))
		switch end := middle - r.n*int64(len(r.part)); {
		case o >= r.size():
			return n, io.EOF
		case middle < 0:
			n += copy(p[n:], r.head[o:])
		case end >= 0:
			n += copy(p[n:], r.tail[end:])
		default:
			n += copy(p[n:], r.part[middle%int64(len(r.part)):])
		}
	}
	return n, nil
}

// costly are the parts that cost most for their length, each in a container that keeps them.
func costly() map[string]repeated {
	list := func(part string) repeated { return repeated{head: "\x80\x04](", part: part, tail: "e."} }
	return map[string]repeated{
		"empty lists":          list("]"),
		"empty dicts":          list("}"),
		"empty sets":           list("\x8f"),
		"empty tuples":         list(")"),
		"tuples":               list("N\x85"),
		"triples":              list("NNN\x87"),
		"marked tuples":        list("(t"),
		"marked lists":         list("(l"),
		"marked dicts":         list("(d"),
		"frozensets":           list("(\x91"),
		"frozensets of one":    list("(K\x01\x91"),
		"sets of nine":         list("\x8f(K\x01K\x02K\x03K\x04K\x05K\x06K\x07K\x08K\x09\x90"),
		"lists of one":         list("]Na"),
		"lists of five":        list("](NNNNNe"),
		"dicts of one":         list("}K\x01Ns"),
		"dicts of nine":        list("}(K\x01NK\x02NK\x03NK\x04NK\x05NK\x06NK\x07NK\x08NK\x09Nu"),
		"DICTs of one":         list("(K\x01Nd"),
		"dicts of five":        list("}(K\x01NK\x02NK\x03NK\x04NK\x05Nu"),
		"ints":                 list("M\x00\x01"),
		"long ints":            list("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x01"),
		"longer ints":          list("\x8a\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"),
		"floats":               list("G\x00\x00\x00\x00\x00\x00\x00\x01"),
		"empty strings":        list("\x8c\x00"),
		"short strings":        list("\x8c\x01a"),
		"strings":              list("\x8c\x11aaaaaaaaaaaaaaaaa"),
		"long strings":         list("X\x00\x01\x00\x00" + strings.Repeat("a", 256)),
		"bytes":                list("C\x01a"),
		"empty bytes":          list("C\x00"),
		"bytearrays":           list("\x96\x01\x00\x00\x00\x00\x00\x00\x00a"),
		"objects":              list("cm\nC\n)\x81"),
		"built objects":        list("cm\nC\n)\x81Nb"),
		"objects with items":   list("cm\nC\n)\x81Na"),
		"objects with entries": list("cm\nC\n)\x81NNs"),
		"ordered dicts":        list("ccollections\nOrderedDict\n)R"),
		"python sets":          list("cbuiltins\nset\n]\x85R"),
		"rebuilt values":       list("cdata\nf\n)R"),
		"memoized":             {head: "\x80\x04](", part: "N\x94", tail: "e."},
		"memoized tuples":      list(")\x94"),
		"strings that escape":  list("V\\u0041\n"),
		"on the stack":         {head: "(", part: "N", tail: "t."},
		"one dict":             {head: "}(", part: "G\x7f\xf8\x00\x00\x00\x00\x00\x01N", tail: "u."},
		"one dict, one by one": {head: "}", part: "G\x7f\xf8\x00\x00\x00\x00\x00\x01Ns", tail: "."},
		"one list, one by one": {head: "]", part: "Na", tail: "."},
		"one set of floats":    {head: "\x80\x04\x8f(", part: "G\x7f\xf8\x00\x00\x00\x00\x00\x01", tail: "\x90."},
		"one object":           {head: "cm\nC\n)\x81(", part: "G\x7f\xf8\x00\x00\x00\x00\x00\x01N", tail: "u."},
		"popped":               {head: "", part: "]0", tail: "N."},
		"popped for nothing":   {head: "", part: "N0", tail: "N."},
		"marks in turn":        {head: "", part: "(NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNN1", tail: "N."},
		"calls":                {head: "cdata\nf\nq\x000", part: "h\x00(NNNNNtR0", tail: "N."},
		"persistent ids":       {head: "", part: "NQ0", tail: "N."},
		"stacks under marks": {part: strings.Repeat("N", 3000) + strings.Repeat("0", 3000) + "(", n: 199,
			tail: strings.Repeat("1", 199) + "N."},
	}
}

func heapBytes() int64 {
	goruntime.GC()
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestChargesCoverTheHeap loads what costs most for its length, and compares the heap with the charge.
func TestChargesCoverTheHeap(t *testing.T) {
	for name, r := range costly() {
		t.Run(name, func(t *testing.T) {
			if r.n == 0 {
				r.n = 20_000
			}
			meter := limit.New(1 << 30)
			o := testOptions()
			o.Meter = meter
			before := heapBytes()
			report, err := Scan(r, 0, r.size(), o)
			if err != nil || report.Err() != nil {
				t.Fatal(err, report.Err())
			}
			scanned := heapBytes() - before
			if used := meter.Used(); scanned > used+4096 {
				t.Errorf("after the scan the heap holds %d bytes, charged %d", scanned, used)
			}
			v, err := report.Load(echo)
			if err != nil {
				t.Fatal(err)
			}
			held, used := heapBytes()-before, meter.Used()
			if held > used+4096 {
				t.Errorf("the heap holds %d bytes, charged %d", held, used)
			}
			t.Logf("%d bytes each held, %d charged", held/r.n, used/r.n)
			goruntime.KeepAlive(v)
			goruntime.KeepAlive(report)
		})
	}
}

// peakBytes watches the heap and the memory that Go has from the system while f runs.
func peakBytes(f func()) int64 {
	goruntime.GC()
	var before goruntime.MemStats
	goruntime.ReadMemStats(&before)
	done, peak := make(chan struct{}), make(chan int64)
	go func() {
		highest := int64(0)
		var m goruntime.MemStats
		for {
			goruntime.ReadMemStats(&m)
			highest = max(highest, int64(m.HeapAlloc-before.HeapAlloc))
			select {
			case <-done:
				peak <- highest
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	f()
	close(done)
	return <-peak
}

// TestPeakUnderTheDefaultMeter: no input takes 64 MiB of heap, garbage included, under a meter of 32 MiB.
func TestPeakUnderTheDefaultMeter(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of work")
	}
	inputs := make(map[string]repeated)
	for _, name := range []string{"empty lists", "empty dicts", "empty bytes", "long strings", "marked tuples",
		"on the stack", "one dict", "frozensets", "memoized", "calls", "popped for nothing", "stacks under marks", "longer ints"} {
		inputs[name] = costly()[name]
	}
	inputs["one long string"] = repeated{head: "X\x00\x00\xc0\x00", part: "a", n: 0xc00000, tail: "."}
	inputs["a string that is too long"] = repeated{head: "X\x00\x00\x00\x40", part: "a", n: 0x40000000, tail: "."}
	for name, r := range inputs {
		t.Run(name, func(t *testing.T) {
			// About what the meter allows, to see the most that passes, and far more than it allows.
			sizes := []int64{100_000, 200_000, 100_000_000}
			if r.n != 0 {
				sizes = []int64{r.n}
			}
			for _, n := range sizes {
				r.n = n
				o := testOptions()
				var err error
				peak := peakBytes(func() {
					var report *Report
					if report, err = Scan(r, 0, r.size(), o); err == nil {
						_, err = report.Load(echo)
					}
				})
				if peak > 56<<20 {
					t.Errorf("%d times: %d MiB, %v", n, peak>>20, err)
				}
				if n == 100_000_000 && err == nil {
					t.Error("no limit was reached")
				}
			}
		})
	}
}

// TestMeterIsReleased: many small pickles cost no more than one.
func TestMeterIsReleased(t *testing.T) {
	meter := limit.New(1 << 20)
	for i := range 10_000 {
		o := testOptions()
		o.Meter = meter
		report := scanString(t, "(K\x011N.", o)
		if err := report.Err(); err != nil {
			t.Fatal(i, err)
		}
		if _, err := report.Load(echo); err != nil {
			t.Fatal(i, err)
		}
	}
	if used := meter.Used(); used > 10_000*30 {
		t.Errorf("%d bytes still charged", used)
	}
}
