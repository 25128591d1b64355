package pipeline

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// magic begins every connection. It changes when what is said does.
const magic = "optimem stage 1\n"

// A role is what a connection is for.
type role byte

const (
	// asHead is whoever runs the model over the stages, asFeed the stage before.
	asHead role = 'h'
	asFeed role = 'f'
)

// A kind is that of a frame.
type kind byte

const (
	// kindAsk and kindAnswer carry JSON.
	kindAsk kind = 1 + iota
	kindAnswer
	// kindPass has a stage the inputs of a pass, kindFeed what the stage before computed.
	kindPass
	kindFeed
	// kindResult are a stage's outputs of a pass, and kindBeat says that it makes progress.
	kindResult
	kindBeat
	// kindLost says that a neighbour of the stage went away.
	kindLost
	// kindJoin is the first frame of a stage before: which run it belongs to.
	kindJoin
)

// Bounds of what is read, and how long is waited for it.
const (
	headerBytes  = 24
	maxJSONBytes = 1 << 20
	shakeFor     = 10 * time.Second
	dialFor      = 10 * time.Second
)

// An AuthError says that the other end does not know the token, or is no stage.
type AuthError struct{ Msg string }

// Error says which.
func (e *AuthError) Error() string { return e.Msg }

// A ProtocolError says that the other end did not keep to what was agreed.
type ProtocolError struct{ Msg string }

// Error says how.
func (e *ProtocolError) Error() string { return "protocol: " + e.Msg }

// A link is a connection between stages, or between one and a head. Frames have a header of 24 bytes: a kind, a number
// and how many bytes follow, in big-endian order. Tensors are in the order of their bytes in memory, which is
// little-endian.
type link struct {
	conn net.Conn
	in   *bufio.Reader
	// patience is how long the other end may take to take a frame, or to send one that it began.
	patience time.Duration
	writing  sync.Mutex
}

// A frame is the header of one.
type frame struct {
	kind kind
	id   uint64
	n    int64
}

// keepAlive notices hosts that are gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

// errPlain says that a connection would leave the host without TLS.
var errPlain = errors.New("beyond this host stages are reached by TLS alone")

// isLocal reports whether a host is this one.
func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// dial connects to a stage.
func dial(ctx context.Context, address string, secure *tls.Config, token []byte, as role,
	patience time.Duration) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	host, _, err := net.SplitHostPort(address)
	if err == nil && secure == nil && !isLocal(host) {
		err = errPlain
	}
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{KeepAliveConfig: keepAlive}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if secure != nil {
		config := secure.Clone()
		if config.ServerName == "" {
			config.ServerName = host
		}
		conn = tls.Client(conn, config)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	l := &link{conn: conn, in: bufio.NewReaderSize(conn, 64<<10), patience: patience}
	if err := l.greet(token, as); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return l, nil
}

// accept answers the greeting of whoever connected.
func accept(conn net.Conn, token []byte, patience time.Duration) (*link, role, error) {
	l := &link{conn: conn, in: bufio.NewReaderSize(conn, 64<<10), patience: patience}
	as, err := l.answer(token)
	return l, as, err
}

// proof is what an end that knows the token computes: of its own side of this very connection.
func proof(token []byte, side string, as role, asked, answered []byte) []byte {
	mac := hmac.New(sha256.New, token)
	fmt.Fprintf(mac, "%s%s%c", magic, side, as)
	mac.Write(asked)
	mac.Write(answered)
	return mac.Sum(nil)
}

// greet begins a connection: both ends prove that they know the token, and neither sends it.
func (l *link) greet(token []byte, as role) error {
	if err := l.conn.SetDeadline(time.Now().Add(shakeFor)); err != nil {
		return err
	}
	asked := make([]byte, sha256.Size)
	rand.Read(asked)
	if _, err := l.conn.Write(append([]byte(magic), asked...)); err != nil {
		return err
	}
	answer := make([]byte, len(magic)+sha256.Size)
	if _, err := io.ReadFull(l.in, answer); err != nil {
		return fmt.Errorf("no greeting: %w", err)
	}
	if string(answer[:len(magic)]) != magic {
		return &AuthError{"the other end is no stage, or one of another release"}
	}
	answered := answer[len(magic):]
	if _, err := l.conn.Write(append([]byte{byte(as)}, proof(token, "dials", as, asked, answered)...)); err != nil {
		return err
	}
	theirs := make([]byte, sha256.Size)
	if _, err := io.ReadFull(l.in, theirs); err != nil {
		return &AuthError{"the stage ended the connection: it has another token"}
	}
	if !hmac.Equal(theirs, proof(token, "listens", as, asked, answered)) {
		return &AuthError{"the stage does not know the token"}
	}
	return l.conn.SetDeadline(time.Time{})
}

// answer is the other side of greet.
func (l *link) answer(token []byte) (role, error) {
	if err := l.conn.SetDeadline(time.Now().Add(shakeFor)); err != nil {
		return 0, err
	}
	hello := make([]byte, len(magic)+sha256.Size)
	if _, err := io.ReadFull(l.in, hello); err != nil {
		return 0, err
	}
	if string(hello[:len(magic)]) != magic {
		return 0, &AuthError{"no greeting of this release"}
	}
	asked := hello[len(magic):]
	answered := make([]byte, sha256.Size)
	rand.Read(answered)
	if _, err := l.conn.Write(append([]byte(magic), answered...)); err != nil {
		return 0, err
	}
	said := make([]byte, 1+sha256.Size)
	if _, err := io.ReadFull(l.in, said); err != nil {
		return 0, err
	}
	as := role(said[0])
	if as != asHead && as != asFeed {
		return 0, &ProtocolError{"an unknown role"}
	}
	if !hmac.Equal(said[1:], proof(token, "dials", as, asked, answered)) {
		return 0, &AuthError{"another token"}
	}
	if _, err := l.conn.Write(proof(token, "listens", as, asked, answered)); err != nil {
		return 0, err
	}
	return as, l.conn.SetDeadline(time.Time{})
}

// send writes a frame whose bytes are those of parts, one after another.
func (l *link) send(k kind, id uint64, parts ...[]byte) error {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	header := make([]byte, headerBytes)
	header[0] = byte(k)
	binary.BigEndian.PutUint64(header[8:], id)
	binary.BigEndian.PutUint64(header[16:], uint64(n))
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.conn.SetWriteDeadline(time.Now().Add(l.patience)); err != nil {
		return err
	}
	all := append(net.Buffers{header}, parts...)
	_, err := all.WriteTo(l.conn)
	return err
}

// next reads the header of a frame, however long that takes.
func (l *link) next() (frame, error) {
	if err := l.conn.SetReadDeadline(time.Time{}); err != nil {
		return frame{}, err
	}
	if _, err := l.in.Peek(1); err != nil { // nothing of it may come for long
		return frame{}, err
	}
	if err := l.conn.SetReadDeadline(time.Now().Add(l.patience)); err != nil {
		return frame{}, err
	}
	header := make([]byte, headerBytes)
	if _, err := io.ReadFull(l.in, header); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint64(header[16:])
	if n > 1<<62 {
		return frame{}, &ProtocolError{fmt.Sprintf("a frame of %d bytes", n)}
	}
	return frame{kind(header[0]), binary.BigEndian.Uint64(header[8:]), int64(n)}, nil
}

// read reads bytes of a frame into memory that is there.
func (l *link) read(p []byte) error {
	if err := l.conn.SetReadDeadline(time.Now().Add(l.patience)); err != nil {
		return err
	}
	_, err := io.ReadFull(l.in, p)
	return err
}

// sendJSON sends a value.
func (l *link) sendJSON(k kind, id uint64, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(text) > maxJSONBytes {
		return &ProtocolError{fmt.Sprintf("%d bytes of JSON", len(text))}
	}
	return l.send(k, id, text)
}

// readJSON reads the value of a frame.
func (l *link) readJSON(f frame, v any) error {
	if f.n > maxJSONBytes {
		return &ProtocolError{fmt.Sprintf("%d bytes of JSON", f.n)}
	}
	text := make([]byte, f.n)
	if err := l.read(text); err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return &ProtocolError{err.Error()}
	}
	return nil
}

func (l *link) close() error { return l.conn.Close() }
