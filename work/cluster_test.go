package work

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// cluster starts three servers that keep streams together.
func cluster(t *testing.T) []*server.Server {
	t.Helper()
	var routes []*url.URL
	var ports []int
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var all []*server.Server
	for i := range 3 {
		opts := &server.Options{
			ServerName: fmt.Sprint("node", i), Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
			NoSigs: true, NoLog: true, Routes: routes,
		}
		opts.Cluster.Name, opts.Cluster.Host, opts.Cluster.Port = "three", "127.0.0.1", ports[i]
		s, err := server.NewServer(opts)
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		TLS: true, TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, TLSTimeout: 5,
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
