package main

import (
	"cmp"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// echo sends the input's bytes to a socket of loopback from which they come back when all of them are there: what the
// kernel's copies cost, and nothing else. Memory is taken once.
func (l *load) echo(seconds float64) (*report, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	data := l.elements()
	served := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			served <- err
			return
		}
		defer conn.Close()
		held := make([]byte, len(data))
		for err == nil {
			var n uint64
			if err = binary.Read(conn, binary.LittleEndian, &n); err == nil {
				if _, err = io.ReadFull(conn, held[:n]); err == nil {
					_, err = conn.Write(held[:n])
				}
			}
		}
		served <- err
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return nil, err
	}
	back := make([]byte, len(data))
	t := &tally{statuses: make(map[int]int)}
	begin := time.Now()
	for time.Since(begin).Seconds() < seconds {
		asked := time.Now()
		if err := binary.Write(conn, binary.LittleEndian, uint64(len(data))); err != nil {
			return nil, err
		}
		if _, err := conn.Write(data); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(conn, back); err != nil {
			return nil, err
		}
		t.add(http.StatusOK, time.Since(asked))
	}
	r := t.report(time.Since(begin), len(data))
	_ = conn.Close()
	<-served // which ends since the other side is closed
	return r, nil
}

// echoHTTP does the same by HTTP: what a server costs that reads a request into memory of its own and sends it back.
func (l *load) echoHTTP(clients int, seconds float64) (*report, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		data := make([]byte, max(req.ContentLength, 0))
		if _, err := io.ReadFull(req.Body, data); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data)
	})}
	if l.grpc { // as servers have it that take large messages
		server.HTTP2 = &http.HTTP2Config{MaxReadFrameSize: 1 << 20}
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	l.url, l.post, l.grpc, l.body = "http://"+listener.Addr().String(), "/", false, l.elements()
	r, err := l.closed(clients, seconds)
	err = cmp.Or(err, server.Close())
	<-served // which says that it was closed
	return r, err
}
