package top_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/top"
)

// socket is a path that is short enough for one.
func socket(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "top")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s.sock")
}

func listen(t testing.TB, path string) *top.Server {
	t.Helper()
	s, err := top.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

func digits(t testing.TB) *models.Model {
	t.Helper()
	ckpt, err := loader.Open("../examples/digits/digits.pt2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ckpt.Close() })
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

func picture() optimem.Values {
	return optimem.Values{"input": tensor.Of(make([]float32, 64), 1, 1, 8, 8)}
}

// TestTellsOfSessionsAndPools: rows have what sessions and pools say of themselves, also while a pass runs.
func TestTellsOfSessionsAndPools(t *testing.T) {
	path := socket(t)
	server := listen(t, path)
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Mode().Type() != fs.ModeSocket {
		t.Errorf("the socket has the mode %v, %v", info.Mode(), err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("beside the socket there is %v, %v", left, err)
	}
	entry := server.Enter("digits")
	coming := server.Enter("coming")
	hold, begun := make(chan struct{}), make(chan struct{}, 1)
	session, err := optimem.Page(t.Context(), digits(t), optimem.Options{
		Memory: 1 << 20, Observe: optimem.TeeObserver(entry.Observe, func(e optimem.Event) {
			if e.Kind == optimem.GroupDone && e.Group == 1 {
				begun <- struct{}{}
				<-hold
			}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	entry.Session(session)
	var calls sync.WaitGroup
	call := func() {
		if _, err := session.Run(t.Context(), picture()); err != nil {
			t.Error(err)
		}
	}
	calls.Go(call)
	<-begun
	calls.Go(call)
	for _, waiting := session.Queue(); waiting == 0; _, waiting = session.Queue() {
		time.Sleep(time.Millisecond)
	}
	r, err := top.Read(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if r.PID != os.Getpid() || r.Program == "" || r.Seconds <= 0 || len(r.Rows) != 2 {
		t.Fatalf("%+v", r)
	}
	row := r.Rows[0]
	if row.Name != "digits" || row.Kind != "session" || row.BudgetBytes != 1<<20 || !row.Running || row.Waiting != 1 || row.Passes != 0 {
		t.Errorf("%+v", row)
	}
	if row.Pass == nil || row.Pass.Group != 2 || row.Pass.Groups < 3 || row.Pass.Path == "" || row.Pass.LoadedBytes == 0 {
		t.Errorf("the pass that runs: %+v", row.Pass)
	}
	if r.Rows[1] != (top.Row{Name: "coming", Kind: "session"}) {
		t.Errorf("%+v", r.Rows[1])
	}
	close(hold)
	go func() {
		for range begun { // of the passes after
		}
	}()
	calls.Wait()

	coming.Leave()
	pool, err := optimem.NewPool(optimem.PoolOptions{Memory: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	server.Enter("many").Pool(pool)
	model := digits(t)
	for _, name := range []string{"a", "b"} {
		if _, err := pool.Open(t.Context(), name, model, optimem.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if _, err := pool.Run(t.Context(), "b", picture()); err != nil {
			t.Fatal(err)
		}
	}
	for pool.Metrics().Running > 0 {
		time.Sleep(time.Millisecond)
	}
	if r, err = top.Read(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 4 {
		t.Fatalf("%+v", r.Rows)
	}
	m := session.Metrics()
	if row := r.Rows[0]; row.Pass != nil || row.Running || row.Passes != m.Runs || row.Calls != 2 || row.HeldBytes != m.HeldBytes ||
		row.HeldBytes != row.WeightBytes+row.CacheBytes+row.RingBytes+row.ActivationBytes+row.WorkBytes ||
		row.RingBytes != m.RingBytes || row.MovedBytes != m.MovedBytes || row.LoadedBytes != m.LoadedBytes ||
		row.PassingSeconds != m.Passing.Seconds() || row.ComputeSeconds != m.Compute.Seconds() || row.StallSeconds != m.Stall.Seconds() ||
		row.PeakBytes != m.PeakBytes || row.ActivationBytes == 0 || row.WorkBytes != m.WorkBytes {
		t.Errorf("%+v is not %+v", row, m)
	}
	p := pool.Metrics()
	all, a, b := r.Rows[1], r.Rows[2], r.Rows[3]
	if all.Kind != "pool" || all.BudgetBytes != 2<<20 || all.HeldBytes != p.HeldBytes || all.PeakBytes != p.PeakBytes || all.Calls != 3 {
		t.Errorf("%+v is not %+v", all, p)
	}
	if a.Kind != "member" || a.Name != "a" || a.Calls != 0 || b.Name != "b" || b.Calls != 3 || b.LoadedBytes != all.LoadedBytes ||
		b.LoadedBytes == 0 || b.WeightBytes == 0 || all.WeightBytes != b.WeightBytes || all.PassingSeconds != b.PassingSeconds {
		t.Errorf("%+v\n%+v\n%+v", all, a, b)
	}
}

// TestBadSockets: what is wrong with a socket is said, by who listens and by who reads.
func TestBadSockets(t *testing.T) {
	path := socket(t)
	var bad *top.Error
	_, err := top.Read(t.Context(), path)
	if !errors.As(err, &bad) || !errors.Is(err, fs.ErrNotExist) || bad.Socket != path {
		t.Errorf("no socket: %v", err)
	}
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = top.Listen(path); !errors.As(err, &bad) {
		t.Errorf("another file: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "text" {
		t.Errorf("the file is now %q, %v", text, err)
	}
	if _, err = top.Read(t.Context(), path); !errors.As(err, &bad) || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a file: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err = top.Listen(filepath.Join(path, "s")); !errors.As(err, &bad) {
		t.Errorf("no directory: %v", err)
	}

	// A socket that is left of a process.
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	if _, err = top.Read(t.Context(), path); !errors.As(err, &bad) || !strings.Contains(err.Error(), "ended") {
		t.Errorf("a socket that is left: %v", err)
	}
	server := listen(t, path)
	if _, err := top.Read(t.Context(), path); err != nil {
		t.Errorf("after one that was left: %v", err)
	}
	if _, err = top.Listen(path); !errors.As(err, &bad) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("two listen: %v", err)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}

	// A server that was replaced leaves the other one's socket.
	first := listen(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	listen(t, path)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if _, err := top.Read(t.Context(), path); err != nil {
		t.Errorf("the other one's socket: %v", err)
	}
}

// TestBadAnswers: what is no report is an error, and takes no more memory than a report may.
func TestBadAnswers(t *testing.T) {
	for name, answer := range map[string]func(c net.Conn){
		"nothing":   func(net.Conn) {},
		"text":      func(c net.Conn) { fmt.Fprintln(c, "HTTP/1.1 400 Bad Request") },
		"other":     func(c net.Conn) { fmt.Fprintln(c, `{"pid":1,"password":"x"}`) },
		"cut short": func(c net.Conn) { fmt.Fprint(c, `{"pid":1`) },
		"endless": func(c net.Conn) {
			for err := error(nil); err == nil; {
				_, err = c.Write(make([]byte, 1<<20))
			}
		},
	} {
		path := socket(t)
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if c, err := l.Accept(); err == nil {
				answer(c)
				c.Close()
			}
		}()
		var bad *top.Error
		_, err = top.Read(t.Context(), path)
		if !errors.As(err, &bad) || name == "endless" && !strings.Contains(err.Error(), "does not end") {
			t.Errorf("%s: %v", name, err)
		}
		l.Close()
	}
	path := socket(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := top.Read(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := top.Read(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody answers: %v", err)
	}
}

// TestWhoAsksHoldsNobodyUp: those that connect and take nothing are dropped when there are many, and Close waits for none for
// long; what they send is not read.
func TestWhoAsksHoldsNobodyUp(t *testing.T) {
	path := socket(t)
	server := listen(t, path)
	for range 200 {
		server.Enter(strings.Repeat("x", 10_000)) // more than a socket holds, so that an answer waits for its reader
	}
	var conns []net.Conn
	for range 8 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	// The ninth is closed, once the others have been seen.
	for begin := time.Now(); ; {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(c)
		c.Close()
		if len(text) == 0 {
			break
		}
		if time.Since(begin) > time.Minute {
			t.Fatal("any number is answered at one time")
		}
	}
	var bad *top.Error
	if _, err := top.Read(t.Context(), path); !errors.As(err, &bad) || !strings.Contains(err.Error(), "others") {
		t.Errorf("a ninth: %v", err)
	}
	for _, c := range conns[:7] {
		c.Close()
	}
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		r, err := top.Read(t.Context(), path)
		if err == nil {
			if len(r.Rows) != 200 {
				t.Errorf("%d rows", len(r.Rows))
			}
			break
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("nobody is answered once others have left: %v", err)
		}
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(conns[7]); err != nil {
		t.Logf("who took nothing: %v", err)
	}
	text, err := json.Marshal(server.Report())
	if err != nil || len(text) < 200*10_000 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// BenchmarkReport is what an answer costs the process: for a pool of forty models.
func BenchmarkReport(b *testing.B) {
	pool, err := optimem.NewPool(optimem.PoolOptions{Memory: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	model := digits(b)
	for i := range 40 {
		if _, err := pool.Open(b.Context(), fmt.Sprint("model ", i), model, optimem.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	path := socket(b)
	server := listen(b, path)
	server.Enter("pool").Pool(pool)
	b.Run("answer", func(b *testing.B) {
		for b.Loop() {
			if _, err := json.Marshal(server.Report()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if _, err := top.Read(b.Context(), path); err != nil {
				b.Fatal(err)
			}
		}
	})
}
