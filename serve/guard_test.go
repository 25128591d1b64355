package serve

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// socketClient asks on a Unix socket.
func socketClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
}

const tokensFile = "# who may ask\nalice 0123456789abcdef\n\nfedcba9876543210\n"

// TestTokens: one of the tokens opens, nothing else does, and health is told to all.
func TestTokens(t *testing.T) {
	tokens, err := ReadTokens(strings.NewReader(tokensFile))
	if err != nil {
		t.Fatal(err)
	}
	for token, name := range map[string]string{
		"0123456789abcdef": "alice", "fedcba9876543210": "token2", "0123456789abcdeF": "", "": "", "alice": "", "0123456789abcdef ": "",
	} {
		if got, known := tokens.check(token); known && tokens.names[got] != name || known != (name != "") {
			t.Errorf("%q: %d", token, got)
		}
	}
	h := Guard{Tokens: tokens}.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(299) }))
	for _, c := range []struct {
		path, authorization string
		want                int
	}{
		{"/v2", "Bearer 0123456789abcdef", 299}, {"/v2", "bearer fedcba9876543210", 299}, {"/v2", "Basic fedcba9876543210", 401},
		{"/v2", "", 401}, {"/v2", "Bearer", 401}, {"/v2", "Bearer fedcba987654321", 401}, {"/v2/health/ready", "", 299}, {"/v2/health/live", "", 299},
		{"/v2/health/live/", "", 401}, {"/metrics", "", 401}, {"/v2/../v2/health/live", "", 401},
	} {
		status, header, body := ask(h, "GET", c.path, "", "Authorization", c.authorization)
		if status != c.want {
			t.Errorf("%s %q: %d", c.path, c.authorization, status)
		}
		if status == 401 && (header.Get("WWW-Authenticate") == "" || !strings.Contains(body, `"error"`)) {
			t.Errorf("%s: %v %s", c.path, header, body)
		}
	}
	for _, bad := range []string{"", "# nothing\n", "short\n", "a b c\n", "name 0123\n",
		"a 0123456789abcdef\na 0123456789abcdee\n", "0123456789abcdef requests=x\n", "0123456789abcdef rate=-1\n", "0123456789abcdef bytes=1 more\n",
		"0123456789abcdef rate=Inf\n", "0123456789abcdef requests=1 cpu=2\n"} {
		if _, err := ReadTokens(strings.NewReader(bad)); err == nil {
			t.Errorf("%q has tokens", bad)
		}
	}
}

// TestHosts: on loopback a name of somebody else's is refused, so that no page can come by one; a page of another host is refused
// everywhere.
func TestHosts(t *testing.T) {
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(299) })
	for _, c := range []struct {
		local        bool
		host, origin string
		want         int
	}{
		{true, "localhost:8000", "", 299}, {true, "127.0.0.1:8000", "", 299}, {true, "[::1]:8000", "", 299}, {true, "evil.example:8000", "", 403},
		{true, "127.0.0.1.evil.example", "", 403}, {true, "", "", 403}, {true, "localhost:8000", "http://localhost:8000", 299},
		{true, "localhost:8000", "http://localhost:9000", 403}, {true, "localhost:8000", "null", 403}, {false, "models.example", "", 299},
		{false, "models.example", "https://evil.example", 403}, {false, "models.example", "https://models.example", 299},
	} {
		req := httptest.NewRequest("GET", "/v2", nil)
		req.Host = c.host
		if c.origin != "" {
			req.Header.Set("Origin", c.origin)
		}
		w := httptest.NewRecorder()
		if (Guard{Local: c.local}).Protect(next).ServeHTTP(w, req); w.Code != c.want {
			t.Errorf("%+v: %d", c, w.Code)
		}
	}
	for address, want := range map[string]bool{
		"127.0.0.1:80": true, "localhost:0": true, "[::1]:80": true, ":80": false, "0.0.0.0:80": false, "[::]:80": false, "10.0.0.1:80": false,
		"127.0.0.1": false, "example.com:80": false,
	} {
		if IsLoopback(address) != want {
			t.Errorf("%s is of loopback: %v", address, !want)
		}
	}
}

// TestSocket: only the user of the process can open it; one that is left behind is replaced, one that is in use is not, and no
// other file is.
func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if _, err := ListenSocket(path); err == nil {
		t.Error("a socket in use was replaced")
	}
	left := l.(*socket)
	if err := left.UnixListener.Close(); err != nil { // as when a process ends without a word
		t.Fatal(err)
	}
	if l, err = ListenSocket(path); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is still there")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenSocket(path); err == nil {
		t.Error("a file was replaced")
	}
}
