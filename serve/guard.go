package serve

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Tokens are secrets, one of which a client gives as "Authorization: Bearer TOKEN". Only their hashes are kept.
type Tokens struct {
	names  []string
	hashes [][sha256.Size]byte
	limits []ClientLimits
}

// leastToken is how many characters a token has at least.
const leastToken = 16

// ReadTokens reads a file with a token in each line, or a name and a token with a space between them, and then what the
// client's limits are: "web 7Zk…Q requests=4 bytes=64MiB rate=2.5". Names may not be there twice. Empty lines and those
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
		var limits ClientLimits
		for i, part := range parts {
			if i > 0 && strings.Contains(part, "=") && knownLimit(part) {
				for _, limit := range parts[i:] {
					if err := limits.set(limit); err != nil {
						return nil, fmt.Errorf("line %d: %w", n, err)
					}
				}
				parts = parts[:i]
				break
			}
		}
		if len(parts) > 2 {
			return nil, fmt.Errorf("line %d: a line is a token, or a name and a token, and then limits: requests=N, bytes=SIZE, rate=N", n)
		}
		token := parts[len(parts)-1]
		if len(token) < leastToken {
			return nil, fmt.Errorf("line %d: a token of fewer than %d characters can be guessed", n, leastToken)
		}
		name := fmt.Sprintf("token%d", len(t.names)+1)
		if len(parts) == 2 {
			name = parts[0]
		}
		if slices.Contains(t.names, name) {
			return nil, fmt.Errorf("line %d: there are two tokens called %q", n, name)
		}
		t.names = append(t.names, name)
		t.hashes = append(t.hashes, sha256.Sum256([]byte(token)))
		t.limits = append(t.limits, limits)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(t.names) == 0 {
		return nil, errors.New("there is no token in it")
	}
	return t, nil
}

// knownLimit reports whether a text begins as a limit does. A token may have the same characters, but not the same
// words.
func knownLimit(text string) bool {
	name, _, _ := strings.Cut(text, "=")
	return name == "requests" || name == "bytes" || name == "rate"
}

// check returns which one a token is, and whether it is one of them, in a time that depends on neither.
func (t *Tokens) check(token string) (int, bool) {
	hash := sha256.Sum256([]byte(token))
	at := -1
	for i := range t.hashes {
		same := subtle.ConstantTimeCompare(hash[:], t.hashes[i][:])
		at = subtle.ConstantTimeSelect(same, i, at)
	}
	return at, at >= 0
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
	// Limits bound what one client has, where its token's line does not say otherwise. Without a token a client is who
	// has a certificate, else an address.
	Limits ClientLimits
}

// Protect lets the requests through that may ask.
func (g Guard) Protect(next http.Handler) http.Handler {
	if g.Private {
		return next
	}
	known := &clients{}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if g.Local && !isLocal(req.Host) {
			writeRefusal(w, req, refuse(http.StatusForbidden, "the request is for another host"))
			return
		}
		if origin := req.Header.Get("Origin"); origin != "" {
			from, err := url.Parse(origin)
			if err != nil || !strings.EqualFold(from.Host, req.Host) {
				writeRefusal(w, req, refuse(http.StatusForbidden, "the request comes from a page of another host"))
				return
			}
		}
		if isHealth(req.URL.Path) {
			next.ServeHTTP(w, req)
			return
		}
		name, limits := "address "+address(req.RemoteAddr), g.Limits
		if req.TLS != nil && len(req.TLS.VerifiedChains) > 0 {
			name = "certificate " + req.TLS.VerifiedChains[0][0].Subject.String()
		}
		if g.Tokens != nil {
			scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
			at, known := g.Tokens.check(strings.TrimSpace(token))
			if !known || !strings.EqualFold(scheme, "Bearer") {
				w.Header().Set("WWW-Authenticate", "Bearer")
				writeRefusal(w, req, refuse(http.StatusUnauthorized, "a token is needed"))
				return
			}
			name, limits = "token "+g.Tokens.names[at], g.Tokens.limits[at].merged(g.Limits)
		}
		c := known.find(name, limits, time.Now())
		if err := c.begin(time.Now()); err != nil {
			writeRefusal(w, req, told(req.Context(), err))
			return
		}
		defer c.end()
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), clientKey{}, c)))
	})
}

// writeRefusal tells a client that it may not ask, or not now, in the words of its protocol.
func writeRefusal(w http.ResponseWriter, req *http.Request, e *Error) {
	switch {
	case strings.HasPrefix(req.Header.Get("Content-Type"), "application/grpc"):
		code := codes[e.Status]
		header := w.Header()
		header.Set("Content-Type", "application/grpc")
		header.Set("Grpc-Status", strconv.Itoa(int(code)))
		header.Set("Grpc-Message", e.Msg)
		if e.RetryAfter > 0 {
			header.Set("Grpc-Retry-Pushback-Ms", strconv.FormatInt(max(e.RetryAfter.Milliseconds(), 1), 10))
		}
		w.WriteHeader(http.StatusOK)
	case strings.HasPrefix(req.URL.Path, "/v1/"):
		writeOpenAI(w, e)
	default:
		writeError(w, e)
	}
}

// writeOpenAI tells of an error as OpenAI does.
func writeOpenAI(w http.ResponseWriter, e *Error) {
	kind, code := "invalid_request_error", "invalid_api_key"
	switch e.Status {
	case http.StatusForbidden:
		code = "forbidden"
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		kind, code = "rate_limit_error", "rate_limit_exceeded"
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter(e.RetryAfter)))
		w.Header().Set("Retry-After-Ms", strconv.FormatInt(max(e.RetryAfter.Milliseconds(), 1), 10))
	}
	_ = writeJSON(w, e.Status, map[string]any{"error": map[string]any{"message": e.Msg, "type": kind, "param": nil, "code": code}})
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
