package sysmem

import (
	"bufio"
	"bytes"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// readRoot reads /proc and the cgroups below another folder than the root, for tests and for looking into containers.
func readRoot(root string) Info {
	h := host{root}
	i := Info{LimitBytes: Unlimited, LeftBytes: Unlimited}
	if h.meminfo(&i); i.TotalBytes == 0 && root == "/" {
		askKernel(&i)
	}
	h.cpuinfo(&i)
	for _, g := range h.cgroups() {
		h.memory(&i, g)
		h.quota(&i, g)
	}
	if i.TotalBytes > 0 && i.LimitBytes >= i.TotalBytes {
		i.LimitBytes = Unlimited // it limits nothing
	}
	return i
}

// A host is the folder that /proc and /sys lie in.
type host struct{ root string }

func (h host) read(name string) []byte {
	text, err := os.ReadFile(filepath.Join(h.root, name))
	if err != nil {
		return nil
	}
	return text
}

// number reads a file with one number; "max" and what is not there give false.
func (h host) number(name string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(string(h.read(name))), 10, 64)
	return n, err == nil
}

// meminfo reads the host's memory. Kernels that lack MemAvailable count what is free and the page cache.
func (h host) meminfo(i *Info) {
	sizes := make(map[string]int64)
	for line := range bytes.Lines(h.read("proc/meminfo")) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 {
			continue
		}
		if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil && n >= 0 && n < 1<<52 {
			sizes[strings.TrimSuffix(fields[0], ":")] = n << 10
		}
	}
	i.TotalBytes = sizes["MemTotal"]
	available, ok := sizes["MemAvailable"]
	if !ok {
		available = sizes["MemFree"] + sizes["Cached"]
	}
	i.AvailableBytes = available
}

// askKernel asks without /proc, which not every container has. Page cache that could be given up it does not tell.
func askKernel(i *Info) {
	var of unix.Sysinfo_t
	if unix.Sysinfo(&of) == nil {
		unit := uint64(max(of.Unit, 1))
		i.TotalBytes, i.AvailableBytes = int64(uint64(of.Totalram)*unit), int64((uint64(of.Freeram)+uint64(of.Bufferram))*unit)
	}
}

// processors are what processors are called, by root. Linux asks all of them, each time the file is read.
var processors sync.Map

func (h host) cpuinfo(i *Info) {
	if name, ok := processors.Load(h.root); ok {
		i.Model = name.(string)
		return
	}
	for line := range bytes.Lines(h.read("proc/cpuinfo")) {
		key, value, _ := strings.Cut(string(line), ":")
		if strings.TrimSpace(key) == "model name" {
			i.Model = strings.TrimSpace(value)
			processors.Store(h.root, i.Model)
			return
		}
	}
}

// A cgroup is a folder of the process's in one hierarchy, from the mount point down.
type cgroup struct {
	// mount is where the hierarchy is mounted, folder the process's place below it.
	mount, folder string
	// controllers is nil for the unified hierarchy of the second version.
	controllers []string
}

// levels returns the folders from the process's own up to the mount point. Each may have a limit.
func (g cgroup) levels() []string {
	var list []string
	for folder := path.Join("/", g.folder); ; folder = path.Dir(folder) {
		list = append(list, path.Join(g.mount, folder))
		if folder == "/" {
			return list
		}
	}
}

func (g cgroup) has(controller string) bool {
	return g.controllers == nil || slices.Contains(g.controllers, controller)
}

// cgroups finds the hierarchies that the process is in. What /proc/self/cgroup calls the process's folder begins at
// the root of a hierarchy, and a container often has only a part of it mounted: the part is what mountinfo calls the
// root of the mount.
func (h host) cgroups() []cgroup {
	var list []cgroup
	mounts := bufio.NewScanner(bytes.NewReader(h.read("proc/self/mountinfo")))
	for mounts.Scan() {
		before, after, ok := strings.Cut(mounts.Text(), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		g := cgroup{mount: unescape(fields[4])}
		switch kind[0] {
		case "cgroup2":
		case "cgroup":
			g.controllers = strings.Split(kind[2], ",")
		default:
			continue
		}
		folder, ok := h.folder(g)
		if !ok {
			continue
		}
		g.folder = below(folder, unescape(fields[3]))
		list = append(list, g)
	}
	return list
}

// unescape undoes how mountinfo writes spaces and the like: as an octal number after a backslash.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// folder returns the process's folder in a hierarchy.
func (h host) folder(g cgroup) (string, bool) {
	for line := range bytes.Lines(h.read("proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		if g.controllers == nil {
			if parts[0] == "0" && parts[1] == "" {
				return parts[2], true
			}
			continue
		}
		for _, c := range strings.Split(parts[1], ",") {
			if c != "" && g.has(c) {
				return parts[2], true
			}
		}
	}
	return "", false
}

// below returns the part of a folder below the root of a mount, "/" where the mount does not reach it: then what is
// mounted is the process's own.
func below(folder, root string) string {
	if root == "/" {
		return folder
	}
	rest, ok := strings.CutPrefix(folder, root)
	if !ok || rest != "" && rest[0] != '/' {
		return "/"
	}
	return rest
}

// memory takes the limits of a hierarchy into account.
func (h host) memory(i *Info, g cgroup) {
	if !g.has("memory") {
		return
	}
	limits, usage, prefix := []string{"memory.max", "memory.high"}, "memory.current", ""
	if g.controllers != nil {
		limits, usage, prefix = []string{"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_"
	}
	for _, level := range g.levels() {
		limit := int64(Unlimited)
		for _, name := range limits {
			if n, ok := h.number(path.Join(level, name)); ok && n >= 0 {
				limit = min(limit, n)
			}
		}
		if limit >= 1<<60 { // how the first version writes that there is none
			continue
		}
		i.LimitBytes = min(i.LimitBytes, limit)
		used, ok := h.number(path.Join(level, usage))
		if !ok {
			used = 0
		}
		used = max(used-h.reclaimable(path.Join(level, "memory.stat"), prefix), 0)
		i.LeftBytes = min(i.LeftBytes, max(limit-used, 0))
	}
}

// reclaimable returns the page cache of a cgroup that can be given up at once: all of its files that are not waiting to
// be written.
func (h host) reclaimable(name, prefix string) int64 {
	var n int64
	for line := range bytes.Lines(h.read(name)) {
		key, value, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		key, ok := strings.CutPrefix(key, prefix)
		size, err := strconv.ParseInt(value, 10, 64)
		if !ok || err != nil {
			continue
		}
		switch key {
		case "inactive_file", "active_file":
			n += size
		case "file_dirty", "file_writeback", "dirty", "writeback":
			n -= size
		}
	}
	return max(n, 0)
}

// quota takes the processor time of a hierarchy into account.
func (h host) quota(i *Info, g cgroup) {
	if !g.has("cpu") {
		return
	}
	for _, level := range g.levels() {
		var quota, period float64
		if g.controllers == nil {
			fields := strings.Fields(string(h.read(path.Join(level, "cpu.max"))))
			if len(fields) == 2 {
				quota, _ = strconv.ParseFloat(fields[0], 64) // "max" is no number
				period, _ = strconv.ParseFloat(fields[1], 64)
			}
		} else {
			q, _ := h.number(path.Join(level, "cpu.cfs_quota_us")) // -1 is none
			p, _ := h.number(path.Join(level, "cpu.cfs_period_us"))
			quota, period = float64(q), float64(p)
		}
		if quota > 0 && period > 0 && (i.CPUs == 0 || quota/period < i.CPUs) {
			i.CPUs = quota / period
		}
	}
}
