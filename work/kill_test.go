package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve"
)

// A part is what a process of a test is, as it finds it in its environment.
type part struct {
	// Node is which of a cluster's servers it is, −1 if it is a worker.
	Node           int
	Dir, Host      string
	Routes, Listen []int
	// At is the queue of a worker.
	At Options
}

const partVariable = "OPTIMEM_TEST_PART"

// TestMain runs tests, or is a process of one.
func TestMain(m *testing.M) {
	text, ok := os.LookupEnv(partVariable)
	if !ok {
		os.Exit(m.Run())
	}
	go func() { // it ends with its parent
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	var p part
	err := json.Unmarshal([]byte(text), &p)
	if err == nil && p.Node >= 0 {
		var s *server.Server
		if s, err = server.NewServer(p.options()); err == nil {
			s.Start()
			s.WaitForShutdown()
		}
	} else if err == nil {
		err = p.work()
	}
	fmt.Fprintln(os.Stderr, "ended:", err)
	os.Exit(2)
}

// options are those of a server of a cluster.
func (p *part) options() *server.Options {
	opts := &server.Options{
		ServerName: fmt.Sprint("node", p.Node), Host: p.Host, Port: p.Listen[p.Node], JetStream: true, StoreDir: p.Dir, NoSigs: true, NoLog: true,
	}
	for _, port := range p.Routes {
		opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: fmt.Sprint(p.Host, ":", port)})
	}
	opts.Cluster.Name, opts.Cluster.Host, opts.Cluster.Port = "three", p.Host, p.Routes[p.Node]
	return opts
}

// work is a worker.
func (p *part) work() error {
	ctx := context.Background()
	q, err := Connect(ctx, p.At)
	if err != nil {
		return err
	}
	progress := new(Progress)
	registry, err := serve.Open(ctx, p.Dir, serve.Options{Memory: 64 << 20, Session: runtime.Options{Observe: progress.Observe}})
	if err != nil {
		return err
	}
	return q.Work(ctx, registry, WorkerOptions{Progress: progress, AckWait: 5 * time.Second, RetryAfter: 200 * time.Millisecond, Attempts: 100})
}

// start starts a process.
func (p part) start(t *testing.T) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), partVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // open until we end
		t.Error(err)
	} else if err := cmd.Start(); err != nil {
		t.Error(err)
	}
	t.Cleanup(func() { kill(cmd) })
	return cmd
}

// kill ends a process without a word: kill -9.
func kill(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// freePorts are ports of an address of this host that nobody has, and no other test: they are none that the system
// gives to connections, and on Linux, where each of 127.0.0.0/8 is this host, the address is drawn.
func freePorts(t *testing.T, n int) (host string, ports []int) {
	t.Helper()
	host = "127.0.0.1"
	if goruntime.GOOS == "linux" {
		host = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
	}
	for len(ports) < n {
		l, err := net.Listen("tcp", fmt.Sprint(host, ":", 10000+rand.IntN(20000)))
		if err != nil {
			continue
		}
		defer func() { _ = l.Close() }()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return host, ports
}

// current reports whether all servers of a cluster have all of a queue.
func current(ctx context.Context, q *Queue) bool {
	for _, name := range []string{q.name, q.name + "-dead", "OBJ_" + q.in.name, "OBJ_" + q.out.name, "KV_" + q.name + "-models"} {
		s, err := q.js.Stream(ctx, name)
		if err != nil {
			return false
		}
		c := s.CachedInfo().Cluster
		if c == nil || c.Leader == "" || len(c.Replicas) != 2 {
			return false
		}
		for _, r := range c.Replicas {
			if r.Offline || !r.Current {
				return false
			}
		}
	}
	return true
}

// Three servers and two workers, each a process, of which servers and workers are killed in turn under load, without a
// word: nothing is lost, nothing comes twice, and every bit is that of a session that runs alone.
func TestServersAndWorkersAreKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	const n = 200
	host, ports := freePorts(t, 6)
	p := part{Host: host, Routes: ports[:3], Listen: ports[3:]}
	nodes, dirs := make([]*exec.Cmd, 3), make([]string, 3)
	list := ""
	for i := range nodes {
		dirs[i] = t.TempDir()
		p.Node, p.Dir = i, dirs[i]
		nodes[i] = p.start(t)
		list += fmt.Sprintf("nats://%s:%d,", host, p.Listen[i])
	}
	at := Options{URL: list[:len(list)-1], Stream: "pictures", Replicas: 3}
	var q *Queue
	wait(t, "the cluster has a queue", func() (there bool) {
		c, err := Connect(t.Context(), at)
		q = c
		return err == nil
	})
	t.Cleanup(q.Close)
	models := t.TempDir()
	data, err := os.ReadFile(digits)
	if err == nil {
		err = os.WriteFile(filepath.Join(models, "digits.pt2"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	worker := part{Node: -1, Dir: models, At: at}
	workers := []*exec.Cmd{worker.start(t), worker.start(t)}
	wait(t, "a worker tells of its model", func() bool {
		_, err := q.told(t.Context(), "digits")
		return err == nil
	})
	results := make(map[int]Result)
	err = q.Submit(t.Context(), "digits", pictures(0, n), SubmitOptions{InFlight: 32}, func(r Result) error {
		if _, twice := results[r.Index]; twice {
			t.Errorf("%s has two results", r.Name)
		}
		results[r.Index] = r
		switch len(results) {
		case 20:
			kill(nodes[0])
		case 60:
			kill(workers[0])
			p.Node, p.Dir = 0, dirs[0]
			nodes[0] = p.start(t)
			worker.start(t)
			if !waited(func() bool { return current(t.Context(), q) }) {
				return errors.New("the server that was killed does not get what it missed")
			}
		case 100:
			kill(nodes[1])
		case 140:
			kill(workers[1])
		}
		return nil
	})
	if err != nil || len(results) != n {
		t.Fatalf("%d results: %v", len(results), err)
	}
	want := plain(t, n)
	for i, r := range results {
		check(t, q, r, want[i])
	}
	waitEmpty(t, q)
	wait(t, "there are as many outputs as items", func() bool { // a replica that answers may be behind
		stored, err := q.out.List(t.Context())
		if len(stored) > n {
			t.Errorf("%d outputs for %d items", len(stored), n)
		}
		return err == nil && len(stored) >= n
	})
	if _, err := q.dead.GetLastMsgForSubject(t.Context(), q.deadSubject(">")); err == nil {
		t.Error("items were put aside")
	} else if !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Error(err)
	}
}
