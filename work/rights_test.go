package work

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// authority writes a certificate of an authority of its own for this host, and its key.
func authority(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: text}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// user makes an nkey, whose public part is in the environment, and returns the file of its seed.
func user(t *testing.T, variable string) string {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(variable, public)
	path := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(path, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// With the rights of deploy/nats.conf a worker and a submitter do all that they do, by TLS, and a submitter makes no
// output.
func TestLeastRights(t *testing.T) {
	owner, worker, submitter := user(t, "OWNER"), user(t, "WORKER"), user(t, "SUBMITTER")
	cert, key := authority(t)
	t.Setenv("CERTIFICATE", cert)
	t.Setenv("KEY", key)
	t.Setenv("STORE", t.TempDir())
	opts, err := server.ProcessConfigFile("../deploy/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog, opts.TLSTimeout = "127.0.0.1", server.RANDOM_PORT, true, true, 60
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	at := func(seed, inbox string) Options {
		return Options{
			URL: fmt.Sprintf("tls://127.0.0.1:%d", s.Addr().(*net.TCPAddr).Port), Stream: "pictures", CA: cert, Credentials: seed, Inbox: inbox,
		}
	}
	if _, err := Connect(t.Context(), at(submitter, "_INBOX_SUBMITTER")); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("a submitter makes a queue: %v", err)
	}
	for _, o := range []Options{at(owner, ""), at(submitter, "_INBOX_SUBMITTER")} {
		q, err := Connect(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
	}
	q, err := Connect(t.Context(), at(submitter, "_INBOX_SUBMITTER"))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	hireAt(t, at(worker, "_INBOX_WORKER"), WorkerOptions{}, nil)
	bad := func(yield func(Item) bool) {
		for item := range pictures(0, 5) {
			if !yield(item) {
				return
			}
		}
		yield(Item{Name: "bad", Inputs: runtime.Values{input: tensor.Of(make([]float32, 14), 1, 1, 7, 2)}})
	}
	want := plain(t, 5)
	for _, again := range []bool{false, true, false} {
		reasons := 0
		err := q.Submit(t.Context(), "digits", bad, SubmitOptions{Again: again}, func(r Result) error {
			if r.Index == 5 {
				reasons++
				return nil
			}
			check(t, q, r, want[r.Index])
			return nil
		})
		if err != nil || reasons != 1 {
			t.Fatalf("%d reasons: %v", reasons, err)
		}
	}
	if refusal := q.refusal.Load(); refusal != nil {
		t.Errorf("the submitter was refused: %v", *refusal)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := q.out.putBytes(ctx, digest("forged"), []byte("x")); err == nil {
		t.Error("a submitter puts an output")
	}
	wait(t, "the server says no", func() bool { return q.refusal.Load() != nil })
}
