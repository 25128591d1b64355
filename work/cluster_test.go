package work

import (
	"crypto/tls"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// cluster starts three servers that keep streams together.
func cluster(t *testing.T) []*server.Server {
	t.Helper()
	host, ports := freePorts(t, 6)
	var all []*server.Server
	for i := range 3 {
		p := part{Node: i, Dir: t.TempDir(), Host: host, Routes: ports[:3], Listen: ports[3:]}
		s, err := server.NewServer(p.options())
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		all = append(all, s)
	}
	wait(t, "the cluster has a leader, who sees all", func() bool {
		for _, s := range all {
			if !s.ReadyForConnections(time.Millisecond) || !s.JetStreamIsCurrent() {
				return false
			}
		}
		for _, s := range all {
			if len(s.JetStreamClusterPeers()) == len(all) { // which only the leader knows
				return true
			}
		}
		return false
	})
	return all
}

// Of three servers one ends, and then a worker, while 200 items are under way: nothing is lost, nothing comes twice, no bit differs.
func TestClusterLosesOne(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three servers")
	}
	const n = 200
	nodes := cluster(t)
	list := ""
	for _, s := range nodes {
		list += s.ClientURL() + ","
	}
	opts := Options{URL: list[:len(list)-1], Stream: "pictures", Replicas: 3}
	first := hireAt(t, opts, WorkerOptions{AckWait: 2 * time.Second}, nil)
	hireAt(t, opts, WorkerOptions{AckWait: 2 * time.Second}, nil)
	q, err := Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Close)
	results := make(map[int]Result)
	err = q.Submit(t.Context(), "digits", pictures(0, n), SubmitOptions{InFlight: 32}, func(r Result) error {
		if _, twice := results[r.Index]; twice {
			t.Errorf("%s has two results", r.Name)
		}
		results[r.Index] = r
		switch len(results) {
		case 20:
			go nodes[0].Shutdown()
		case 100:
			first.q.conn.Close()
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
}

// A server that is asked by TLS, with a certificate of an authority of its own, is trusted with --tls-ca and not without.
func TestTLS(t *testing.T) {
	ca, key := authority(t)
	pair, err := tls.LoadX509KeyPair(ca, key)
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		TLS: true, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}, TLSTimeout: 60,
		Username: "me", Password: "secret",
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	at := fmt.Sprintf("tls://me:secret@127.0.0.1:%d", s.Addr().(*net.TCPAddr).Port)
	if _, err := Connect(t.Context(), Options{URL: at, Stream: "s"}); err == nil {
		t.Error("an authority that nobody named is trusted")
	}
	q, err := Connect(t.Context(), Options{URL: at, Stream: "s", CA: ca})
	if err != nil {
		t.Fatal(err)
	}
	q.Close()
}
