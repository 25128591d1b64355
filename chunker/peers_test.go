package chunker

import (
	"fmt"
	"testing"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
)

// TestFewerGroupsThanDevices: devices for which no group is left compute nothing, and the bits are those of one alone.
func TestFewerGroupsThanDevices(t *testing.T) {
	host := cpu.New(1, graph.Standard())
	defer host.Close()
	for _, depth := range []int{1, 2, 3} {
		for n := 2; n <= 4; n++ {
			for _, instances := range []int{1, 3} {
				t.Run(fmt.Sprintf("groups=%d/devices=%d/instances=%d", depth, n, instances), func(t *testing.T) {
					l := network(t, host, 64, depth)
					o := search.Options{
						Mode: plan.Resident, Target: plan.Target{Name: "emu", AlignBytes: 256}, Instances: instances, Lower: host.Lower,
					}
					var devices []device.Device
					for i := range n {
						devices = append(devices, emulated.New(emulated.Options{CheckOrder: true, Threads: 1}))
						if i > 0 {
							o.Peers = append(o.Peers, search.Peer{Name: fmt.Sprint("emu:", i)})
						}
					}
					p, err := search.Plan(l, o)
					if err != nil {
						t.Fatal(err)
					}
					c, err := Spread(devices, Options{})
					if err != nil {
						t.Fatal(err)
					}
					for range 2 {
						got := newTransfer(l.Graph, instances)
						if err := c.Pass(t.Context(), p, got); err != nil {
							t.Fatal(err)
						}
						compareAlone(t, host, l, got)
					}
					if err := c.Close(); err != nil {
						t.Error(err)
					}
					for _, d := range devices {
						if err := d.Close(); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
	}
}
