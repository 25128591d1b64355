// Package top tells other processes of the same user what sessions and pools of this one do: their budgets, what they hold
// and for what, what they read and wait for, and who waits for them. It listens on a Unix socket.
//
// It knows what sessions say of themselves. It does not know how they are run, and not how what it tells is shown. It is
// a package of its own so that a program that embeds sessions and tells nobody has nothing of a network in it.
//
//	server, err := top.Listen("/run/user/1000/digits.sock") // defer server.Close()
//	entry := server.Enter("digits")
//	session, err := optimem.Page(ctx, model, optimem.Options{Observe: entry.Observe})
//	entry.Session(session)
//
// Then 'optimem top /run/user/1000/digits.sock' shows it, and [Read] reads it.
package top

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	optimem "github.com/optimem/optimem/runtime"
)

// Who asks has so long to take the answer, and so many are answered at one time.
const (
	answerTime = 2 * time.Second
	maxAsking  = 8
)

// A Server answers on a socket.
//
// # Who calls what
//
// Any number of goroutines call any methods; [Entry.Observe] is a session's observer.
//
// # Who owns what
//
// The server owns its socket, which Close removes, and a goroutine. Sessions and pools are the caller's: they are asked while
// somebody asks the server, and may be closed at any time.
//
// # What is checked
//
// Only the user whose process it is can connect: the socket has the mode 0600 from the moment at which it is there under its
// name. Nothing is read from who connects. Eight are answered at one time, each within two seconds; more are closed. An answer
// waits for no pass.
type Server struct {
	path     string
	listener *net.UnixListener
	info     os.FileInfo
	began    time.Time
	asking   chan struct{}
	done     sync.WaitGroup

	mu      sync.Mutex
	entries []*Entry
	closed  bool
}

// Listen listens on a socket. One that is left of a process that has ended is replaced; one on which somebody listens, or
// another file, is an [*Error].
func Listen(path string) (*Server, error) {
	if err := vacant(path); err != nil {
		return nil, err
	}
	// In a directory that only this user can enter, the socket gets its mode before it gets its name.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".top-")
	if err != nil {
		return nil, &Error{path, "the socket cannot be made", err}
	}
	defer os.RemoveAll(dir)
	first := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: first, Net: "unix"})
	if err != nil {
		return nil, &Error{path, "the socket cannot be made", err}
	}
	l.SetUnlinkOnClose(false)
	s := &Server{path: path, listener: l, began: time.Now(), asking: make(chan struct{}, maxAsking)}
	if err = os.Chmod(first, 0o600); err == nil {
		err = os.Rename(first, path)
	}
	if err == nil {
		s.info, err = os.Lstat(path)
	}
	if err != nil {
		return nil, &Error{path, "the socket cannot be made", errors.Join(err, l.Close())}
	}
	s.done.Add(1)
	go s.accept()
	return s, nil
}

// vacant reports whether there may be a socket at a path.
func vacant(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return &Error{path, "the socket cannot be made", err}
	case info.Mode().Type() != fs.ModeSocket:
		return &Error{path, "there is another file of that name", nil}
	}
	conn, err := net.DialTimeout("unix", path, answerTime)
	if err != nil {
		return nil // its process has ended
	}
	return &Error{path, "another process listens there", conn.Close()}
}

// Enter adds something under a name, of which at first nothing is known.
func (s *Server) Enter(name string) *Entry {
	e := &Entry{server: s, name: name}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, e)
	return e
}

// Close ends answering and removes the socket. A second Close returns nil.
func (s *Server) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if !first {
		return nil
	}
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.info) { // else it is another's
		_ = os.Remove(s.path)
	}
	err := s.listener.Close()
	s.done.Wait()
	return err
}

func (s *Server) accept() {
	defer s.done.Done()
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // of descriptors there are too few, for now
			time.Sleep(answerTime / 20)
			continue
		}
		select {
		case s.asking <- struct{}{}:
			s.done.Go(func() {
				defer func() { <-s.asking }()
				s.answer(conn)
			})
		default:
			conn.Close()
		}
	}
}

// answer writes a report. Who does not take it within its time has none.
func (s *Server) answer(conn net.Conn) {
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(answerTime)) != nil {
		return
	}
	text, err := json.Marshal(s.Report())
	if err != nil {
		panic("BUG: " + err.Error())
	}
	_, _ = conn.Write(append(text, '\n'))
}

// Report is what is told.
func (s *Server) Report() *Report {
	s.mu.Lock()
	entries := slices.Clone(s.entries)
	s.mu.Unlock()
	now := time.Now()
	r := &Report{
		PID: os.Getpid(), Program: filepath.Base(os.Args[0]), At: now, Seconds: now.Sub(s.began).Seconds(),
		Rows: []Row{},
	}
	for _, e := range entries {
		r.Rows = append(r.Rows, e.rows()...)
	}
	return r
}

// An Entry is a session or a pool that is told of.
type Entry struct {
	server *Server
	name   string

	mu      sync.Mutex
	session *optimem.Session
	pool    *optimem.Pool
	pass    Pass
}

// Session says which session the entry is, so that it is asked.
func (e *Entry) Session(s *optimem.Session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.session = s
}

// Pool says which pool the entry is: it has a row, and each member one.
func (e *Entry) Pool(p *optimem.Pool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pool = p
}

// Leave removes the entry.
func (e *Entry) Leave() {
	s := e.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = slices.DeleteFunc(s.entries, func(x *Entry) bool { return x == e })
}

// Observe follows the pass that runs: it is for [optimem.Options].Observe, together with others by [optimem.TeeObserver].
// Without it a session is seen between passes only.
func (e *Entry) Observe(ev optimem.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch ev.Kind {
	case optimem.GroupDone:
		if ev.Group == 0 {
			e.pass = Pass{}
		}
		e.pass.Group, e.pass.Path = ev.Group+1, ev.Path
		if ev.Plan != nil {
			e.pass.Groups = len(ev.Plan.Groups)
		}
		e.pass.LoadedBytes += ev.LoadedBytes
		e.pass.StallSeconds += ev.Stall.Seconds()
	case optimem.WeightsLoaded:
		e.pass.LoadedBytes += ev.LoadedBytes
	case optimem.PassDone:
		e.pass = Pass{}
	}
}

// rows are what is told of the entry.
func (e *Entry) rows() []Row {
	e.mu.Lock()
	session, pool, pass := e.session, e.pool, e.pass
	e.mu.Unlock()
	switch {
	case pool != nil:
		return poolRows(e.name, pool)
	case session != nil:
		row := sessionRow(e.name, session.Metrics())
		row.BudgetBytes, row.HostBudgetBytes = session.Budget()
		row.Running, row.Waiting = session.Queue()
		if pass != (Pass{}) {
			row.Pass = &pass
		}
		return []Row{row}
	}
	return []Row{{Name: e.name, Kind: "session"}}
}

// An Error says why there is no socket, or no answer from one.
type Error struct {
	Socket, Msg string
	Err         error
}

// Error names the socket.
func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("socket %s: %s", e.Socket, e.Msg)
	}
	return fmt.Sprintf("socket %s: %s: %v", e.Socket, e.Msg, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
