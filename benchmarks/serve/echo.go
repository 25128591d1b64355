package main

import (
	"encoding/binary"
	"io"
	"net"
	"net/http"
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
