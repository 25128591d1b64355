package serve

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Tokens are secrets, one of which a client gives as "Authorization: Bearer TOKEN". Only their hashes are kept.
type Tokens struct {
	names  []string
	hashes [][sha256.Size]byte
}

// leastToken is how many characters a token has at least.
const leastToken = 16

// ReadTokens reads a file with a token in each line, or a name and a token with a space between them. Empty lines and those
// that begin with # are left out.
func ReadTokens(from io.Reader) (*Tokens, error) {
	t := &Tokens{}
	lines := bufio.NewScanner(io.LimitReader(from, 1<<20))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.Fields(line)
		token := parts[len(parts)-1]
		if len(parts) > 2 {
			return nil, fmt.Errorf("line %d: a line is a token, or a name and a token", n)
		}
		if len(token) < leastToken {
			return nil, fmt.Errorf("line %d: a token of fewer than %d characters can be guessed", n, leastToken)
		}
		name := fmt.Sprintf("token%d", len(t.names)+1)
		if len(parts) == 2 {
			name = parts[0]
		}
		t.names = append(t.names, name)
		t.hashes = append(t.hashes, sha256.Sum256([]byte(token)))
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(t.names) == 0 {
		return nil, errors.New("there is no token in it")
	}
	return t, nil
}

// check returns the name of a token, and whether it is one of them, in a time that depends on neither.
func (t *Tokens) check(token string) (string, bool) {
	hash := sha256.Sum256([]byte(token))
	at := -1
	for i := range t.hashes {
		same := subtle.ConstantTimeCompare(hash[:], t.hashes[i][:])
		at = subtle.ConstantTimeSelect(same, i, at)
	}
	if at < 0 {
		return "", false
	}
	return t.names[at], true
}

// A Guard says who may ask.
type Guard struct {
	// Tokens are those that clients need; nil needs none. Health is told without.
	Tokens *Tokens
	// Local says that the address is one of loopback: requests must name it as such then, so that no page of a browser can ask by
	// a name of its own.
	Local bool
	// Private says that only who may open a file comes here: nothing is checked.
	Private bool
}

// Protect lets the requests through that may ask.
func (g Guard) Protect(next http.Handler) http.Handler {
	if g.Private {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if g.Local && !isLocal(req.Host) {
			writeError(w, refuse(http.StatusForbidden, "the request is for another host"))
			return
		}
		if origin := req.Header.Get("Origin"); origin != "" {
			from, err := url.Parse(origin)
			if err != nil || !strings.EqualFold(from.Host, req.Host) {
				writeError(w, refuse(http.StatusForbidden, "the request comes from a page of another host"))
				return
			}
		}
		if g.Tokens != nil && !isHealth(req.URL.Path) {
			scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
			_, known := g.Tokens.check(strings.TrimSpace(token))
			if !known || !strings.EqualFold(scheme, "Bearer") {
				w.Header().Set("WWW-Authenticate", "Bearer")
				writeError(w, refuse(http.StatusUnauthorized, "a token is needed"))
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}

// isHealth reports whether a request only asks whether the server is there.
func isHealth(path string) bool {
	switch path {
	case "/v2/health/live", "/v2/health/ready", "/inference.GRPCInferenceService/ServerLive", "/inference.GRPCInferenceService/ServerReady":
		return true
	}
	return false
}

// isLocal reports whether the host of a request is this one, by a name that no other has.
func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// IsLoopback reports whether an address to listen on, HOST:PORT, is one that only this host reaches.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && host != "" && isLocal(address)
}
