//go:build unix && !noserve && !files

package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
)

// A served is a server that runs as a process.
type served struct {
	cmd             *exec.Cmd
	address, socket string
	lines           chan string
}

// startServer starts 'optimem serve' and waits until it says where it listens.
func startServer(t *testing.T, args ...string) *served {
	t.Helper()
	s := &served{cmd: exec.Command("optimem", append([]string{"serve"}, args...)...), lines: make(chan string, 1000)}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Env = append(os.Environ(), running.LibraryVariable+"="+filepath.Join(t.TempDir(), "none"))
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	go func() {
		defer close(s.lines)
		for scanner := bufio.NewScanner(stderr); scanner.Scan(); {
			s.lines <- scanner.Text()
		}
	}()
	for s.socket == "" {
		line := s.line(t)
		if address, ok := strings.CutPrefix(line, "optimem: note: listening on "); ok {
			s.address = address
		}
		if socket, ok := strings.CutPrefix(line, "optimem: note: administration on "); ok {
			s.socket = socket
		}
	}
	return s
}

// line is the next line of standard error.
func (s *served) line(t *testing.T) string {
	t.Helper()
	select {
	case line, ok := <-s.lines:
		if !ok {
			t.Fatal("the server ended")
		}
		return line
	case <-time.After(5 * time.Minute):
		t.Fatal("the server says nothing")
	}
	return ""
}

// says waits for a line.
func (s *served) says(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(s.line(t), text) {
	}
}

// ends waits for the end of the process.
func (s *served) ends(t *testing.T) int {
	t.Helper()
	for range s.lines {
	}
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

func get(t *testing.T, client *http.Client, url string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(header) == 2 {
		req.Header.Set(header[0], header[1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func modelsFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	data, err := os.ReadFile("../../examples/digits/digits.pt2")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "digits.pt2"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func onSocket(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
}

// TestServe: a server answers clients, and administration on a socket of this user's; it lends its memory when signals ask, ends
// when it is asked to, and one that was killed leaves nothing that a next one minds.
func TestServe(t *testing.T) {
	dir := modelsFolder(t)
	socket := filepath.Join(t.TempDir(), "admin.sock")
	s := startServer(t, dir, "--listen", "127.0.0.1:0", "--admin", socket, "--memory", "8MiB", "--metrics", "triton", "--client-rate", "0.0001",
		"--otlp", "http://127.0.0.1:1", "--stop", "x")
	if status, text := get(t, http.DefaultClient, "http://"+s.address+"/v2/models/digits"); status != 200 || !strings.Contains(text, "FP32") {
		t.Errorf("%d %s", status, text)
	}
	admin := onSocket(s.socket)
	if status, text := get(t, admin, "http://admin/metrics"); status != 200 || !strings.Contains(text, "nv_inference_count") {
		t.Errorf("%d %s", status, text)
	}
	if status, _ := get(t, http.DefaultClient, "http://"+s.address+"/metrics"); status != 429 {
		t.Errorf("a second request of one in 10000 seconds: %d", status)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	s.says(t, "memory was given back")
	if status, _ := get(t, http.DefaultClient, "http://"+s.address+"/v2/health/ready"); status != 503 {
		t.Errorf("ready without memory: %d", status)
	}
	if err := s.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	s.says(t, "goes on")
	if status, _ := get(t, http.DefaultClient, "http://"+s.address+"/v2/health/ready"); status != 200 {
		t.Errorf("not ready with memory: %d", status)
	}
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.ends(t)
	s = startServer(t, dir, "--listen", "127.0.0.1:0", "--admin", socket)
	if status, _ := get(t, onSocket(s.socket), "http://admin/v2/health/ready"); status != 200 {
		t.Errorf("after one that was killed: %d", status)
	}
	if status, _ := get(t, http.DefaultClient, "http://"+s.address+"/metrics"); status != 404 {
		t.Errorf("clients see metrics: %d", status)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := s.ends(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Lstat(socket); err == nil {
		t.Error("the socket is left")
	}
}

// TestServeTellsTop: a server answers 'optimem top' without being told to, on a socket of its user's, of the pool and
// its members; who does not say which finds it; and nothing is left when it ends.
func TestServeTellsTop(t *testing.T) {
	runs := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", runs)
	ask := func() (string, error) {
		out, err := exec.Command("optimem", "top", "--json").CombinedOutput()
		return string(out), err
	}
	if text, err := ask(); err == nil || !strings.Contains(text, "no server is there") {
		t.Errorf("without a server: %v, %s", err, text)
	}
	s := startServer(t, modelsFolder(t), "--listen", "127.0.0.1:0", "--memory", "8MiB")
	sockets, err := filepath.Glob(filepath.Join(runs, "optimem-*", "top.sock"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("%q, %v", sockets, err)
	}
	if info, err := os.Stat(sockets[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	s.says(t, "optimem top "+sockets[0])
	text, err := ask()
	if err != nil || !strings.Contains(text, `"kind":"pool"`) || !strings.Contains(text, `"name":"digits/1`) {
		t.Errorf("%v, %s", err, text)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := s.ends(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left, _ := os.ReadDir(runs); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

// writeCertificate writes a certificate for 127.0.0.1 and its key.
func writeCertificate(t *testing.T, dir string) (cert, key string, parsed *x509.Certificate, pair tls.Certificate) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "optimem"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: bytes})
	for path, text := range map[string][]byte{cert: certPEM, key: keyPEM} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if parsed, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	if pair, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	return cert, key, parsed, pair
}

// TestServeSecure: with TLS, tokens and client certificates nobody without is answered; a certificate that is renewed is used.
func TestServeSecure(t *testing.T) {
	dir, keys := modelsFolder(t), t.TempDir()
	cert, key, parsed, pair := writeCertificate(t, keys)
	ca := filepath.Join(keys, "ca.pem") // which stays when the server's is renewed
	text, err := os.ReadFile(cert)
	if err == nil {
		err = os.WriteFile(ca, text, 0o600)
	}
	tokens := filepath.Join(keys, "tokens")
	if err == nil {
		err = os.WriteFile(tokens, []byte("me 0123456789abcdef\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(t, dir, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--client-ca", ca, "--token-file", tokens)
	ask := func(with bool, trust *x509.Certificate, address, token string) int {
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		config.RootCAs.AddCert(trust)
		if with {
			config.Certificates = []tls.Certificate{pair}
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
		status, _ := get(t, client, "https://"+address+"/v2", "Authorization", "Bearer "+token)
		return status
	}
	for _, c := range []struct {
		with    bool
		token   string
		address string
		want    int
	}{
		{true, "0123456789abcdef", s.address, 200}, {true, "0123456789abcdee", s.address, 401}, {false, "0123456789abcdef", s.address, 0},
		{true, "0123456789abcdef", s.socket, 200}, {true, "", s.socket, 401}, {false, "0123456789abcdef", s.socket, 0},
	} {
		if got := ask(c.with, parsed, c.address, c.token); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	if status, _ := get(t, http.DefaultClient, "http://"+s.address+"/v2"); status == 200 {
		t.Error("it speaks without TLS")
	}
	_, _, renewed, _ := writeCertificate(t, keys)
	if err := os.Chtimes(cert, time.Now().Add(time.Minute), time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for range 2000 {
		if ask(true, renewed, s.address, "0123456789abcdef") == 200 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("the certificate was not read again")
}

// TestServeRefuses: addresses that others reach need a token, client certificates, or to be asked for; what is wrong with flags is
// said before models are opened.
func TestServeRefuses(t *testing.T) {
	dir := modelsFolder(t)
	none := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{command.ExitUsage, "--token-file", []string{"--listen", "0.0.0.0:0"}}, {command.ExitUsage, "--token-file", []string{"--listen", ":0"}},
		{command.ExitUsage, "--admin", []string{"--admin", "[::]:0"}}, {command.ExitUsage, "no address", []string{"--listen", "8000"}},
		{command.ExitUsage, "--tls-key", []string{"--tls-cert", none}}, {command.ExitUsage, "for TLS", []string{"--client-ca", none}},
		{command.ExitUsage, "unknown metrics", []string{"--metrics", "x"}}, {command.ExitUsage, "takes a size", []string{"--memory", "50%"}},
		{command.ExitUsage, "--max-queue", []string{"--max-queue", "0"}}, {command.ExitUsage, "--max-body", []string{"--max-body", "0"}},
		{command.ExitFailed, "none", []string{"--token-file", none}}, {command.ExitUsage, "below zero", []string{"--client-requests", "-1"}},
		{command.ExitUsage, "below zero", []string{"--client-rate", "NaN"}}, {command.ExitUsage, "--otlp", []string{"--otlp", "127.0.0.1:4318"}},
		{command.ExitUsage, "20 at most", []string{"--logprobs", "21"}}, {command.ExitFailed, "none", []string{"--schema", none}},
		{command.ExitUsage, "no adapter of that name", []string{"--adapter", "x"}}, {command.ExitUsage, "not empty", []string{"--stop", ""}},
	} {
		var out, errs strings.Builder
		if code := doMain(append([]string{"serve", dir, "--quiet"}, c.args...), &out, &errs); code != c.code || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%v: exit code %d, %s", c.args, code, errs.String())
		}
	}
	if code := doMain([]string{"serve", none, "--listen", "127.0.0.1:0"}, io.Discard, io.Discard); code != command.ExitFailed {
		t.Errorf("no directory: exit code %d", code)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var errs strings.Builder
	if code := doMain([]string{"serve", dir, "--listen", l.Addr().String()}, io.Discard, &errs); code != command.ExitFailed || !strings.Contains(errs.String(), "in use") {
		t.Errorf("an address that is taken: %d %s", code, fmt.Sprint(&errs))
	}
}

// TestServeSeveralDevices: texts that are asked for at once are computed over two devices, and are what one writes; the memory of such
// a model is not given back, and that is said.
func TestServeSeveralDevices(t *testing.T) {
	const device = "emu:memory=64MiB,bandwidth=10GB/s"
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "chat"), os.DirFS(chatModel)); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, dir, "--listen", "127.0.0.1:0", "--memory", "8MiB", "--device", device+","+device)
	const body = `{"model":"chat","temperature":0,"messages":[{"role":"user","content":"What is the capital of Peru?"}]}`
	var asked sync.WaitGroup
	for range 6 {
		asked.Go(func() {
			resp, err := http.Post("http://"+s.address+"/v1/chat/completions", "application/json", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != 200 || !strings.Contains(string(text), "The capital of Peru is Lima.") {
				t.Errorf("%d, %v: %s", resp.StatusCode, err, text)
			}
		})
	}
	asked.Wait()
	if err := s.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	s.says(t, "memory was not given back: chat runs over several devices")
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := s.ends(t); code != command.ExitDone {
		t.Errorf("it ends with %d", code)
	}
}
