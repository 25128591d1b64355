package work

import (
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// A Server is a server of NATS within this process, for one machine: whoever is on it may ask, as nobody says who they are.
type Server struct{ server *server.Server }

// Embed starts a server that keeps its streams in a folder and listens on an address of this host; port 0 is any.
func Embed(dir, address string) (*Server, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, errors.New("work: the server within a worker is for this host: others need one that asks who they are")
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "optimem", Host: host, Port: port, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
		MaxPayload: 1 << 20,
	})
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		s.Shutdown()
		return nil, errors.New("work: the server within does not start: is the address taken, or the folder?")
	}
	return &Server{s}, nil
}

// URL is where it listens.
func (s *Server) URL() string { return s.server.ClientURL() }

// Close ends the server. What is in its streams stays in the folder.
func (s *Server) Close() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
}
