package serve

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/optimem/optimem/internal/ascii"
)

// ClientLimits bound what one client has: whoever gives a token, else a certificate, else comes from an address. 0 is
// no limit.
type ClientLimits struct {
	// Requests is how many are under way at one time.
	Requests int
	// Bytes is what their bodies, the tensors made of them and their answers may take together.
	Bytes int64
	// Rate is how many requests may begin in a second, on average: as many as a second's may come at once.
	Rate float64
}

// merged returns the limits, and those of others where these do not say.
func (l ClientLimits) merged(others ClientLimits) ClientLimits {
	if l.Requests == 0 {
		l.Requests = others.Requests
	}
	if l.Bytes == 0 {
		l.Bytes = others.Bytes
	}
	if l.Rate == 0 {
		l.Rate = others.Rate
	}
	return l
}

// set sets a limit by its name: "requests=4", "bytes=64MiB", "rate=2.5".
func (l *ClientLimits) set(text string) (err error) {
	name, value, found := strings.Cut(text, "=")
	switch {
	case !found:
		return fmt.Errorf("%q is no limit: there are requests=N, bytes=SIZE and rate=N", text)
	case name == "requests":
		l.Requests, err = strconv.Atoi(value)
	case name == "bytes":
		l.Bytes, err = ascii.ParseSize(value)
	case name == "rate":
		l.Rate, err = strconv.ParseFloat(value, 64)
	default:
		return fmt.Errorf("%q is no limit: there are requests, bytes and rate", name)
	}
	if err != nil || l.Requests < 0 || l.Bytes < 0 || !(l.Rate >= 0) || math.IsInf(l.Rate, 0) {
		return errors.Join(fmt.Errorf("%s: %q is no limit", name, value), err)
	}
	return nil
}

// A client is who asks, with what it has under way.
type client struct {
	name   string
	limits ClientLimits

	mu    sync.Mutex
	here  int
	bytes int64
	// credit is how many requests may begin now, as it was then.
	credit float64
	then   time.Time
}

type clientKey struct{}

// clientOf is who sent a request, nil where nobody looks.
func clientOf(ctx context.Context) *client {
	c, _ := ctx.Value(clientKey{}).(*client)
	return c
}

// begin counts a request, or refuses it.
func (c *client) begin(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limits.Requests > 0 && c.here >= c.limits.Requests {
		return &Error{Status: http.StatusTooManyRequests, Msg: "too many requests of this client are under way", RetryAfter: time.Second}
	}
	if c.limits.Rate > 0 {
		most := max(c.limits.Rate, 1)
		c.credit = min(c.credit+now.Sub(c.then).Seconds()*c.limits.Rate, most)
		c.then = now
		if c.credit < 1 {
			after := time.Duration((1 - c.credit) / c.limits.Rate * float64(time.Second))
			return &Error{Status: http.StatusTooManyRequests, Msg: "this client asks too often", RetryAfter: max(after, time.Millisecond)}
		}
		c.credit--
	}
	c.here++
	return nil
}

func (c *client) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.here--
}

// take counts bytes, or says that they are too many.
func (c *client) take(n int64) bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limits.Bytes > 0 && n > c.limits.Bytes-c.bytes {
		return false
	}
	c.bytes += n
	return true
}

func (c *client) give(n int64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes -= n
}

// idle reports whether nothing would be lost if the client were forgotten.
func (c *client) idle(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	full := c.limits.Rate == 0 || c.credit+now.Sub(c.then).Seconds()*c.limits.Rate >= max(c.limits.Rate, 1)
	return c.here == 0 && c.bytes == 0 && full
}

// maxClients is how many clients are known at one time. Beyond that those are forgotten that were not heard of longest:
// who has addresses for more has no use for the limits of one.
const maxClients = 1 << 14

// clients are those that were heard of.
type clients struct {
	mu    sync.Mutex
	known map[string]*list.Element
	order list.List // of *client, the last heard of first
}

// find returns the client of a name.
func (c *clients) find(name string, limits ClientLimits, now time.Time) *client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.known[name]; e != nil {
		c.order.MoveToFront(e)
		return e.Value.(*client)
	}
	if c.known == nil {
		c.known = make(map[string]*list.Element)
	}
	for e := c.order.Back(); e != nil && (len(c.known) >= maxClients || e.Value.(*client).idle(now)); e = c.order.Back() {
		delete(c.known, c.order.Remove(e).(*client).name)
	}
	one := &client{name: name, limits: limits, credit: max(limits.Rate, 1), then: now}
	c.known[name] = c.order.PushFront(one)
	return one
}

// address is by which clients of one network are known: an address of IPv4, the first half of one of IPv6.
func address(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return "unknown" // as those of a Unix socket are
	}
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.String()
}
