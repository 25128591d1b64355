package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// NewServer returns a server with limits on headers and idle connections, that speaks HTTP/1 and HTTP/2, also without TLS:
// gRPC needs that. How long bodies may take is the handlers' of a [Registry].
func NewServer(handler http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: handler, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ConnContext: withConn,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 512, MaxReadFrameSize: 1 << 20,
			SendPingTimeout: time.Minute},
	}
}

// A Site is an address with a server.
type Site struct {
	Listener net.Listener
	Server   *http.Server
	// CertFile and KeyFile are of TLS, "" where the server's configuration has certificates, or none.
	CertFile, KeyFile string
}

func (s *Site) serve() error {
	if s.Server.TLSConfig != nil {
		return s.Server.ServeTLS(s.Listener, s.CertFile, s.KeyFile)
	}
	return s.Server.Serve(s.Listener)
}

// Serve serves on sites until ctx is done. Then it says that it is not ready any more, ends what has begun for as long as drain
// lets it, and cancels the rest. The registry is the caller's to close.
func (r *Registry) Serve(ctx context.Context, drain time.Duration, sites ...*Site) error {
	ended := make(chan error, len(sites))
	for _, s := range sites {
		go func() { ended <- s.serve() }()
	}
	left := len(sites)
	var first error
	select {
	case first = <-ended:
		left--
	case <-ctx.Done():
	}
	r.Drain()
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	closed := make(chan error, len(sites))
	for _, s := range sites {
		go func() {
			if err := s.Server.Shutdown(rest); err != nil {
				closed <- s.Server.Close() // whoever is left is cut off, and their passes with them
				return
			}
			closed <- nil
		}()
	}
	for range sites {
		first = errors.Join(first, <-closed)
	}
	for range left {
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			first = errors.Join(first, err)
		}
	}
	if errors.Is(first, http.ErrServerClosed) {
		return nil
	}
	return first
}

// ListenSocket listens on a Unix socket that only the user of the process can open, from the moment at which it is there. One
// that is left of a process that has ended is replaced; another file, or a socket on which somebody listens, is an error.
func ListenSocket(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != fs.ModeSocket {
			return nil, fmt.Errorf("%s: there is another file of that name", path)
		}
		if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
			return nil, errors.Join(fmt.Errorf("%s: another process listens there", path), conn.Close())
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".serve-") // which only this user can enter
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	first := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: first, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(first, 0o600); err == nil {
		err = os.Rename(first, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &socket{l, path}, nil
}

// A socket is removed when nobody listens any more.
type socket struct {
	*net.UnixListener
	path string
}

// Addr is that by which it is reached.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// Close ends listening.
func (s *socket) Close() error {
	err := s.UnixListener.Close()
	if err == nil {
		_ = os.Remove(s.path)
	}
	return err
}
