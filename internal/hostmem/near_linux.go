package hostmem

import (
	goruntime "runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// policyPreferred is MPOL_PREFERRED of set_mempolicy(2): other nodes are taken where the one has no memory left.
const policyPreferred = 1

// nodeMask is a set of NUMA nodes, a bit each.
type nodeMask [maxNode / 64]uint64

const maxNode = 1024

// Near calls a function whose thread takes memory from a NUMA node as long as that has some; of no node where that is
// below 0. The kernel may refuse, and memory is then wherever it is: that is no error. What the function returns is
// returned. It may not change to another thread for what takes memory.
func Near(node int, f func() error) error {
	if node < 0 || node >= maxNode {
		return f()
	}
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	var before nodeMask
	mode, ok := policy(&before)
	if !ok {
		return f()
	}
	var one nodeMask
	one[node/64] = 1 << (node % 64)
	if !setPolicy(policyPreferred, &one) {
		return f()
	}
	defer func() {
		if !setPolicy(mode, &before) {
			setPolicy(0, &nodeMask{}) // the default
		}
	}()
	return f()
}

// policy returns the thread's.
func policy(nodes *nodeMask) (mode int, ok bool) {
	var m int32
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY,
		uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(nodes)), maxNode, 0, 0, 0)
	return int(m), errno == 0
}

func setPolicy(mode int, nodes *nodeMask) bool {
	mask, bits := uintptr(unsafe.Pointer(nodes)), uintptr(maxNode)
	if *nodes == (nodeMask{}) {
		mask, bits = 0, 0
	}
	_, _, errno := unix.Syscall(unix.SYS_SET_MEMPOLICY, uintptr(mode), mask, bits)
	goruntime.KeepAlive(nodes)
	return errno == 0
}
