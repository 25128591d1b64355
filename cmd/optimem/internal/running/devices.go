//go:build !files

package running

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/optimem/optimem/cmd/optimem/internal/command"

	goruntime "runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/internal/sysmem"
	"github.com/optimem/optimem/runtime"
)

const devicesLong = `Say what can run here: each device with its memory, and why one cannot be used. On the CPU,
memory is what this process may have of the host's: limits of containers count.`

// A deviceRow is a device in the answer.
type deviceRow struct {
	// Name is what --device takes.
	Name   string `json:"name"`
	Usable bool   `json:"usable"`
	// TotalBytes and FreeBytes are null where they are not known.
	TotalBytes *int64 `json:"total_bytes"`
	FreeBytes  *int64 `json:"free_bytes"`
	Threads    int    `json:"threads"`
	// Nodes are the NUMA nodes with memory of the host, Node that which a GPU is at; null where there is but one, or it
	// is not known.
	Nodes []int `json:"numa_nodes"`
	Node  *int  `json:"numa_node"`
	// About says what it is, or why it cannot be used.
	About string `json:"about"`
}

// DevicesCommand is 'optimem devices', which lists what can compute.
func DevicesCommand(c *command.Line) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "Say what can run here",
		Long:  devicesLong,
		Args:  c.Arguments(cobra.NoArgs),
		RunE: c.Enter(func(*cobra.Command, []string) error {
			rows := append(deviceRows(sysmem.Read(), sysmem.ReadTopology()), gpuRows(os.Getenv(LibraryVariable))...)
			if asJSON {
				o := jsonout.New(c.Stdout)
				jsonout.Array(o, "devices", slices.Values(rows))
				return o.Close()
			}
			_, err := fmt.Fprint(c.Stdout, deviceTable(rows))
			return err
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func deviceRows(host sysmem.Info, topology sysmem.Topology) []deviceRow {
	processor := deviceRow{Name: "cpu", Usable: true, Threads: goruntime.GOMAXPROCS(0), About: HostName(host)}
	if total := host.MostBytes(); total > 0 {
		processor.TotalBytes = &total
	}
	if free, ok := host.FreeBytes(); ok {
		processor.FreeBytes = &free
	}
	if host.LimitBytes != sysmem.Unlimited {
		processor.About += fmt.Sprintf("; limited to %s of %s", ascii.FormatSize(host.LimitBytes),
			ascii.FormatSize(host.TotalBytes))
	}
	if len(topology.Nodes) > 1 {
		processor.Nodes = topology.Nodes
		processor.About += fmt.Sprintf("; %d NUMA nodes", len(topology.Nodes))
	}
	return []deviceRow{
		processor,
		{Name: "emu", Usable: true, About: "simulated: emu:memory=2GiB,bandwidth=12GB/s,latency=10us has memory of its own" +
			" and a clock of its own, and the CPU's results"},
	}
}

// LibraryVariable names the variable that says where NVIDIA's driver is, for those whose is not where drivers are.
const LibraryVariable = "OPTIMEM_LIBCUDA"

// blasVariable names the variable that says where cuBLASLt is, "auto" for wherever it is found, "none" for no use of it, for those who
// want other products of matrices on a GPU than a table says.
const blasVariable = "OPTIMEM_CUBLASLT"

// cacheVariable names the variable that says in which folder a GPU's kernels are kept once they are assembled, for those whose
// driver forgets them, as in containers.
const cacheVariable = "OPTIMEM_CUDA_CACHE"

// assembledKernels returns the folder of a GPU's assembled kernels: the one that is named, or that of the release beside the program.
func assembledKernels() string {
	if folder := os.Getenv(cacheVariable); folder != "" {
		return folder
	}
	program, err := os.Executable()
	if err != nil {
		return ""
	}
	folder := filepath.Join(filepath.Dir(program), "cubins")
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return ""
	}
	return folder
}

// gpuRows has a row for each GPU, or one that says why there is none.
func gpuRows(library string) []deviceRow {
	gpus, err := runtime.GPUs(library)
	if err != nil || len(gpus) == 0 {
		why := "the driver sees no GPU"
		if err != nil {
			why = err.Error()
		}
		return []deviceRow{{Name: "cuda", About: why}}
	}
	var rows []deviceRow
	for i := range gpus {
		g := &gpus[i]
		row := deviceRow{
			Name: g.Name, Usable: g.Err == nil, TotalBytes: &g.TotalBytes,
			About: fmt.Sprintf("%s, compute capability %d.%d, driver of CUDA %d.%d",
				g.Model, g.Capability/10, g.Capability%10, g.Driver/1000, g.Driver%1000/10),
		}
		if g.Node >= 0 {
			row.Node = &g.Node
			row.About += fmt.Sprintf(", copies through memory of NUMA node %d, where it is", g.Node)
		}
		if g.Err != nil {
			row.About += ": " + g.Err.Error()
		} else {
			row.FreeBytes = &g.FreeBytes
		}
		rows = append(rows, row)
	}
	return rows
}

// HostName says which processor this is.
func HostName(host sysmem.Info) string {
	if host.Model == "" {
		return goruntime.GOOS + "/" + goruntime.GOARCH
	}
	return host.Model
}

func deviceTable(rows []deviceRow) *ascii.Table {
	t := ascii.NewTable(
		ascii.Left("device"), ascii.Left("usable"), ascii.Right("threads"), ascii.Right("memory"), ascii.Right("free"),
		ascii.Left("what it is"),
	)
	size := func(n *int64) string {
		if n == nil {
			return ""
		}
		return ascii.FormatSize(*n)
	}
	for _, d := range rows {
		usable, threads := "no", ""
		if d.Usable {
			usable = "yes"
		}
		if d.Threads > 0 {
			threads = fmt.Sprint(d.Threads)
		}
		t.Row(d.Name, usable, threads, size(d.TotalBytes), size(d.FreeBytes), d.About)
	}
	return t
}
