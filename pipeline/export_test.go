package pipeline

import (
	"bufio"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/tensor"
)

// Greet begins a connection as a head does that has no token.
func Greet(t testing.TB, conn net.Conn) {
	t.Helper()
	l := &link{conn: conn, in: bufio.NewReader(conn), patience: time.Minute}
	if err := l.greet(nil, asHead); err != nil {
		t.Fatal(err)
	}
}

// Intrude begins a connection without knowing the token, and reports whether the stage goes on with it.
func Intrude(t testing.TB, conn net.Conn) bool {
	t.Helper()
	if _, err := conn.Write(append([]byte(magic), make([]byte, 32)...)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len(magic)+32)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(append([]byte{byte(asHead)}, make([]byte, 32)...)); err != nil {
		t.Fatal(err)
	}
	n, _ := conn.Read(make([]byte, 1))
	return n > 0
}

// OpenLast opens the last range of a model at a stage, waits for a head before to be gone, and returns the connection.
func OpenLast(t testing.TB, address string, model *models.Model, shapes map[string]tensor.Shape, from string) net.Conn {
	t.Helper()
	files, err := Identity(t.Context(), model)
	if err != nil {
		t.Fatal(err)
	}
	l, err := dial(t.Context(), address, nil, nil, asHead, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for {
		err := l.sendJSON(kindAsk, 0, ask{Open: &openAsk{rangeAsk{From: from, Shapes: shapes, Window: 2}, "0123456789abcdef", files, false, ""}})
		if err != nil {
			t.Fatal(err)
		}
		f, err := l.next()
		if err != nil {
			t.Fatal(err)
		}
		var said answer
		if err := l.readJSON(f, &said); err != nil {
			t.Fatal(err)
		}
		switch {
		case said.Error == nil:
			return l.conn
		case said.Error.Code != "busy":
			t.Fatal(said.Error.Msg)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TellShapes asks the stages how inputs of these shapes go through them.
func (p *Pipeline) TellShapes(ctx context.Context, shapes map[string]tensor.Shape) error {
	_, err := p.layoutsFor(ctx, shapes)
	return err
}
