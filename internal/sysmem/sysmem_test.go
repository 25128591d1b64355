package sysmem

import (
	"testing"

	"github.com/optimem/optimem/internal/hostmem"
)

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
