package sysmem

import (
	"os"
	"path/filepath"
	"testing"
)

const meminfo = "MemTotal:       16000000 kB\nMemFree:  1000 kB\nMemAvailable:    8000000 kB\n" +
	"Cached: 5 kB\nHugePages_Total: 0\n"

// fake writes a root folder.
func fake(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestReadRoot(t *testing.T) {
	const (
		kiB   = 1 << 10
		total = 16000000 * kiB
		avail = 8000000 * kiB
		v2    = "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
		v1    = "33 32 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n" +
			"34 32 0:31 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
	)
	const cached = "inactive_file 100000000\nactive_file 50000000\nfile_dirty 10000000\nfile_writeback 5000000\n"
	none := Info{LimitBytes: Unlimited, LeftBytes: Unlimited}
	host := none
	host.TotalBytes, host.AvailableBytes = total, avail
	within := func(limit, left int64, cpus float64) Info {
		i := host
		i.LimitBytes, i.LeftBytes, i.CPUs = limit, left, cpus
		return i
	}
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  Info
		free  int64
	}{
		{"nothing is known", nil, none, 0},
		{
			"no cgroup", map[string]string{
				"proc/meminfo": meminfo, "proc/cpuinfo": "processor : 0\nmodel name\t: Some CPU @ 2GHz\n",
			},
			Info{total, avail, Unlimited, Unlimited, 0, "Some CPU @ 2GHz"},
			avail,
		},
		{
			"an old kernel", map[string]string{"proc/meminfo": "MemTotal: 100 kB\nMemFree: 30 kB\nCached: 20 kB\n"},
			Info{100 * kiB, 50 * kiB, Unlimited, Unlimited, 0, ""}, 50 * kiB,
		},
		{
			"second version, no limit", map[string]string{
				"proc/meminfo": meminfo, "proc/self/mountinfo": v2, "proc/self/cgroup": "0::/user/me\n",
				"sys/fs/cgroup/user/me/memory.max": "max\n", "sys/fs/cgroup/user/me/memory.current": "5\n",
				"sys/fs/cgroup/user/me/cpu.max": "max 100000\n",
			},
			host, avail,
		},
		{
			// The inner limit is the smaller one, the outer leaves less.
			"second version, nested", map[string]string{
				"proc/meminfo": meminfo, "proc/self/mountinfo": v2, "proc/self/cgroup": "1:name=systemd:/x\n0::/pod/box\n",
				"sys/fs/cgroup/pod/box/memory.max": "1000000000\n", "sys/fs/cgroup/pod/box/memory.current": "300000000\n",
				"sys/fs/cgroup/pod/box/memory.stat": "anon 7\nfile 9\n" + cached,
				"sys/fs/cgroup/pod/box/cpu.max":     "150000 100000\n",
				"sys/fs/cgroup/pod/memory.max":      "2000000000\n", "sys/fs/cgroup/pod/memory.current": "1900000000\n",
				"sys/fs/cgroup/pod/memory.stat": "inactive_file 0\n",
				"sys/fs/cgroup/pod/cpu.max":     "50000 100000\n",
				"sys/fs/cgroup/cgroup.procs":    "",
			},
			within(1000000000, 100000000, 0.5), 100000000,
		},
		{
			"second version, page cache", map[string]string{
				"proc/meminfo": meminfo, "proc/self/mountinfo": v2, "proc/self/cgroup": "0::/box\n",
				"sys/fs/cgroup/box/memory.max": "1000000000\n", "sys/fs/cgroup/box/memory.current": "900000000\n",
				"sys/fs/cgroup/box/memory.stat": cached,
			},
			within(1000000000, 235000000, 0), 235000000,
		},
		{
			"second version, throttled before the limit", map[string]string{
				"proc/meminfo": meminfo, "proc/self/mountinfo": v2, "proc/self/cgroup": "0::/box\n",
				"sys/fs/cgroup/box/memory.max": "1000000000\n", "sys/fs/cgroup/box/memory.high": "600000000\n",
				"sys/fs/cgroup/box/memory.current": "100000000\n",
			},
			within(600000000, 500000000, 0), 500000000,
		},
		{
			// A namespace shows its own folder as the root.
			"second version, a container's namespace", map[string]string{
				"proc/meminfo": meminfo, "proc/self/mountinfo": v2, "proc/self/cgroup": "0::/\n",
				"sys/fs/cgroup/memory.max": "1000\n", "sys/fs/cgroup/memory.current": "3000\n",
			},
			within(1000, 0, 0), 0,
		},
		{
			// Only the container's part of the hierarchies is mounted.
			"first version, a container", map[string]string{
				"proc/meminfo": meminfo, "proc/self/mountinfo": "1 2 3 short\n" + v1,
				"proc/self/cgroup":                           "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/docker/abc\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n",
				"sys/fs/cgroup/memory/memory.usage_in_bytes": "600000000\n",
				"sys/fs/cgroup/memory/memory.stat": "inactive_file 1\n" +
					"total_inactive_file 100000000\ntotal_active_file 20000000\ntotal_dirty 20000000\n",
				"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":  "200000\n",
				"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
			},
			within(1073741824, 573741824, 2), 573741824,
		},
		{
			"first version, no limit", map[string]string{
				"proc/meminfo": meminfo, "proc/self/mountinfo": v1, "proc/self/cgroup": "4:memory:/elsewhere\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
				"sys/fs/cgroup/memory/memory.usage_in_bytes": "600000000\n",
			},
			host, avail,
		},
		{
			"a limit beyond the host's memory leaves what is available", map[string]string{
				"proc/meminfo": meminfo, "proc/self/mountinfo": v2, "proc/self/cgroup": "0::/\n",
				"sys/fs/cgroup/memory.max": "100000000000\n", "sys/fs/cgroup/memory.current": "0\n",
			},
			within(Unlimited, 100000000000, 0), avail,
		},
		{
			"a mount with a space, and nonsense", map[string]string{
				"proc/meminfo":             "MemTotal: many kB\nMemAvailable:\nMemFree: -5 kB\n",
				"proc/self/mountinfo":      "30 25 0:26 / /my\\040groups rw - cgroup2 cgroup2 rw\n",
				"proc/self/cgroup":         "bad\n0::/box\n",
				"my groups/box/memory.max": "4096\n", "my groups/box/memory.stat": "inactive_file lots\n",
			},
			Info{LimitBytes: 4096, LeftBytes: 4096}, 4096,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := readRoot(fake(t, tt.files))
			if got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			free, ok := got.FreeBytes()
			if free != tt.free && ok || ok != (tt.files != nil) {
				t.Errorf("free %d (%v), want %d", free, ok, tt.free)
			}
		})
	}
}

func TestBudgetBytes(t *testing.T) {
	for _, tt := range []struct {
		info Info
		want int64
		ok   bool
	}{
		{Info{LimitBytes: Unlimited, LeftBytes: Unlimited}, 0, false},
		{Info{TotalBytes: 8 << 30, LimitBytes: Unlimited, LeftBytes: Unlimited}, 4 << 30, true},
		{Info{8 << 30, 2 << 30, Unlimited, Unlimited, 0, ""}, 2<<30 - 128<<20, true},
		{Info{8 << 30, 2 << 30, 1 << 30, 512 << 20, 0, ""}, 384 << 20, true},
		{Info{8 << 30, 2 << 30, 1 << 30, 64 << 20, 0, ""}, 0, true},
	} {
		if got, ok := tt.info.BudgetBytes(); got != tt.want || ok != tt.ok {
			t.Errorf("%+v: budget %d, %v, want %d, %v", tt.info, got, ok, tt.want, tt.ok)
		}
	}
}

// The host that the tests run on has memory, and lets a process have no more than all of it.
func TestRead(t *testing.T) {
	i := Read()
	free, ok := i.FreeBytes()
	if i.TotalBytes <= 0 || !ok || free <= 0 || free > i.MostBytes() {
		t.Errorf("%+v: %d bytes are free of %d", i, free, i.MostBytes())
	}
}

// TestAskKernel: without /proc the kernel itself says how much memory there is. In a container it may be more than /proc has.
func TestAskKernel(t *testing.T) {
	var asked Info
	askKernel(&asked)
	if asked.TotalBytes < 1<<20 || asked.AvailableBytes <= 0 || asked.AvailableBytes > asked.TotalBytes {
		t.Errorf("%+v", asked)
	}
}
