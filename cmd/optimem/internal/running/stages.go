//go:build !noserve && !files

package running

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/pipeline"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A stagesFlags says which machines compute a model together, and how they are reached.
type stagesFlags struct {
	Devices        []string
	List, machines string
	At             []string
	token, ca      string
	link           command.SizeFlag
	latency        time.Duration
	slower         bool
}

// Define defines the flags of commands that run a model over stages.
func (s *stagesFlags) Define(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&s.List, "stages", "", "compute where 'optimem stage' runs, in order: `HOST:PORT,…`")
	flags.StringSliceVar(&s.At, "split-at", nil, "begin stages with these `MODULES` (default: as the stages' memory is)")
	flags.StringVar(&s.token, "stage-token", "", "the `FILE` with the token that stages know")
	flags.StringVar(&s.ca, "tls-ca", "", "trust stages with certificates by an authority of this `FILE`")
	flags.Var(&s.link, "link", "bytes a second from stage to stage, for the forecast (default: 125e6)")
	flags.BoolVar(&s.slower, "even-if-slower", false, "use stages though one of them would be faster by itself")
	command.Grouped(flags, command.StagesGroup, "stages", "split-at", "stage-token", "tls-ca", "link", "even-if-slower")
}

// DefineDevices defines those of commands that also run a model over devices of this machine, pass behind pass.
func (s *stagesFlags) DefineDevices(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&s.Devices, "stage-device", nil, "a stage of this machine: a `DEVICE` as --device takes; given for each, in order")
	command.Grouped(flags, command.StagesGroup, "stage-device")
}

// defineMachines defines those of a plan.
func (s *stagesFlags) defineMachines(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&s.machines, "machines", "", "divide the model over machines with so much memory: `NAME=SIZE,…`")
	flags.StringSliceVar(&s.At, "split-at", nil, "--machines: begin stages with these `MODULES` (default: as the memory is)")
	flags.Var(&s.link, "link", "--machines: bytes a second from one to the next (default: 125e6)")
	flags.DurationVar(&s.latency, "link-latency", 200*time.Microsecond, "--machines: the `TIME` that the first byte takes")
	command.Grouped(flags, command.StagesGroup, "machines", "split-at", "link", "link-latency")
}

// addresses are those of the stages.
func (r *Run) addresses() ([]string, error) {
	list := strings.Split(r.Stages.List, ",")
	for i, a := range list {
		list[i] = strings.TrimSpace(a)
		if host, _, err := net.SplitHostPort(list[i]); err != nil || host == "" {
			return nil, r.Usage("for instance --stages 10.0.0.1:4300,10.0.0.2:4300", "--stages: %q is no address", list[i])
		}
	}
	if len(list) < 2 {
		return nil, r.Usage("for instance --stages 10.0.0.1:4300,10.0.0.2:4300", "--stages takes the addresses of two machines or more")
	}
	return list, nil
}

// StageOptions are what the flags say of stages.
func (r *Run) StageOptions() (opts pipeline.Options, err error) {
	s := &r.Stages
	opts = pipeline.Options{At: s.At, LinkBytes: float64(s.link), Slower: s.slower}
	if opts.Stages, err = r.addresses(); err != nil {
		return opts, err
	}
	if opts.Token, err = r.readStageToken(s.token); err != nil {
		return opts, err
	}
	opts.TLS, err = dialTLS(s.ca, slices.ContainsFunc(opts.Stages, func(a string) bool { return !isLoopback(a) }))
	return opts, err
}

// leastStageToken is how many characters a token has at least.
const leastStageToken = 16

// readStageToken reads the token of a file, nil for none.
func (r *Run) readStageToken(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	token := bytes.TrimSpace(text)
	if len(token) < leastStageToken || bytes.ContainsAny(token, "\r\n") {
		return nil, r.Usage("for instance: openssl rand -hex 32", "%s: a token is one line of %d characters or more", path, leastStageToken)
	}
	return token, nil
}

// dialTLS says how stages are reached: with TLS where they are elsewhere, or an authority is given.
func dialTLS(ca string, elsewhere bool) (*tls.Config, error) {
	if ca == "" && !elsewhere {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: no certificate is in it", ca)
		}
	}
	return config, nil
}

// isLoopback reports whether an address is reached from this host alone.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// StageFailure gives errors of stages their exit code and a hint.
func (r *Run) StageFailure(err error) error {
	var (
		stage  *pipeline.StageError
		slower *pipeline.SlowerError
		full   *plan.CapacityError
		auth   *pipeline.AuthError
	)
	switch {
	case errors.As(err, &slower):
		return &command.Failure{Err: err, Code: command.ExitFailed, Hints: []string{
			"run it there, with the same memory; --even-if-slower runs it over the stages all the same",
		}}
	case !errors.As(err, &stage):
		return err
	case errors.As(err, &full):
		return &command.Failure{Err: err, Code: ExitDoesNotFit, Hints: []string{
			fmt.Sprintf("%s needs --memory %d, or another --split-at", stage.Address, full.MinBytes),
		}}
	case errors.As(err, &auth):
		return &command.Failure{Err: err, Code: command.ExitFailed, Hints: []string{"--stage-token FILE is the token that the stages know"}}
	case errors.Is(err, pipeline.ErrModel):
		return &command.Failure{Err: err, Code: command.ExitFailed, Hints: []string{"stages have the same files, the same release of optimem and the same kind of device"}}
	}
	return err
}

// runOverStages runs the model on other machines.
func (r *Run) runOverStages(ctx context.Context) (err error) {
	opts, err := r.StageOptions()
	if err != nil {
		return err
	}
	for _, name := range []string{"dump", "trace", "memory-report", "snapshot", "batch", "batch-axis", "top-socket", "assert-peak"} {
		if r.Cmd.Flags().Changed(name) {
			return r.Usage("", "--%s is for one machine, and --stages names others", name)
		}
	}
	m, err := r.OpenModel(ctx)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, m.Close()) }()
	if m.files, _, err = r.targets(m.Model.Outputs()); err != nil {
		return err
	}
	ports, err := r.ports(m.Ckpt, m.Model)
	if err != nil {
		return err
	}
	if m.In, err = r.readInputs(ctx, m.Ckpt, ports, r.Limits()); err != nil {
		return err
	}
	if err := r.makeRandom(m.In); err != nil {
		return err
	}
	if _, err := m.Model.GraphContext(ctx, m.In.Shapes, nil); err != nil { // what does not fit the model is said here
		return err
	}
	begin := time.Now()
	p, err := pipeline.Open(ctx, m.Model, m.In.Shapes, opts)
	if err != nil {
		return r.StageFailure(err)
	}
	defer func() { err = cmp.Or(err, p.Close()) }()
	opened := time.Since(begin)
	var out runtime.Values
	facts := runFacts{Mode: "stages", Device: "stages", Threads: r.Threads, ExpectedSeconds: p.Plan().PassSeconds()}
	for _, s := range p.Plan().Stages {
		facts.WeightBytes += s.Forecast.WeightBytes
		facts.MovedBytes += s.Forecast.MovedBytes
		facts.PeakDeviceBytes = max(facts.PeakDeviceBytes, s.Forecast.PeakBytes+s.Forecast.BufferBytes)
	}
	begin = time.Now()
	for range r.Runs {
		begin = time.Now()
		if out, err = p.Run(ctx, m.In.Values); err != nil {
			return r.StageFailure(err)
		}
	}
	facts.Seconds = time.Since(begin).Seconds()
	results := runOutputs(m.Model.Outputs(), out)
	if err := r.write(ctx, m.files, results, out); err != nil {
		return err
	}
	if err := r.print(facts, results, m.In.rows); err != nil {
		return err
	}
	if !r.Quiet {
		r.Note("the stages were ready in %s", SecondsText(opened.Seconds()))
		r.Say("done", fmt.Sprintf("%s over %d stages, weights %s, moved %s", SecondsText(facts.Seconds), len(p.Plan().Stages),
			ascii.FormatSize(facts.WeightBytes), ascii.FormatSize(facts.MovedBytes)))
	}
	return nil
}

const stageLong = `Compute a range of a model for 'optimem run --stages' and 'optimem generate --stages', which divide it over several
machines: each has the files of the model, and reads the weights of its range alone. Values go from stage to stage directly.

Beyond this host stages speak TLS, and whoever connects proves that it knows the token.`

const stageExamples = `  optimem stage llama/ --memory 4GiB
  optimem stage llama/ --memory 4GiB --listen 10.0.0.1:4300 --stage-token token --tls-cert cert.pem --tls-key key.pem --tls-ca ca.pem
  optimem generate llama/ "Hello" --stages 10.0.0.1:4300,10.0.0.2:4300 --stage-token token --tls-ca ca.pem`

// A staging is one run of 'optimem stage'.
type staging struct {
	Run
	listen, cert, key string
}

// StageCommand is 'optimem stage', which computes a range of a model for others.
func StageCommand(c *command.Line) *cobra.Command {
	s := staging{Run: Run{Line: c}}
	cmd := &cobra.Command{
		Use:     "stage MODEL [flags]",
		Short:   "Compute a range of a model for other machines",
		Long:    stageLong,
		Example: stageExamples,
		Args:    OneModel(c),
		RunE: c.Enter(func(cmd *cobra.Command, args []string) error {
			s.Cmd, s.Model = cmd, args[0]
			if err := s.check(); err != nil {
				return err
			}
			return s.Place(s.serve(cmd.Context()))
		}),
	}
	s.Precision, s.Runs = Precisions[0], 1
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&s.listen, "listen", "127.0.0.1:4300", "answer heads and stages on `HOST:PORT`")
	flags.StringVar(&s.Stages.token, "stage-token", "", "the `FILE` with the token that heads and stages know")
	flags.StringVar(&s.cert, "tls-cert", "", "speak TLS with the certificates of this `FILE`")
	flags.StringVar(&s.key, "tls-key", "", "the private key of --tls-cert, a `FILE`")
	flags.StringVar(&s.Stages.ca, "tls-ca", "", "trust the next stage with a certificate by an authority of this `FILE`")
	command.Grouped(flags, command.ListenGroup, "listen", "stage-token", "tls-cert", "tls-key", "tls-ca")
	s.SessionFlags(cmd)
	for _, name := range []string{"json", "lora", "adapter", "top-socket", "capacity"} {
		flags.Lookup(name).Hidden = true
	}
	return cmd
}

// check looks at the flags alone.
func (s *staging) check() error {
	if _, _, err := net.SplitHostPort(s.listen); err != nil {
		return s.Usage("for instance 127.0.0.1:4300", "--listen %s is no address", s.listen)
	}
	for _, name := range []string{"json", "lora", "adapter", "top-socket", "capacity"} {
		if s.Cmd.Flags().Changed(name) {
			return s.Usage("", "--%s does nothing for 'optimem stage'", name)
		}
	}
	switch {
	case (s.cert == "") != (s.key == ""):
		return s.Usage("", "--tls-cert and --tls-key go together")
	case !isLoopback(s.listen) && (s.cert == "" || s.Stages.token == ""):
		return s.Usage("add --tls-cert, --tls-key and --stage-token", "--listen %s is reached by others, and anybody could listen or ask", s.listen)
	}
	return s.CheckFlags()
}

// serve answers heads until it is interrupted.
func (s *staging) serve(ctx context.Context) (err error) {
	token, err := s.readStageToken(s.Stages.token)
	if err != nil {
		return err
	}
	opts := pipeline.StageOptions{Token: token, Log: s.Logger()}
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return err
		}
		opts.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	}
	if opts.Dial, err = dialTLS(s.Stages.ca, s.cert != ""); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.listen) // before the model is opened: an address that is taken is said at once
	if err != nil {
		return err
	}
	defer listener.Close()
	m, err := s.OpenModel(ctx)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, m.Close()) }()
	opts.Session = s.Options(nil, 0)
	stage, err := pipeline.NewStage(ctx, m.Model, opts)
	if err != nil {
		return err
	}
	if !s.Quiet {
		s.Say("note", fmt.Sprintf("listening on %s, %s of memory", listener.Addr(), ascii.FormatSize(stage.Memory())))
	}
	if err = stage.Serve(ctx, listener); errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// machinesOf reads --machines.
func (r *Run) machinesOf() ([]pipeline.Machine, error) {
	var list []pipeline.Machine
	for text := range strings.SplitSeq(r.Stages.machines, ",") {
		name, size, ok := strings.Cut(strings.TrimSpace(text), "=")
		n, err := ascii.ParseSize(size)
		if !ok || err != nil || n < 1 || name == "" {
			return nil, r.Usage("for instance --machines a=4GiB,b=4GiB", "--machines: %q names no machine and its memory", text)
		}
		list = append(list, pipeline.Machine{Name: name, MemoryBytes: n})
	}
	if len(list) < 2 {
		return nil, r.Usage("for instance --machines a=4GiB,b=4GiB", "--machines takes two machines or more")
	}
	return list, nil
}

// errPlanned ends the start of an engine whose passes were to be planned only.
var errPlanned = errors.New("planned")

// planMachines divides the model over machines and says what that takes.
func (r *Run) planMachines(ctx context.Context) (err error) {
	machines, err := r.machinesOf()
	if err != nil {
		return err
	}
	m, err := r.OpenModel(ctx)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, m.Close()) }()
	opts := pipeline.Options{
		At: r.Stages.At, LinkBytes: float64(r.Stages.link), LinkSeconds: r.Stages.latency.Seconds(), Slower: true,
	}
	session := r.Options(nil, 0)
	session.Once = false
	var p *pipeline.Plan
	if r.stepwise() {
		_, err = generate.New(ctx, m.Model, generate.Options{
			Context: r.steps.context, Sequences: r.steps.sequences, KV: KVType(r.steps.kv, m.Ckpt),
			Remote: func(ctx context.Context, s generate.RemoteModel) (_ generate.Remote, err error) {
				opts.Steps, opts.Typical = &s.Steps, s.Least
				if _, err = pipeline.PlanMachines(ctx, m.Model, s.Largest, machines, session, withoutTypical(opts)); err != nil {
					return nil, err // the largest pass is what memory has to be there for
				}
				if p, err = pipeline.PlanMachines(ctx, m.Model, s.Largest, machines, session, opts); err == nil {
					err = errPlanned
				}
				return nil, err
			},
		})
		if errors.Is(err, errPlanned) {
			err = nil
		}
	} else {
		var shapes map[string]tensor.Shape
		if shapes, err = r.machineShapes(ctx, m); err == nil {
			p, err = pipeline.PlanMachines(ctx, m.Model, shapes, machines, session, opts)
		}
	}
	if err != nil {
		return r.StageFailure(err)
	}
	if r.AsJSON {
		return r.machinesJSON(p)
	}
	return r.machinesText(p)
}

func withoutTypical(opts pipeline.Options) pipeline.Options {
	opts.Typical = nil
	return opts
}

// machineShapes are those of the inputs that the flags name or that are assumed.
func (r *Run) machineShapes(ctx context.Context, m *openModel) (map[string]tensor.Shape, error) {
	if err := r.findInputs(ctx, m); err != nil {
		return nil, err
	}
	return m.In.Shapes, nil
}

func (r *Run) machinesJSON(p *pipeline.Plan) error {
	type stage struct {
		Machine     string  `json:"machine"`
		From        string  `json:"from"`
		Groups      int     `json:"groups"`
		MemoryBytes int64   `json:"memory_bytes"`
		WeightBytes int64   `json:"weight_bytes"`
		MovedBytes  int64   `json:"bytes_moved_per_run"`
		PeakBytes   int64   `json:"peak_device_bytes"`
		BufferBytes int64   `json:"buffer_bytes"`
		Seconds     float64 `json:"expected_seconds"`
		HopBytes    int64   `json:"hop_bytes"`
		HopSeconds  float64 `json:"hop_seconds"`
	}
	o := jsonout.New(r.Stdout)
	jsonout.Array(o, "stages", func(yield func(stage) bool) {
		for _, s := range p.Stages {
			f := s.Forecast
			if !yield(stage{s.Address, s.From, f.Groups, s.MemoryBytes, f.WeightBytes, f.MovedBytes, f.PeakBytes, f.BufferBytes, f.Seconds, s.HopBytes, s.HopSeconds}) {
				return
			}
		}
	})
	o.Set("expected_seconds", p.PassSeconds())
	o.Set("interval_seconds", p.IntervalSeconds())
	if p.Alone != nil {
		o.Set("alone_machine", p.AloneAddress)
		o.Set("alone_seconds", p.Alone.Seconds)
	}
	return o.Close()
}

func (r *Run) machinesText(p *pipeline.Plan) error {
	table := ascii.NewTable(
		ascii.Left("machine"), ascii.Left("begins with"), ascii.Right("groups"), ascii.Right("stays"), ascii.Right("brought"), ascii.Right("peak"),
		ascii.Right("computes in"), ascii.Right("hop"), ascii.Right("takes"),
	)
	for i, s := range p.Stages {
		f := s.Forecast
		hop, took := "", ""
		if i < len(p.Stages)-1 {
			hop, took = ascii.FormatSize(s.HopBytes), SecondsText(s.HopSeconds)
		}
		table.Row(s.Address, cmp.Or(s.From, "the model"), fmt.Sprint(f.Groups), ascii.FormatSize(f.WeightBytes), ascii.FormatSize(f.MovedBytes),
			ascii.FormatSize(f.PeakBytes+f.BufferBytes), SecondsText(f.Seconds), hop, took)
	}
	alone := "the model does not fit on any of them alone"
	if p.Alone != nil {
		alone = fmt.Sprintf("%s alone: a pass takes %s, with %s brought for it", p.AloneAddress, SecondsText(p.Alone.Seconds), ascii.FormatSize(p.Alone.MovedBytes))
	}
	verdict := ""
	if p.Alone != nil && p.Alone.Seconds < p.PassSeconds() {
		verdict = ": faster than over all, which 'optimem run --stages' refuses"
	}
	_, err := fmt.Fprintf(r.Stdout, "%s\nover all: a pass takes %s, and with several under way one ends every %s\n%s%s\n", table,
		SecondsText(p.PassSeconds()), SecondsText(p.IntervalSeconds()), alone, verdict)
	return err
}
