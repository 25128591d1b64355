package top

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"syscall"
	"time"

	optimem "github.com/optimem/optimem/runtime"
)

// A Report is what a process tells of its sessions and pools.
type Report struct {
	PID     int    `json:"pid"`
	Program string `json:"program"`
	// At is when, by the process's clock, Seconds how long it has listened.
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	Rows    []Row     `json:"rows"`
}

// A Row is a session, a pool, or a member of the pool before it. What it counts it counts from its beginning, in passes
// that are over.
type Row struct {
	Name string `json:"name"`
	// Kind is "session", "pool" or "member".
	Kind string `json:"kind"`
	// BudgetBytes and HostBudgetBytes are 0 where there is no limit that is known, and for members, whose pool has it.
	BudgetBytes     int64 `json:"budget_bytes"`
	HostBudgetBytes int64 `json:"host_budget_bytes"`
	// HeldBytes is all that is held of the device, of which WeightBytes are weights that stay; of a pool's it is what its members
	// may hold.
	HeldBytes       int64 `json:"held_bytes"`
	PeakBytes       int64 `json:"peak_bytes"`
	HostBytes       int64 `json:"host_bytes"`
	WeightBytes     int64 `json:"weight_bytes"`
	CacheBytes      int64 `json:"cache_bytes"`
	RingBytes       int64 `json:"ring_bytes"`
	ActivationBytes int64 `json:"activation_bytes"`
	WorkBytes       int64 `json:"work_bytes"`
	Calls           int64 `json:"calls"`
	Passes          int64 `json:"passes"`
	// Running says that a pass runs, Waiting how many calls wait.
	Running bool `json:"running"`
	Waiting int  `json:"waiting"`
	// LoadedBytes were read, MovedBytes brought for passes.
	LoadedBytes    int64   `json:"loaded_bytes"`
	MovedBytes     int64   `json:"moved_bytes"`
	PassingSeconds float64 `json:"passing_seconds"`
	ComputeSeconds float64 `json:"compute_seconds"`
	StallSeconds   float64 `json:"stall_seconds"`
	Replans        int64   `json:"replans"`
	// Pass is how far the pass has come that runs, where the session has the entry as an observer.
	Pass *Pass `json:"pass,omitempty"`
}

// A Pass is how far a pass has come.
type Pass struct {
	// Group of Groups is done, which is the module's at Path.
	Group        int     `json:"group"`
	Groups       int     `json:"groups"`
	Path         string  `json:"path"`
	LoadedBytes  int64   `json:"loaded_bytes"`
	StallSeconds float64 `json:"stall_seconds"`
}

func sessionRow(name string, m optimem.Metrics) Row {
	return Row{
		Name: name, Kind: "session", PeakBytes: m.PeakBytes, HostBytes: m.HostBytes,
		HeldBytes:   m.HeldBytes,
		WeightBytes: m.WeightBytes, CacheBytes: m.CacheBytes, RingBytes: m.RingBytes,
		ActivationBytes: m.ActivationBytes, WorkBytes: m.WorkBytes,
		Calls: m.Calls, Passes: m.Runs, LoadedBytes: m.LoadedBytes, MovedBytes: m.MovedBytes,
		PassingSeconds: m.Passing.Seconds(), ComputeSeconds: m.Compute.Seconds(), StallSeconds: m.Stall.Seconds(),
		Replans: m.Replans,
	}
}

// poolRows are a pool's row, whose counts are the sums, and its members'.
func poolRows(name string, pool *optimem.Pool) []Row {
	m := pool.Metrics()
	all := Row{
		Name: name, Kind: "pool", BudgetBytes: m.BudgetBytes, HeldBytes: m.HeldBytes, PeakBytes: m.PeakBytes,
		Running: m.Running > 0, Waiting: m.Waiting,
	}
	rows := []Row{all}
	for _, x := range m.Members {
		row := sessionRow(x.Name, x.Session)
		row.Kind, row.Running, row.Waiting = "member", x.Running, x.Waiting
		rows = append(rows, row)
		sum := &rows[0]
		sum.HostBytes += row.HostBytes
		sum.WeightBytes += row.WeightBytes
		sum.RingBytes += row.RingBytes
		sum.ActivationBytes += row.ActivationBytes
		sum.WorkBytes += row.WorkBytes
		sum.Calls += row.Calls
		sum.Passes += row.Passes
		sum.LoadedBytes += row.LoadedBytes
		sum.MovedBytes += row.MovedBytes
		sum.PassingSeconds += row.PassingSeconds
		sum.ComputeSeconds += row.ComputeSeconds
		sum.StallSeconds += row.StallSeconds
		sum.Replans += row.Replans
	}
	return rows
}

// maxAnswer bounds what is read of an answer, in bytes: some ten thousand rows.
const maxAnswer = 8 << 20

// Read asks the process that listens on a socket. What goes wrong is an [*Error].
func Read(ctx context.Context, socket string) (*Report, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, dialError(ctx, socket, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(2 * answerTime)); err != nil {
		return nil, &Error{socket, "no answer", err}
	}
	text, err := io.ReadAll(io.LimitReader(conn, maxAnswer+1))
	switch {
	case ctx.Err() != nil:
		return nil, &Error{socket, "no answer", ctx.Err()}
	case err != nil:
		return nil, &Error{socket, "no answer", err}
	case len(text) > maxAnswer:
		return nil, &Error{socket, "the answer is no report: it does not end", nil}
	case len(text) == 0:
		return nil, &Error{socket, "the process answers others now", nil}
	}
	var r Report
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return nil, &Error{socket, "the answer is no report", err}
	}
	return &r, nil
}

// dialError says why there is no connection.
func dialError(ctx context.Context, socket string, err error) error {
	switch {
	case ctx.Err() != nil:
		return &Error{socket, "no answer", ctx.Err()}
	case errors.Is(err, fs.ErrNotExist):
		return &Error{socket, "there is none: no process listens there, or it has ended", fs.ErrNotExist}
	case errors.Is(err, fs.ErrPermission):
		return &Error{socket, "it is another user's", fs.ErrPermission}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &Error{socket, "nobody listens: the process has ended, or it is no socket", syscall.ECONNREFUSED}
	}
	return &Error{socket, "no connection", err}
}
