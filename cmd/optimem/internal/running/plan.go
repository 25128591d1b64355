//go:build !files

package running

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/cmd/optimem/internal/planned"
	"github.com/optimem/optimem/cmd/optimem/internal/wording"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/plan"
)

const planLong = `Say what a run would do, in under a second and without reading a weight: which groups of layers stay
in memory and which are brought for every pass, what memory is for, how many bytes a pass moves, what it is expected
to take and what bounds that, and the least memory that works.

Inputs need no file: --shape says how large they are. Sizes that a program leaves open and that nobody gives are
assumed (one row; the sizes that the program was exported with, where it tells), and the plan says so. Expected times
are guesses until 'optimem calibrate' has measured this host.

--batch auto looks at passes of 1 to 128 rows, and says which of those that fit is the fastest for each row; --batch
powers looks at powers of two only.

With --context or --sequences a language model is planned as generate, chat and serve run it, token by token: what keys
and values take, and how many tokens a second to expect.

With --machines the model is divided over machines of this one's kind, as 'optimem run --stages' divides it.`

const planExamples = `  optimem plan model.pt2 --memory 2GiB
  optimem plan model.pt2 --mode page --max-layer-size 1e6
  optimem plan model.pt2 --memory 1GiB --batch auto
  optimem plan model.pt2 --mode chunk --capacity 1e9 --shape x=8,3,224,224
  optimem plan llama/ --memory 6GiB --json
  optimem plan llama/ --memory 6GiB --context 8192 --sequences 4
  optimem plan llama/ --context 8192 --machines a=4GiB,b=4GiB --link 1.25e9`

// PlanCommand is 'optimem plan', which says how a model would run.
func PlanCommand(c *command.Line) *cobra.Command {
	r := Run{Line: c, assume: true, dry: true, once: true}
	cmd := &cobra.Command{
		Use:     "plan MODEL [flags]",
		Short:   "Say what a run would do, without reading a weight",
		Long:    planLong,
		Example: planExamples,
		Args:    OneModel(c),
		RunE: c.Enter(func(cmd *cobra.Command, args []string) error {
			r.Cmd, r.Model = cmd, args[0]
			if err := r.CheckFlags(); err != nil {
				return err
			}
			if err := r.checkSteps(); err != nil {
				return err
			}
			if r.Stages.machines != "" {
				return r.Place(r.planMachines(cmd.Context()))
			}
			if r.stepwise() {
				return r.Place(r.planSteps(cmd.Context()))
			}
			return r.Place(r.plan(cmd.Context()))
		}),
	}
	r.shareFlags(cmd, 1)
	r.stepsFlags(cmd)
	r.Stages.defineMachines(cmd)
	r.noOutputs(cmd)
	return cmd
}

func (r *Run) plan(ctx context.Context) (err error) {
	m, err := r.prepare(ctx)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, m.Close()) }()
	if r.look != "" {
		return r.planBatches(ctx, m)
	}
	leastBytes := m.plan.MinBytes
	if m.batch != nil {
		if leastBytes, err = m.session.LeastForBatch(ctx, m.In.Shapes); err != nil {
			return err
		}
	}
	if r.AsJSON {
		return r.planJSON(m, leastBytes)
	}
	return r.planText(m, leastBytes, func(t *ascii.Table) { r.planRun(t, m) })
}

func (r *Run) planJSON(m *openModel, leastBytes int64) error {
	p := m.plan
	o := jsonout.New(r.Stdout)
	o.Set("mode", r.Mode)
	o.Set("device", r.Device)
	jsonout.Array(o, "groups", planned.Groups(p, r.Device))
	o.Set("peak_device_bytes", p.PeakBytes())
	o.Set("peak_host_bytes", p.HostBytes())
	o.Set("activation_bytes", p.ActivationBytes)
	if p.CacheBytes > 0 {
		o.Set("cache_bytes", p.CacheBytes)
	}
	if list := p.Encodings(); len(list) > 0 {
		var all []planned.Encoded
		for _, e := range list {
			all = append(all, planned.Encoded{Encoding: e.Name, Weights: e.Weights, Bytes: e.Bytes})
		}
		jsonout.Array(o, "encodings", slices.Values(all))
	}
	o.Set("bytes_moved_per_run", m.movedBytes)
	if m.fileBytes < m.movedBytes {
		o.Set("file_bytes_per_run", m.fileBytes)
	}
	if p.PastCache {
		o.Set("reads_past_page_cache", true)
	}
	if out, in := p.SwappedBytes(); in > 0 {
		o.Set("swap_bytes", p.SwapBytes)
		o.Set("bytes_swapped_out_per_run", out)
		o.Set("bytes_swapped_in_per_run", in)
		o.Set("expected_swap_seconds", p.Forecast.SwapSeconds)
	}
	if n := p.AgainBytes(); n > 0 {
		o.Set("bytes_recomputed_per_run", n)
		o.Set("expected_recompute_seconds", p.Forecast.AgainSeconds)
	}
	if planned.Waits(p) {
		o.Set("values", planned.OriginsOf(p))
	}
	if p.DecodeBytes > 0 {
		rates := r.decodeRates(m)
		o.Set("decode_bytes", p.DecodeBytes)
		o.Set("packed_read_seconds", rates.packed)
		o.Set("raw_read_seconds", rates.raw)
		if bytes, whole := p.Fixed.StoredBytes(); bytes > 0 {
			o.Set("compressed_resident_bytes", bytes)
			o.Set("compressed_resident_weight_bytes", whole)
		}
	}
	if p.SourceBytes > 0 {
		o.Set("row_length_bytes", p.SourceBytes)
	}
	o.Set("expected_seconds", m.seconds)
	o.Set("bound", p.Forecast.Bound)
	o.Set("min_memory_bytes", leastBytes)
	setExperts(o, p)
	if list := p.DeviceBytes(); len(list) > 1 {
		jsonout.Array(o, "peak_bytes_by_device", slices.Values(list))
	}
	if p.Sides != nil {
		o.Set("sides_overlap", p.Sides.Overlaps)
	}
	return o.Close()
}

// planText prints the groups and what memory is for, and has more say what is done with it.
func (r *Run) planText(m *openModel, leastBytes int64, more func(*ascii.Table)) error {
	p := m.plan
	w := bufio.NewWriter(r.Stdout)
	planned.WriteGroups(w, p, r.Device, r.Verbose)
	sums := r.planSums(m, leastBytes)
	more(sums)
	_, _ = fmt.Fprintf(w, "\n%s", sums)
	return w.Flush()
}

// planSums says what memory is for.
func (r *Run) planSums(m *openModel, leastBytes int64) *ascii.Table {
	p := m.plan
	t := ascii.NewTable(ascii.Left(""), ascii.Left(""))
	t.Row("mode", fmt.Sprintf("%s on %s", r.Mode, r.Device))
	t.Row("groups", groupsText(p))
	if b := m.batch; b != nil {
		t.Row("batch", fmt.Sprintf("%s in micro-batches of %d, up to %d of them in a pass: %d in all",
			Counted(b.Rows, "row"), b.MicroRows, max(p.Instances, 1), b.Passes))
	}
	if p.Sides != nil && p.Sides.Overlaps {
		next := "the CPU computes"
		if p.Sides.Peer != "" {
			next = "the next GPU computes"
		}
		t.Row("at once", "the device computes a micro-batch while "+next+" the one before it")
	}
	t.Row("memory", wording.Purposes(
		wording.For(p.Fixed.Bytes, "weights that stay"), wording.For(p.ConstBytes, "constants"),
		wording.For(p.CacheBytes, "cache"), wording.For(p.RingBytes, "slots"), wording.For(p.ActivationBytes, "activations"), wording.For(p.WorkBytes, "workspace"),
		wording.For(directBytes(p, p.DecodeBytes), "decoding"), wording.For(directBytes(p, p.SourceBytes), "row lengths of adapters"),
	))
	for i, e := range p.Encodings() {
		title := ""
		if i == 0 {
			title = "encoded"
		}
		t.Row(title, fmt.Sprintf("%s: %s of %s, blocks in memory, too", e.Name, Counted(e.Weights, "weight"), ascii.FormatSize(e.Bytes)))
	}
	if n := len(p.Fixed.Packed); n > 0 {
		t.Row("packed", Counted(n, "weight")+" of those that stay, as the device computes with them")
	}
	if bytes, whole := p.Fixed.StoredBytes(); bytes > 0 {
		t.Row("compressed", fmt.Sprintf("%s of those that stay, as the packed file has them, for %s",
			ascii.FormatSize(bytes), ascii.FormatSize(whole)))
	}
	peak := ascii.FormatSize(p.PeakBytes())
	if budget, _ := m.session.Budget(); budget > 0 {
		peak += " of " + ascii.FormatSize(budget)
	}
	if list := p.DeviceBytes(); len(list) > 1 {
		var each []string
		for _, n := range list {
			each = append(each, ascii.FormatSize(n))
		}
		peak += " on one GPU: " + strings.Join(each, ", ")
	}
	t.Row("peak", peak)
	if p.HostBytes() > 0 {
		t.Row("host memory", wording.Purposes(hostPurposes(p)...))
	}
	if leastBytes > 0 { // else nothing is on the device
		t.Row("least", ascii.FormatSize(leastBytes)+fmt.Sprintf(" works, too: --memory %d", leastBytes))
	}
	return t
}

// hostPurposes says what memory of the host is for, beside a device.
func hostPurposes(p *plan.Plan) []wording.Purpose {
	host := []wording.Purpose{
		wording.For(p.StagingBytes+p.TransferBytes, "staging"), wording.For(p.HostCopyBytes, "copies of weights"),
		wording.For(p.SwapBytes, "activations that wait"), wording.For(p.GatherBytes, "rows of embeddings"),
	}
	if !p.Target.Direct {
		host = append(host, wording.For(p.DecodeBytes, "decoding"), wording.For(p.SourceBytes, "row lengths of adapters"))
	}
	switch {
	case p.Sides != nil && p.Sides.Peer != "":
		host = append(host, wording.For(p.Sides.Host.HostBytes(), "for the other GPUs"),
			wording.For(p.Sides.CrossingBytes, "activations that cross"))
	case p.Sides != nil:
		host = append(host, wording.For(p.Sides.Host.PeakBytes(), "what the CPU computes"),
			wording.For(p.Sides.CrossingBytes, "activations that cross"))
	}
	return host
}

// groupsText counts groups by where their weights are.
func groupsText(p *plan.Plan) string {
	all, resident, decoded, paged, host, rows := 0, 0, 0, 0, 0, 0
	for i := range p.Groups {
		g := &p.Groups[i]
		n := len(g.Layers())
		all += n
		switch {
		case g.OnHost:
			host += n
		case g.Decoded:
			decoded += n
		case g.Paged():
			paged += n
		case g.Rows:
			rows += n
		case g.Params > 0:
			resident += n
		}
	}
	groups := fmt.Sprintf("%d: %d resident, %d paged", all, resident, paged)
	if decoded > 0 {
		groups += fmt.Sprintf(", %d decoded from memory", decoded)
	}
	if rows > 0 {
		groups += fmt.Sprintf(", %d by the rows they need", rows)
	}
	if host > 0 {
		groups += fmt.Sprintf(", %d on the CPU", host)
	}
	return groups
}

// pastCache is said of reads that go to the disk although the page cache holds what they read.
const pastCache = ", read past the page cache"

// planRun says what a run moves and takes.
func (r *Run) planRun(t *ascii.Table, m *openModel) {
	p := m.plan
	moved := ascii.FormatSize(m.movedBytes)
	if m.fileBytes < m.movedBytes {
		moved += ", of " + ascii.FormatSize(m.fileBytes) + " in the file"
	}
	if p.PastCache {
		moved += pastCache
	}
	t.Row("moved per run", moved)
	expertRows(t, p)
	if p.DecodeBytes > 0 && m.fileBytes > 0 {
		t.Row("packed file", r.decodeRates(m).String())
	}
	if out, in := p.SwappedBytes(); in > 0 {
		where := "the host's memory"
		if p.Sides == nil && p.Target.Direct {
			where = "a file of " + ascii.FormatSize(p.SwapBytes)
		}
		t.Row("swapped per run", fmt.Sprintf("%s out to %s, %s in, in %s", ascii.FormatSize(out), where, ascii.FormatSize(in),
			SecondsText(p.Forecast.SwapSeconds)))
	}
	if n := p.AgainBytes(); n > 0 {
		t.Row("computed anew", fmt.Sprintf("%s of activations per run, in %s", ascii.FormatSize(n), SecondsText(p.Forecast.AgainSeconds)))
	}
	if planned.Waits(p) {
		n := planned.OriginsOf(p)
		text := fmt.Sprintf("%d in new memory, %d in that of others, %d written over an operand, %d swapped in",
			n.New, n.Reused, n.Overlaid, n.Swapped)
		if n.Recomputed > 0 {
			text += fmt.Sprintf(", %d computed anew", n.Recomputed)
		}
		t.Row("activations", text)
	}
	expected := fmt.Sprintf("%s, bound by %s", SecondsText(m.seconds), p.Forecast.Bound)
	if stall := p.Forecast.StallSeconds; stall > 0 && m.batch == nil {
		expected += fmt.Sprintf(", %s of it waiting for weights", SecondsText(stall))
	}
	if !p.Forecast.Measured && r.Device == "cpu" {
		expected += Guessed
	}
	t.Row("expected", expected)
}
