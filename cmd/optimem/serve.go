//go:build !noserve && !files

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/courtesy"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve"
	"github.com/optimem/optimem/serve/otlp"
	"github.com/optimem/optimem/top"
)

const serveLong = `Answer requests for all models of a directory, under one budget of memory: the Open Inference Protocol, version 2 (KServe,
Triton), in REST and gRPC, and OpenAI's chat, completions and embeddings, on one port.

DIR has a model as NAME.pt2, NAME.pt, NAME.safetensors or NAME.gguf, as NAME/ with the files of Hugging Face, or as NAME/1/,
NAME/2/ with versions, of which the newest is served. A file model.json says more where that is needed.

It listens on this host only, unless there is a token file, or client certificates are asked for. Opening and closing of models,
metrics and the page /ui are on an address of their own. SIGTERM ends what has begun and then the server, SIGUSR1 gives its
memory back, SIGUSR2 takes it again.`

const serveExamples = `  optimem serve models/ --memory 4GiB
  curl localhost:8000/v2/models/digits
  optimem serve models/ --listen :8000 --token-file tokens.txt --tls-cert cert.pem --tls-key key.pem
  curl --unix-socket /run/optimem.sock http://admin/metrics`

// A serving is one run of the command.
type serving struct {
	writing
	dir                       string
	listen, admin             string
	tokenFile                 string
	tlsCert, tlsKey, clientCA string
	insecure, onDemand        bool
	maxQueue                  int
	maxBody                   command.SizeFlag
	drain                     time.Duration
	metrics                   string
	clients                   serve.ClientLimits
	clientBytes               command.SizeFlag
	collector                 string
	traces                    *otlp.Exporter

	tokens *serve.Tokens
	// sites are what is listened on, for clients and for administration, guards who may ask there, removed what is removed in the
	// end.
	sites   []*serve.Site
	guards  []serve.Guard
	removed []string
}

func serveCommand(c *command.Line) *cobra.Command {
	s := serving{writing: writing{Run: running.Run{Line: c}}}
	cmd := &cobra.Command{
		Use:     "serve DIR [flags]",
		Short:   "Answer requests for the models of a directory",
		Long:    serveLong,
		Example: serveExamples,
		Args:    c.Arguments(cobra.ExactArgs(1)),
		RunE: c.Enter(func(cmd *cobra.Command, args []string) error {
			s.Cmd, s.dir = cmd, args[0]
			return s.Place(s.serve(cmd.Context()))
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	s.Mode, s.Runs = running.Modes[0], 1
	flags.StringVar(&s.listen, "listen", "127.0.0.1:8000", "answer clients on `HOST:PORT`")
	flags.StringVar(&s.admin, "admin", "", "administration on a `SOCKET`, a path, or HOST:PORT (default: a socket, which is printed)")
	flags.StringVar(&s.tokenFile, "token-file", "", "clients need a token of this `FILE`, one a line, or a name and a token")
	flags.StringVar(&s.tlsCert, "tls-cert", "", "speak TLS with the certificates of this `FILE`, read again when it changes")
	flags.StringVar(&s.tlsKey, "tls-key", "", "the private key of --tls-cert, a `FILE`")
	flags.StringVar(&s.clientCA, "client-ca", "", "clients need a certificate by an authority of this `FILE`")
	flags.BoolVar(&s.insecure, "insecure", false, "listen beyond this host though anybody may ask")
	command.Grouped(flags, command.ListenGroup, "listen", "admin", "token-file", "tls-cert", "tls-key", "client-ca", "insecure")
	s.maxBody = 64 << 20
	flags.IntVar(&s.maxQueue, "max-queue", 256, "`N` requests of a model wait or run; more are refused, with when to come back")
	flags.Var(&s.maxBody, "max-body", "most bytes of a request, also unpacked; four times as many may be under way")
	flags.DurationVar(&s.drain, "drain", 15*time.Second, "after SIGTERM, let requests end for this `TIME`")
	flags.StringVar(&s.metrics, "metrics", "", "triton adds counters with the `NAMES` of Triton's")
	flags.BoolVar(&s.onDemand, "on-demand", false, "open models with their first request, and not at the start")
	command.Grouped(flags, command.QueueGroup, "max-queue", "max-body", "drain", "metrics", "on-demand")
	flags.IntVar(&s.clients.Requests, "client-requests", 0, "`N` requests of one client are under way at most (default: any number)")
	flags.Float64Var(&s.clients.Rate, "client-rate", 0, "`N` requests of one client begin in a second at most (default: any number)")
	flags.Var(&s.clientBytes, "client-bytes", "bytes of one client's requests at most (default: what there is for all)")
	flags.StringVar(&s.collector, "otlp", "", "send traces to OpenTelemetry's collector at a `URL`, such as http://127.0.0.1:4318")
	command.Grouped(flags, command.QueueGroup, "client-requests", "client-rate", "client-bytes", "otlp")
	flags.StringArrayVar(&s.stops, "stop", nil, "end before this `TEXT` where a request does not say (repeatable)")
	flags.StringVar(&s.schemaFile, "schema", "", "write JSON that fits the JSON schema in a `FILE` where a request does not say")
	flags.StringVar(&s.grammarFile, "grammar", "", "write what follows the grammar in a `FILE` of GBNF where a request does not say")
	flags.IntVar(&s.logprobs, "logprobs", 0, "tell of `K` rivals of each token where a request does not say")
	command.Grouped(flags, command.WritingGroup, "stop", "schema", "grammar", "logprobs")
	flags.StringArrayVar(&s.Loras, "lora", nil, "an adapter of all models that write, in a folder: `NAME=DIR`, or DIR by its name (repeatable)")
	flags.StringVar(&s.LoraName, "adapter", "", "use the adapter `NAME` for requests that name none, or none (default: --lora's, where it is one)")
	command.Grouped(flags, command.ModelGroup, "lora", "adapter")
	flags.IntVar(&s.maxTokens, "max-tokens", 0, "write `N` tokens at most where a request does not say (default: as the folder says)")
	flags.IntVar(&s.context, "context", 0, "room for `N` tokens, prompt and answer (default: what the model and its share admit)")
	flags.StringVar(&s.kv, "kv", "", "keep keys and values as `TYPE`: "+running.KVNames+" (default: as the weights)")
	flags.StringVar(&s.speculate, "speculate", "auto", "guess up to `N` tokens ahead, which changes no text; auto, ngram, off")
	s.branches = 1 // there is no flag for more here
	command.Grouped(flags, command.WritingGroup, "max-tokens", "context", "kv", "speculate")
	s.samplingFlags(cmd)
	s.PoolFlags(cmd)
	s.precisionFlag(cmd)
	flags.StringVar(&s.TopSocket, "top-socket", "", "tell 'optimem top' on this `SOCKET` what goes on (default: one of its own, which is printed)")
	command.Grouped(flags, command.MeasureGroup, "top-socket")
	return cmd
}

func (s *serving) check() error {
	switch {
	case s.Memory.Share > 0:
		return s.Usage("for instance --memory 2GiB", "--memory takes a size here, and no share")
	case (s.tlsCert == "") != (s.tlsKey == ""):
		return s.Usage("", "--tls-cert and --tls-key go together")
	case s.clientCA != "" && s.tlsCert == "":
		return s.Usage("add --tls-cert and --tls-key", "--client-ca is for TLS")
	case s.metrics != "" && s.metrics != "triton":
		return s.Usage("there is: triton", "unknown metrics %q", s.metrics)
	case s.maxQueue < 1:
		return s.Usage("", "--max-queue takes a number of 1 or more")
	case s.maxBody < 1:
		return s.Usage("for instance --max-body 64MiB", "--max-body takes a size of 1 byte or more")
	case s.drain < 0:
		return s.Usage("", "--drain takes a time")
	case s.clients.Requests < 0 || !(s.clients.Rate >= 0) || math.IsInf(s.clients.Rate, 0) || s.clientBytes < 0:
		return s.Usage("0 is no limit", "a limit of clients is below zero, or no number")
	case s.logprobs < 0 || s.logprobs > 20:
		return s.Usage("", "--logprobs takes a number of rivals, 20 at most")
	}
	s.clients.Bytes = int64(s.clientBytes)
	for _, x := range []struct{ flag, address string }{{"listen", s.listen}, {"admin", s.admin}} {
		if x.address == "" || x.flag == "admin" && isSocket(x.address) {
			continue
		}
		if _, _, err := net.SplitHostPort(x.address); err != nil {
			return s.Usage("for instance 127.0.0.1:8000", "--%s %s is no address", x.flag, x.address)
		}
		if !serve.IsLoopback(x.address) && s.tokenFile == "" && s.clientCA == "" && !s.insecure {
			return s.Usage("add --token-file FILE, or --client-ca FILE with TLS; --insecure does without",
				"--%s %s is reached by others, and nobody would have to say who they are", x.flag, x.address)
		}
	}
	if err := s.CheckAdapters(); err != nil {
		return err
	}
	return s.checkWriting()
}

// isSocket reports whether an address of administration is the path of a socket.
func isSocket(address string) bool {
	return strings.ContainsAny(address, `/\`) || !strings.Contains(address, ":")
}

func (s *serving) serve(ctx context.Context) (err error) {
	if err := s.check(); err != nil {
		return err
	}
	if s.tokenFile != "" {
		if err := s.readTokens(); err != nil {
			return err
		}
	}
	if err := s.readDefaults(); err != nil {
		return err
	}
	if s.collector != "" {
		if s.traces, err = otlp.New(s.collector, otlp.Options{Version: s.ownVersion(), Log: s.Logger()}); err != nil {
			return s.Usage("for instance http://127.0.0.1:4318", "--otlp: %v", err)
		}
		defer func() {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			_ = s.traces.Close(end) // what could not be sent is in the metrics
		}()
	}
	secure, err := s.tls()
	if err != nil {
		return err
	}
	defer func() {
		for _, site := range s.sites {
			_ = site.Listener.Close() // those that were served are closed
		}
		for _, path := range s.removed {
			_ = os.RemoveAll(path)
		}
	}()
	if err := s.listenAll(secure); err != nil { // before models are opened: an address that is taken is said at once
		return err
	}
	telling, err := s.listenTop()
	if err != nil {
		return err
	}
	if telling != nil {
		defer telling.Close()
	}
	registry, err := serve.Open(ctx, s.dir, s.registryOptions(telling))
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, registry.Close()) }()
	command.DropGarbage()
	for i, handler := range []http.Handler{registry.Handler(), registry.Admin()} {
		s.sites[i].Server.Handler = s.guards[i].Protect(handler)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go s.watch(watching, registry)
	if !s.Quiet {
		s.tell(registry)
	}
	err = registry.Serve(ctx, s.drain, s.sites...)
	if telling != nil {
		_ = telling.Close()
	}
	if err == nil && !s.Quiet {
		s.Say("done", "no more requests are there")
	}
	return err
}

// tell says what is served, and where.
func (s *serving) tell(r *serve.Registry) {
	ready, all := 0, 0
	for _, m := range r.Models() {
		if all++; m.State == serve.Ready {
			ready++
		}
		if m.Reason != "" && m.State != serve.Ready && !s.onDemand {
			s.Say("warning", fmt.Sprintf("%s: %s", m.Name, m.Reason))
		} else if s.Verbose && m.BudgetBytes > 0 {
			s.Say("note", fmt.Sprintf("%s has a share of %s", m.Name, ascii.FormatSize(m.BudgetBytes)))
		}
	}
	s.Say("note", fmt.Sprintf("%d of %s ready, %s of memory for all", ready, running.Counted(all, "model"), ascii.FormatSize(r.Memory())))
	s.Say("note", "listening on "+s.sites[0].Listener.Addr().String())
	s.Say("note", "administration on "+s.sites[1].Listener.Addr().String())
	if s.TopSocket != "" {
		s.Say("note", "'optimem top "+s.TopSocket+"' shows what goes on")
	}
}

func (s *serving) registryOptions(telling *top.Server) serve.Options {
	session := s.Options(nil, 0)
	session.Memory, session.Mode, session.Swap, session.SwapFolder, session.HostMemory = 0, "", 0, "", 0
	var over func(runtime.Options) generate.OpenRemote
	if devices := deviceList(s.Device); len(devices) > 1 { // other models than those that write are on the first
		session.Device = devices[0]
		over = func(share runtime.Options) generate.OpenRemote { return overDevices(devices, share) }
	}
	adapters := make(map[string]string)
	for _, f := range s.Folders {
		adapters[f.Name] = f.Path
	}
	var schema json.RawMessage
	if s.schema != "" {
		schema = json.RawMessage(s.schema)
	}
	return serve.Options{
		Top:  telling,
		Stop: s.stops, Schema: schema, Grammar: s.grammar, Logprobs: s.logprobs, Adapters: adapters, Adapter: s.Adapter, Traces: s.traces,
		Version: s.ownVersion(), Memory: s.Memory.Bytes, Session: session, HostMemory: int64(s.HostMemory), MaxBody: int64(s.maxBody), MaxQueue: s.maxQueue,
		Remote:  over,
		Context: s.context, KV: generate.KVTypes[s.kv], Speculate: s.ahead, Defaults: func(d generate.Defaults) generate.Defaults {
			s.override(&d.Sampling)
			d.MaxTokens = cmp.Or(s.maxTokens, d.MaxTokens)
			return d
		},
		OnDemand: s.onDemand, Limits: s.Limits(), TritonMetrics: s.metrics == "triton",
		Log: s.Logger(),
	}
}

// ownVersion is what the server says of itself.
func (s *serving) ownVersion() string { return strings.TrimPrefix(version(), "optimem ") }

// readDefaults reads what requests are that do not say: what each model makes of it, it says when it is opened.
func (s *serving) readDefaults() error {
	for path, to := range map[string]*string{s.schemaFile: &s.schema, s.grammarFile: &s.grammar} {
		if path == "" {
			continue
		}
		if err := s.readGrammarFile(path, to); err != nil {
			return err
		}
	}
	if s.schema != "" && !json.Valid([]byte(s.schema)) {
		return s.Usage("docs/text.md says what schemas may have", "%s is no JSON", s.schemaFile)
	}
	return nil
}

// watch gives memory back and takes it again as signals ask.
func (s *serving) watch(ctx context.Context, r *serve.Registry) {
	list := slices.Concat(courtesy.GiveBackSignals, courtesy.GoOnSignals)
	if len(list) == 0 {
		return
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, list...)
	defer signal.Stop(signals)
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-signals:
			if slices.Contains(courtesy.GoOnSignals, sig) {
				r.Resume()
				s.Say("note", "goes on")
			} else if err := r.GiveBack(ctx); err != nil {
				s.Say("warning", fmt.Sprintf("memory was not given back: %v", err))
			} else {
				s.Say("note", "memory was given back; requests wait until SIGUSR2")
			}
		}
	}
}

func (s *serving) readTokens() error {
	f, err := os.Open(s.tokenFile)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Mode().Perm()&0o077 != 0 && !s.Quiet {
		s.Say("warning", fmt.Sprintf("%s can be read by others: chmod 600 %[1]s", s.tokenFile))
	}
	if s.tokens, err = serve.ReadTokens(f); err != nil {
		return fmt.Errorf("%s: %w", s.tokenFile, err)
	}
	return nil
}

// listenAll listens for clients and for administration.
func (s *serving) listenAll(secure *tls.Config) error {
	client, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	s.add(client, serve.Guard{Tokens: s.tokens, Local: serve.IsLoopback(s.listen), Limits: s.clients}, secure)
	if s.admin != "" && !isSocket(s.admin) {
		admin, err := net.Listen("tcp", s.admin)
		if err == nil {
			s.add(admin, serve.Guard{Tokens: s.tokens, Local: serve.IsLoopback(s.admin)}, secure)
		}
		return err
	}
	admin, err := s.socket()
	if err != nil {
		return err
	}
	s.add(admin, serve.Guard{Private: true}, nil)
	return nil
}

func (s *serving) add(l net.Listener, guard serve.Guard, secure *tls.Config) {
	server := serve.NewServer(nil)
	server.TLSConfig = secure
	server.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(io.Discard, nil), slog.LevelDebug)
	if s.Verbose {
		server.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(s.Stderr, nil), slog.LevelWarn)
	}
	s.sites, s.guards = append(s.sites, &serve.Site{Listener: l, Server: server}), append(s.guards, guard)
}

// socket listens on the socket of administration, which only this user can open from the moment at which it is there.
func (s *serving) socket() (net.Listener, error) {
	path := s.admin
	if path == "" {
		dir, err := s.own()
		if err != nil {
			return nil, err
		}
		path = filepath.Join(dir, "admin.sock")
	}
	return serve.ListenSocket(path)
}

// own returns a folder of the server's own, for sockets that nobody named.
func (s *serving) own() (string, error) {
	if len(s.removed) > 0 {
		return s.removed[0], nil
	}
	dir, err := os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), "optimem-")
	if err == nil {
		s.removed = append(s.removed, dir)
	}
	return dir, err
}

// listenTop answers 'optimem top': on the socket that was named, else on one in a folder of the server's own, where
// none is no reason not to serve.
func (s *serving) listenTop() (server *top.Server, err error) {
	path := s.TopSocket
	if path == "" {
		dir, err := s.own()
		if err != nil {
			return nil, nil
		}
		path = filepath.Join(dir, running.TopSocketName)
	}
	if server, err = top.Listen(path); err != nil && s.TopSocket == "" {
		return nil, nil
	}
	s.TopSocket = path
	return server, err
}

// tls is the configuration of TLS, nil where none is spoken.
func (s *serving) tls() (*tls.Config, error) {
	if s.tlsCert == "" {
		return nil, nil
	}
	c := &certificate{cert: s.tlsCert, key: s.tlsKey}
	if _, err := c.get(nil); err != nil {
		return nil, err
	}
	config := &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if s.clientCA != "" {
		text, err := os.ReadFile(s.clientCA)
		if err != nil {
			return nil, err
		}
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !config.ClientCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: no certificate is in it", s.clientCA)
		}
	}
	return config, nil
}

// A certificate is read again when its file changes, so that it can be renewed under a server that goes on.
type certificate struct {
	cert, key string

	mu      sync.Mutex
	changed time.Time
	looked  time.Time
	now     *tls.Certificate
}

// get returns the certificate. One that cannot be read leaves that which was there.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now != nil && time.Since(c.looked) < time.Second {
		return c.now, nil
	}
	c.looked = time.Now()
	info, err := os.Stat(c.cert)
	if err == nil && (c.now == nil || !info.ModTime().Equal(c.changed)) {
		var read tls.Certificate
		if read, err = tls.LoadX509KeyPair(c.cert, c.key); err == nil {
			c.now, c.changed = &read, info.ModTime()
		}
	}
	if c.now == nil {
		return nil, err
	}
	return c.now, nil
}
