// Command service classifies pictures of digits over HTTP with a paged model: each pass streams the weights group by
// group, and waiting requests share the next pass.
//
//	go run ./examples/service -memory 204800 examples/digits/digits.pt2
//	curl --data-binary @examples/digits/pictures.npy -H 'Content-Type: application/x-npy' localhost:8080/classify
//
// It shows optimem embedded in a program: one session for all requests, limits on request sizes, cancellation by the
// request's context, metrics, and graceful shutdown.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
)

func main() {
	address := flag.String("address", "localhost:8080", "where to listen")
	memoryBytes := flag.Int64("memory", 0, "budget for the model in bytes; 0 is no limit")
	idle := flag.Duration("idle", 0, "give the model's memory back when nobody has asked for so long; 0 is never")
	flag.Parse()
	if flag.NArg() != 1 || *idle < 0 {
		log.Fatal("usage: service [-address HOST:PORT] [-memory BYTES] [-idle DURATION] MODEL")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	listener, err := net.Listen("tcp", *address)
	if err == nil {
		log.Printf("listening on %s", listener.Addr())
		err = run(ctx, listener, flag.Arg(0), *idle, optimem.PageOptions{Memory: *memoryBytes})
	}
	if err != nil {
		log.Fatal(err)
	}
}

// drainTime is how long requests that are under way have to end when the service does.
const drainTime = 10 * time.Second

// run serves a model until ctx is done. Requests that are under way then are answered first. Where idle is not 0, the
// model's memory is given back when nobody has asked for so long.
func run(
	ctx context.Context, listener net.Listener, path string, idle time.Duration, opts optimem.PageOptions,
) (err error) {
	ckpt, err := loader.Open(path)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, ckpt.Close()) }()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	session, err := optimem.Page(ctx, model, opts)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	if err := takesPictures(ctx, session); err != nil { // now, and not with the first request
		return errors.Join(err, listener.Close())
	}
	s := newService(session)
	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      2 * time.Minute,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	rested := make(chan error, 1)
	if idle > 0 {
		resting, stop := context.WithCancel(ctx)
		defer func() { stop(); err = errors.Join(err, <-rested) }()
		go func() { rested <- s.rest(resting, idle) }()
	}
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		return errors.Join(err, server.Close())
	}
	return nil
}
