package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/slots"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A report is what is printed of some passes.
type report struct {
	ModelBytes    int64   `json:"model_bytes"`
	BudgetBytes   int64   `json:"budget_bytes"`
	PlannedBytes  int64   `json:"planned_bytes"`
	PeakBytes     int64   `json:"peak_bytes"`
	Sequences     int     `json:"sequences"`
	RowsEach      int     `json:"rows_each"`
	Passes        int     `json:"passes"`
	Tokens        float64 `json:"tokens"`
	ReadBytes     int64   `json:"read_bytes"`
	BytesPerToken float64 `json:"bytes_per_token"`
	// TokensPerGB is what a gigabyte that is brought gives.
	TokensPerGB float64 `json:"tokens_per_gb"`
	Seconds     float64 `json:"seconds"`
	// PassSeconds are those of each pass that counts.
	PassSeconds []float64 `json:"pass_seconds"`
	PerSecond   float64   `json:"tokens_per_second"`
	Compute     float64   `json:"compute_seconds"`
	Stall       float64   `json:"stall_seconds"`
	// DiskBefore and DiskAfter are the disk's rate before the passes and after them, read as a pager does, of a packed
	// file the bytes as they lie; DiskBytes is their mean. Limit is what that admits: the same passes if nothing else
	// took time; OfLimit which part of it was reached.
	DiskBefore float64 `json:"disk_before_bytes_per_second,omitempty"`
	DiskAfter  float64 `json:"disk_after_bytes_per_second,omitempty"`
	DiskBytes  float64 `json:"disk_bytes_per_second,omitempty"`
	Limit      float64 `json:"limit_tokens_per_second,omitempty"`
	OfLimit    float64 `json:"of_limit,omitempty"`
	// HeldBytes is what the session held after the passes. SystemBytes are those that the system says this process read
	// from disks while they ran, 0 where it does not say.
	HeldBytes   int64 `json:"held_bytes"`
	SystemBytes int64 `json:"system_read_bytes,omitempty"`
	// Of experts: those needed and read in all passes, what a replay says that is read, and what who knows all reads at
	// least. CountedReads are those of the passes that count, RowBytes what these read of embeddings a row at a time. Exact says
	// that both are all that was read, byte for byte, and that the passes read as many experts as the replay.
	ExpertNeeds int64 `json:"expert_needs,omitempty"`
	ExpertReads int64 `json:"expert_reads,omitempty"`
	Replayed    int64 `json:"replayed_reads,omitempty"`
	LeastReads  int64 `json:"belady_reads,omitempty"`
	ExpertBytes int64 `json:"expert_bytes,omitempty"`
	RowBytes    int64 `json:"row_bytes,omitempty"`

	CountedReads int64 `json:"counted_expert_reads,omitempty"`
	Exact        *bool `json:"exact,omitempty"`
	// Hash is of the last logits: the same in every mode and budget.
	Hash string `json:"logits_hash"`
}

// passes is what is run.
type passes struct {
	session                       *optimem.Session
	sequences, rows, number, warm int
	accepted                      float64
	context, perSequence          int
	trace                         slots.Trace
	// tokens are what passes take; nil is any. chosen are the likeliest next ones of the first sequence, pass by pass.
	tokens, chosen []int64
}

func run(args []string) (err error) {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	memory := flags.Int64("memory", 0, "budget in bytes")
	mode := flags.String("mode", "auto", "auto, page or resident")
	device := flags.String("device", "cpu", "device")
	library := flags.String("library", "", "path of a GPU's driver, instead of the system's")
	var p passes
	flags.IntVar(&p.sequences, "sequences", 1, "sequences that are written at once")
	flags.IntVar(&p.rows, "rows", 1, "rows of each in a pass: the next token, and guesses")
	flags.Float64Var(&p.accepted, "accepted", 1, "how many of these count as written, on average")
	flags.IntVar(&p.context, "context", 512, "tokens of a sequence: at the end it begins anew")
	flags.IntVar(&p.number, "passes", 8, "passes that count")
	flags.IntVar(&p.warm, "warm", 2, "passes before")
	walked := flags.Bool("walk", false, "sequences are of the text that tokens prints, each from another word on")
	choices := flags.String("choices", "", "write which token is the likeliest after each pass to a file")
	rate := flags.Duration("disk", 0, "measure the disk's rate for so long before the passes, and after them")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || p.rows < 1 || p.sequences < 1 || p.accepted > float64(p.rows) || p.context < p.rows {
		return errors.New("run: one folder, and no more accepted than there are rows")
	}
	if *walked {
		p.tokens = walk(p.sequences + p.warm + p.number)
	}
	ctx := context.Background()
	ckpt, err := loader.Open(flags.Arg(0))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ckpt.Close()) }()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		return err
	}
	p.perSequence = graph.Blocks(p.context)
	steps, err := model.Steps(
		models.StepOptions{Blocks: p.perSequence * p.sequences, Context: p.context, DType: tensor.BFloat16},
	)
	if err != nil {
		return err
	}
	r := report{BudgetBytes: *memory, Sequences: p.sequences, RowsEach: p.rows, Passes: p.number}
	if r.DiskBefore, err = diskRate(ctx, flags.Arg(0), *rate); err != nil {
		return err
	}
	rates := cost.Rates{DiskBytes: r.DiskBefore}
	for i := range ckpt.Weights {
		r.ModelBytes += ckpt.Weights[i].Extent.Bytes
	}
	if p.session, err = optimem.Start(ctx, steps, optimem.Options{
		Mode: plan.Mode(*mode), Memory: *memory, Rates: rates, Routed: p.routed,
		Device: *device, CUDALibrary: *library,
	}); err != nil {
		return err
	}
	if err := errors.Join(p.run(ctx, &r), p.session.Close()); err != nil {
		return err
	}
	if *choices != "" {
		list, err := json.Marshal(p.chosen)
		if err := errors.Join(err, os.WriteFile(*choices, list, 0o666)); err != nil {
			return err
		}
	}
	if r.DiskAfter, err = diskRate(ctx, flags.Arg(0), *rate); err != nil {
		return err
	}
	r.limit()
	return json.NewEncoder(os.Stdout).Encode(r)
}

// limit tells the passes from what the disk admits, by the mean of what it gave before and after them.
func (r *report) limit() {
	r.DiskBytes = (r.DiskBefore + r.DiskAfter) / 2
	if r.DiskBytes > 0 && r.ReadBytes > 0 {
		r.Limit = r.Tokens / max(float64(r.ReadBytes)/r.DiskBytes, r.Compute)
		r.OfLimit = r.PerSecond / r.Limit
	}
}

// routed notes where rows went.
func (p *passes) routed(module string, rows int, experts []int32) {
	l := slices.Index(p.trace.Layers, module)
	if l < 0 {
		l, p.trace.Layers = len(p.trace.Layers), append(p.trace.Layers, module)
	}
	p.trace.Visits = append(p.trace.Visits, slots.Visit{Layer: l, Rows: rows, Experts: slices.Clone(experts)})
}

// run runs the passes.
func (p *passes) run(ctx context.Context, r *report) error {
	n := p.sequences * p.rows
	rng := rand.New(rand.NewPCG(1, 2))
	tokens, positions, wanted := make([]int64, n), make([]int64, n), make([]int64, n)
	blocks := make([]int64, n*p.perSequence)
	for i := range n {
		wanted[i] = int64(i)
		for k := range p.perSequence {
			blocks[i*p.perSequence+k] = int64(i/p.rows*p.perSequence + k)
		}
	}
	in := optimem.Values{
		models.StepTokens: tensor.Of(tokens, n), models.StepPositions: tensor.Of(positions, n),
		models.StepBlocks: tensor.Of(blocks, n, p.perSequence), models.StepWanted: tensor.Of(wanted, n),
	}
	shapes := make(map[string]tensor.Shape)
	for name, x := range in {
		shapes[name] = x.Layout.Shape
	}
	planned, err := p.session.Plan(ctx, shapes)
	if err != nil {
		return err
	}
	r.PlannedBytes = planned.PeakBytes()
	var before optimem.Metrics
	var begin time.Time
	var system int64
	at := 0.0
	for pass := range p.warm + p.number {
		if pass == p.warm {
			before, system, begin = p.session.Metrics(), systemRead(), time.Now()
		}
		if int(at)+p.rows > p.context {
			at = 0
		}
		for i := range n {
			tokens[i], positions[i] = rng.Int64N(words), int64(int(at)+i%p.rows)
			if p.tokens != nil {
				tokens[i] = p.tokens[i/p.rows+pass]
			}
		}
		started := time.Now()
		out, err := p.session.Run(ctx, in)
		if err != nil {
			return err
		}
		if pass >= p.warm {
			r.PassSeconds = append(r.PassSeconds, time.Since(started).Seconds())
		}
		at += p.accepted
		p.chosen = append(p.chosen, likeliest(out[models.StepLogits]))
		if pass == p.warm+p.number-1 {
			r.Hash = hashOf(out[models.StepLogits].Data)
		}
	}
	r.Seconds = time.Since(begin).Seconds()
	after := p.session.Metrics()
	if r.SystemBytes = systemRead() - system; system == 0 {
		r.SystemBytes = 0
	}
	r.HeldBytes = after.HeldBytes
	r.Tokens = float64(p.sequences) * p.accepted * float64(p.number)
	r.ReadBytes = after.LoadedBytes - before.LoadedBytes
	r.PeakBytes = after.PeakBytes
	r.BytesPerToken = float64(r.ReadBytes) / r.Tokens
	if r.ReadBytes > 0 {
		r.TokensPerGB = r.Tokens / (float64(r.ReadBytes) / 1e9)
	}
	r.PerSecond = r.Tokens / r.Seconds
	r.Compute, r.Stall = (after.Compute - before.Compute).Seconds(), (after.Stall - before.Stall).Seconds()
	r.experts(&p.trace, planned, before, after)
	return nil
}

// experts tells what passes needed of experts and read.
func (r *report) experts(trace *slots.Trace, planned *plan.Plan, before, after optimem.Metrics) {
	if len(planned.Experts) == 0 {
		return
	}
	room, places := planned.Room(trace)
	count := slots.Sum(slots.Replay(trace, room, places))
	r.ExpertNeeds, r.ExpertReads, r.Replayed = after.ExpertHits+after.ExpertReads, after.ExpertReads, count.Reads
	r.LeastReads = slots.Sum(slots.Least(trace, room, places)).Reads
	r.ExpertBytes = planned.Experts[0].Each[0].ReadBytes()
	r.CountedReads = after.ExpertReads - before.ExpertReads
	for _, g := range planned.Gathers {
		columns := g.Layout.Shape[len(g.Layout.Shape)-1]
		r.RowBytes += int64(r.Passes*r.Sequences*r.RowsEach) * int64(columns*g.Weight.DType.Size())
	}
	exact := r.ReadBytes == r.CountedReads*r.ExpertBytes+r.RowBytes && r.ExpertReads == r.Replayed
	r.Exact = &exact
}

// likeliest returns the token with the largest of the first row's logits, -1 where they are not numbers of 4 bytes.
func likeliest(logits *tensor.Tensor) int64 {
	numbers, err := tensor.Slice[float32](logits)
	if err != nil {
		return -1
	}
	shape := logits.Layout.Shape
	row := numbers[:shape[len(shape)-1]]
	return int64(slices.Index(row, slices.Max(row)))
}

// hashOf tells logits apart (FNV-1a).
func hashOf(data []byte) string {
	h := uint64(14695981039346656037)
	for _, b := range data {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return fmt.Sprintf("%016x", h)
}
