//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/optimem/optimem/chunker"
	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
)

// A gatedDevice brings the input of one instance in only once the gate is open.
type gatedDevice struct {
	*cuda.Device
	instance int
	gate     chan struct{}
	ctx      context.Context
	mu       sync.Mutex
	inputs   int
}

func (d *gatedDevice) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return &gatedStream{s, d}, err
}

type gatedStream struct {
	device.Stream
	d *gatedDevice
}

func (s *gatedStream) CopyIn(dst device.Region, src []byte) error {
	d := s.d
	d.mu.Lock()
	waits := d.gate != nil && d.inputs == d.instance
	d.inputs++
	d.mu.Unlock()
	if waits {
		select {
		case <-d.gate:
		case <-d.ctx.Done():
			return d.ctx.Err()
		}
	}
	return s.Stream.CopyIn(dst, src)
}

// A batchTransfer is the inputs and outputs of some instances. It opens the gate when the first has its output.
type batchTransfer struct {
	all  []*transfer
	gate chan struct{}
}

func (x *batchTransfer) Input(i int, _ graph.ValueID) []byte { return x.all[i].in }

func (x *batchTransfer) Output(i, _ int, _ bool) []byte {
	if i == 0 && x.gate != nil {
		close(x.gate)
		x.gate = nil
	}
	return x.all[i].out
}

// TestGPUAndCPUAtOnce: the host computes its part of the first micro-batch before the GPU has been given the last, which is
// asserted by keeping the last from it until then. The bits are those of one micro-batch after the other, in random orders
// of what the GPU does.
func TestGPUAndCPUAtOnce(t *testing.T) {
	const instances = 4
	g := network(t, 5, widths...)
	l := lower(t, g)
	host := cpu.New(1, graph.Standard())
	defer host.Close()
	made := func(instances int) *plan.Plan {
		p := planned(t, l, search.Options{
			Mode: plan.Chunk, Capacity: plan.Limit{N: 30000, Unit: plan.Params}, Instances: instances,
			Lower: cuda.Lower, HostLower: host.Lower,
		})
		if p.Sides == nil || p.Sides.Overlaps != (instances > 1) {
			t.Fatalf("%d instances\n%v", instances, p)
		}
		return p
	}
	one, several := made(1), made(instances)
	for _, order := range []string{"threads", "lazy:1", "lazy:2", "lazy:3"} {
		t.Run(order, func(t *testing.T) {
			dev, _ := open(t, "memory=8M order="+order)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a schedule without overlap never ends
			defer cancel()
			gated := &gatedDevice{Device: dev, instance: -1, ctx: ctx}
			c, err := chunker.New(gated, host, chunker.Options{Device: pager.Options{}})
			if err != nil {
				t.Fatal(err)
			}
			want := &batchTransfer{}
			for i := range instances {
				x := newTransfer(g)
				x.in[3] = byte(64 + i) // each another input
				want.all = append(want.all, x)
				if err := c.Pass(ctx, one, &batchTransfer{all: want.all[i:]}); err != nil {
					t.Fatal(err)
				}
			}
			if bytes.Equal(want.all[0].out, want.all[1].out) {
				t.Fatal("the instances cannot be told apart")
			}
			for range 3 {
				got := &batchTransfer{}
				for _, x := range want.all {
					got.all = append(got.all, &transfer{x.in, make([]byte, len(x.out))})
				}
				// The first pass brings the weights, too; the gate is for those after it.
				if gated.gate != nil || gated.instance == instances-1 {
					got.gate = make(chan struct{})
				}
				gated.mu.Lock()
				gated.gate, gated.inputs, gated.instance = got.gate, 0, instances-1
				gated.mu.Unlock()
				if err := c.Pass(ctx, several, got); err != nil {
					t.Fatal(err)
				}
				for i, x := range want.all {
					if !bytes.Equal(got.all[i].out, x.out) {
						t.Errorf("instance %d: other bits", i)
					}
				}
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
