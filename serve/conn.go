package serve

import (
	"context"
	"net"
	"net/http"
	"syscall"
)

type connKey struct{}

// withConn keeps the connection of a request with it.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// largeBody is from when on a body may not fit into what the connection takes at once.
const largeBody = 64 << 10

// hasten has the system acknowledge the body of a request as it comes. Within one machine, from a proxy or a client there, packets
// have 64 KiB, and the sender's window may close with the body half sent; the acknowledgement that opens it was delayed by 50 ms for
// some requests in a hundred. It is for HTTP/1 from a [NewServer]; HTTP/2 has windows of its own.
func hasten(req *http.Request) {
	if req.ProtoMajor != 1 || req.ContentLength >= 0 && req.ContentLength < largeBody {
		return
	}
	c, _ := req.Context().Value(connKey{}).(net.Conn)
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // below TLS
		c = t.NetConn()
	}
	if s, ok := c.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			_ = raw.Control(acknowledge) // a connection that is no TCP's has no such option
		}
	}
}
