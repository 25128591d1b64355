package sysmem

import (
	"testing"

	"github.com/optimem/optimem/internal/hostmem"
)

// What caches were promised is not free, although the system has not given it yet.
func TestReadHeedsPromises(t *testing.T) {
	i := Info{AvailableBytes: 100, LeftBytes: 60}
	i.promised(30)
	if free, ok := i.FreeBytes(); !ok || free != 30 || i.AvailableBytes != 70 {
		t.Errorf("%+v, %d free", i, free)
	}
	if i.promised(80); i.LeftBytes != 0 || i.AvailableBytes != 1 { // 0 would be that it is not known
		t.Errorf("%+v", i)
	}
	i = Info{LeftBytes: Unlimited}
	if i.promised(1); i.LeftBytes != Unlimited || i.AvailableBytes != 0 {
		t.Errorf("%+v where nothing is known", i)
	}
	before := Read()
	bytes := before.AvailableBytes / 2
	buf, err := hostmem.Alloc(bytes, hostmem.Caches)
	if err != nil {
		t.Skip("NOT CHECKED: ", err)
	}
	defer buf.Free()
	if after := Read(); before.AvailableBytes > 0 && after.AvailableBytes > before.AvailableBytes-bytes/2 {
		t.Errorf("%d bytes are available, and were %d before %d were promised",
			after.AvailableBytes, before.AvailableBytes, bytes)
	}
}

// A limit of the process's own counts as a cgroup's does.
func TestReadHeedsTheProcess(t *testing.T) {
	const limit = 1 << 30
	defer hostmem.Limit(hostmem.Limit(limit))
	buf, err := hostmem.Alloc(limit/2, hostmem.Weights)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Free()
	i := Read()
	free, ok := i.FreeBytes()
	if i.LimitBytes > limit || i.LeftBytes >= limit/2 || !ok || free > i.LeftBytes {
		t.Errorf("%+v, %d free", i, free)
	}
	if budget, ok := i.BudgetBytes(); !ok || budget > limit/2-reserveBytes {
		t.Errorf("a budget of %d", budget)
	}
}
