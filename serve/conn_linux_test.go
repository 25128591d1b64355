package serve

import (
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// TestHasten: while the body of a request comes, the system acknowledges at once, whether the request is answered or refused.
func TestHasten(t *testing.T) {
	r, s := serveSlow(t, Options{MaxQueue: 1})
	option := func(req *http.Request, of func(fd int) error) {
		raw, err := req.Context().Value(connKey{}).(*net.TCPConn).SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) {
				if err := of(int(fd)); err != nil {
					t.Error(err)
				}
			})
		}
		if err != nil {
			t.Error(err)
		}
	}
	quick := make(chan int, 2)
	at, _ := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		option(req, func(fd int) error { return syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 0) })
		r.Handler().ServeHTTP(w, req)
		option(req, func(fd int) error {
			is, err := syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_QUICKACK)
			quick <- is
			return err
		})
	}))
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	body := empty + strings.Repeat(" ", largeBody)
	post := func() int {
		resp, err := client.Post(at+slowPath, "application/json", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	first := make(chan int, 1)
	go func() { first <- post() }()
	until(t, "a pass", func() bool { return s.calls.Load() == 1 })
	if status := post(); status != 429 || <-quick != 1 {
		t.Errorf("refused: %d, or acknowledged late", status)
	}
	close(s.free)
	if status := <-first; status != 200 || <-quick != 1 {
		t.Errorf("answered: %d, or acknowledged late", status)
	}
}
