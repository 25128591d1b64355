package pipeline_test

import (
	"fmt"
	"net"
	goruntime "runtime"
	"sync"
	"testing"
	"time"

	"github.com/optimem/optimem/pipeline"
)

// shaped passes on what goes to an address and comes back, as a link does on which the first byte takes a time and so
// many bytes go in a second.
func shaped(t testing.TB, address string, latency time.Duration, bytesPerSecond float64) string {
	t.Helper()
	type packet struct {
		data []byte
		due  time.Time
	}
	return relay(t, address, func(to, from net.Conn) {
		defer to.Close()
		defer from.Close()
		packets := make(chan packet, 1024)
		go func() {
			defer close(packets)
			free := time.Now()
			for {
				data := make([]byte, 16<<10)
				n, err := from.Read(data)
				if err != nil {
					return
				}
				if now := time.Now(); free.Before(now) {
					free = now
				}
				free = free.Add(time.Duration(float64(n) / bytesPerSecond * float64(time.Second)))
				packets <- packet{data[:n], free.Add(latency)}
			}
		}()
		for p := range packets {
			waitUntil(p.due)
			if _, err := to.Write(p.data); err != nil {
				from.Close() // what reads ends
				for range packets {
				}
				return
			}
		}
	})
}

// waitUntil waits more exactly than time.Sleep, by which a process that does nothing else wakes up to a millisecond
// late.
func waitUntil(due time.Time) {
	const late = 1500 * time.Microsecond
	if d := time.Until(due) - late; d > 0 {
		time.Sleep(d)
	}
	for time.Now().Before(due) {
		goruntime.Gosched()
	}
}

// relay listens for connections, opens one to an address for each, and has pass copy in both directions.
func relay(t testing.TB, address string, pass func(to, from net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", address)
			if err != nil {
				near.Close()
				continue
			}
			go pass(near, far)
			go pass(far, near)
		}
	}()
	return listener.Addr().String()
}

// TestShapedLink: over links that delay and limit the bits are the same, and the hop that was planned with what the
// link gives counts both.
func TestShapedLink(t *testing.T) {
	model := open(t, digits)
	in := inputs(digits, 1)
	const latency, rate = 5 * time.Millisecond, 1e6
	opts := pipeline.Options{At: []string{"hidden"}, LinkBytes: rate}
	for range 2 {
		opts.Stages = append(opts.Stages, shaped(t, serve(t, model, pipeline.StageOptions{}).address, latency, rate))
	}
	p := pipe(t, model, shapesOf(in), opts)
	hop := p.Plan().Stages[0]
	if least := latency.Seconds() + float64(hop.HopBytes)/rate; hop.HopSeconds < least {
		t.Errorf("a hop of %v s, and no link gives less than %v", hop.HopSeconds, least)
	}
	want := alone(t, model, in)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			got, err := p.Run(t.Context(), in)
			if err == nil {
				err = sameBits(got, want)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// BenchmarkLink is what a pass over two stages takes on links of several kinds, one at a time and several at once; the
// forecast is beside it.
func BenchmarkLink(b *testing.B) {
	model := open(b, digits)
	in := inputs(digits, 1)
	for _, link := range []struct {
		name    string
		latency time.Duration
		rate    float64
	}{{"loopback", 0, 10e9}, {"100us, 1.25 GB/s", 100 * time.Microsecond, 1.25e9}, {"1ms, 125 MB/s", time.Millisecond, 125e6}, {"20ms, 12.5 MB/s", 20 * time.Millisecond, 12.5e6}} {
		for _, callers := range []int{1, 4} {
			b.Run(fmt.Sprintf("%s, %d at once", link.name, callers), func(b *testing.B) {
				opts := pipeline.Options{At: []string{"hidden"}, LinkBytes: link.rate, Window: 8}
				for range 2 {
					opts.Stages = append(opts.Stages, shaped(b, serve(b, model, pipeline.StageOptions{}).address, link.latency, link.rate))
				}
				p := pipe(b, model, shapesOf(in), opts)
				work := make(chan struct{})
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						for range work {
							if _, err := p.Run(b.Context(), in); err != nil {
								b.Error(err)
							}
						}
					})
				}
				b.ResetTimer()
				for range b.N {
					work <- struct{}{}
				}
				close(work)
				all.Wait() // the last ones count, too
				b.ReportMetric(p.Plan().PassSeconds()*1e9, "forecast-ns")
				b.ReportMetric(float64(p.Plan().Stages[0].HopBytes), "hop-bytes")
			})
		}
	}
}
