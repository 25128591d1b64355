package transformers_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/transformers"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/slots"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// texts are the recorded models that wrote a text, by the names of type and model.
func texts(t testing.TB) map[string]*recorded {
	all := make(map[string]*recorded)
	for kind, list := range recordedModels(t) {
		for i := range list {
			if len(list[i].Greedy) > 0 {
				all[kind+"/"+list[i].Name] = &list[i]
			}
		}
	}
	if len(all) == 0 {
		t.Fatal("no recorded text")
	}
	return all
}

// TestGreedy: step by step, the likeliest token after the likeliest token is that of PyTorch, in whatever mode.
func TestGreedy(t *testing.T) {
	for name, r := range texts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model, err := models.Build(r.folder(t), models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			s := newStepper(t, model, len(r.Greedy), optimem.Options{})
			const prompt = 5
			logits := s.feed(t, r.Greedy[:prompt])
			for i, want := range r.Greedy[prompt:] {
				last := logits[len(logits)-200:]
				got := slices.Index(last, slices.Max(last))
				if int64(got) != want {
					t.Fatalf("token %d is %d, want %d", prompt+i, got, want)
				}
				logits = s.feed(t, []int64{want})
			}
		})
	}
}

// TestStepsOfTexts: the logits of a text that is read in parts are those of the whole text.
func TestStepsOfTexts(t *testing.T) {
	for name, r := range texts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model, err := models.Build(r.folder(t), models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			tokens := make([]int64, 300)
			if testing.Short() {
				tokens = tokens[:60]
			}
			rng := rand.New(rand.NewPCG(1, 2))
			for i := range tokens {
				tokens[i] = rng.Int64N(200)
			}
			want := whole(t, model, tokens)
			s, again := newStepper(t, model, 304, optimem.Options{}), newStepper(t, model, 304, optimem.Options{})
			var got, one []float32
			for at := 0; at < len(tokens); {
				n := min(1+rng.IntN(40), len(tokens)-at)
				part := s.feed(t, tokens[at:at+n])
				got = append(got, part...)
				if at < 30 { // and token by token
					for i := range n {
						one = append(one, again.feed(t, tokens[at+i:at+i+1])...)
					}
				}
				at += n
			}
			largest := 0.0
			for _, x := range want {
				largest = max(largest, math.Abs(float64(x)))
			}
			for i := range want {
				if !(math.Abs(float64(got[i]-want[i])) <= 1e-5*max(1, largest)) {
					t.Fatalf("logit %d is %v, want %v", i, got[i], want[i])
				}
			}
			if !slices.Equal(one, got[:len(one)]) {
				t.Error("other bits token by token than in parts")
			}
		})
	}
}

// whole returns the logits of a text that is read at once.
func whole(t *testing.T, model *models.Model, tokens []int64) []float32 {
	t.Helper()
	session, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	out, err := session.Run(t.Context(), optimem.Values{"input_ids": tensor.Of(tokens, 1, len(tokens))})
	if err != nil {
		t.Fatal(err)
	}
	logits, err := tensor.Slice[float32](out["logits"])
	if err != nil {
		t.Fatal(err)
	}
	return logits
}

// separated returns a checkpoint whose experts are weights of their own, under names that older files have.
func separated(t *testing.T, ckpt *loader.Checkpoint, rename func(string) string) *loader.Checkpoint {
	t.Helper()
	var list []tensor.Weight
	for _, w := range ckpt.Weights {
		base, both := strings.CutSuffix(w.Name, ".gate_up_proj")
		down := false
		if !both {
			base, down = strings.CutSuffix(w.Name, ".experts.down_proj")
			base += ".experts"
		}
		if !both && !down {
			w.Name = rename(w.Name)
			list = append(list, w)
			continue
		}
		names := []string{"gate_proj", "up_proj"}
		if down {
			names = names[:0]
			names = append(names, "down_proj")
		}
		s := w.Layout.Shape
		part := tensor.Shape{s[1] / len(names), s[2]}
		size := int64(part[0] * part[1] * w.DType.Size())
		for e := range s[0] {
			for i, name := range names {
				one := w
				one.Name = rename(base + "." + strconv.Itoa(e) + "." + name + ".weight")
				one.Layout = tensor.Contiguous(part...)
				one.Extent.Offset += int64(e*len(names)+i) * size
				one.Extent.Bytes = size
				list = append(list, one)
			}
		}
	}
	made, err := loader.NewCheckpoint("separate", list, nil)
	if err != nil {
		t.Fatal(err)
	}
	made.Config = ckpt.Config
	return made
}

// turnedApart is separated for weights of all experts that lie turned, whose gates and ups may take turns, and have biases.
func turnedApart(t *testing.T, ckpt *loader.Checkpoint) *loader.Checkpoint {
	t.Helper()
	var list []tensor.Weight
	for _, w := range ckpt.Weights {
		base, which, of := strings.Cut(w.Name, ".experts.")
		if !of {
			list = append(list, w)
			continue
		}
		which, bias := strings.CutSuffix(which, "_bias")
		kind := map[bool]string{false: ".weight", true: ".bias"}[bias]
		s := w.Layout.Shape
		out := s[len(s)-1]
		all, names, step := int(w.NumElements())/s[0], []string{which}, 1
		if which == "gate_up_proj" {
			names = []string{"gate_proj", "up_proj"}
		}
		rows := out / len(names)
		apart := rows
		if strings.Contains(string(ckpt.Config), "gpt_oss") && len(names) == 2 {
			step, apart = 2, 1
		}
		for e := range s[0] {
			for i, name := range names {
				one := w
				one.Name = base + ".experts." + strconv.Itoa(e) + "." + name + kind
				one.Layout = tensor.Layout{Shape: tensor.Shape{rows, s[1]}, Strides: []int{step, out}, Offset: e*all + i*apart}
				if bias {
					one.Layout.Shape, one.Layout.Strides = tensor.Shape{rows}, []int{step}
				}
				list = append(list, one)
			}
		}
	}
	made, err := loader.NewCheckpoint("separate", list, nil)
	if err != nil {
		t.Fatal(err)
	}
	made.Config = ckpt.Config
	return made
}

// TestExpertsOneByOne: experts that a checkpoint has one by one give the same bits as those that it has together.
func TestExpertsOneByOne(t *testing.T) {
	older := strings.NewReplacer(".mlp.", ".block_sparse_moe.", "gate_proj", "w1", "down_proj", "w2", "up_proj", "w3")
	for kind, apart := range map[string]func(*loader.Checkpoint) *loader.Checkpoint{
		"mixtral":     func(c *loader.Checkpoint) *loader.Checkpoint { return separated(t, c, older.Replace) },
		"qwen2_moe":   func(c *loader.Checkpoint) *loader.Checkpoint { return separated(t, c, strings.Clone) },
		"qwen3_moe":   func(c *loader.Checkpoint) *loader.Checkpoint { return separated(t, c, strings.Clone) },
		"gpt_oss":     func(c *loader.Checkpoint) *loader.Checkpoint { return turnedApart(t, c) },
		"llama4_text": func(c *loader.Checkpoint) *loader.Checkpoint { return turnedApart(t, c) },
	} {
		r := &recordedOf(t, kind)[0]
		together := runOnce(t, r.folder(t), r, "logits")
		if one := runOnce(t, apart(r.folder(t)), r, "logits"); !bytes.Equal(one.Data, together.Data) {
			t.Errorf("%s: other bits one by one", kind)
		}
	}
}

// TestExpertsThatLie gives a model other numbers of experts than there are, and finds nothing copied where they are right.
func TestExpertsThatLie(t *testing.T) {
	r := named(t, "mixtral", "causal")
	separate := separated(t, r.folder(t), strings.Clone)
	for _, dict := range []*loader.Checkpoint{r.folder(t), separate} {
		for _, lie := range []struct{ key, value string }{
			{"num_local_experts", "5"}, {"num_local_experts", "3"}, {"num_local_experts", "1000000000"}, {"num_experts_per_tok", "5"},
			{"num_local_experts", "10000"}, {"num_local_experts", "0"}, {"hidden_act", `"tanh"`},
		} {
			if _, err := transformers.FromConfig(changed(t, r.Config, lie.key, lie.value), stateDict(dict)); err == nil {
				t.Errorf("%s %s: no error", lie.key, lie.value)
			}
		}
		model, err := models.Build(dict, models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		g, err := model.Graph(map[string]tensor.Shape{"input_ids": {1, 3}})
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range g.Ops {
			if op.Kind != "experts" {
				continue
			}
			for _, o := range op.In[graph.ExpertsFirst:] {
				if g.Values[o.Value].Role != graph.Weight {
					t.Fatalf("%s: an expert is no weight", op.Path)
				}
			}
		}
	}
}

// TestExpertsInModes: the bits of a step are the same in any mode and budget, and on a device with memory of its own.
func TestExpertsInModes(t *testing.T) {
	for _, kind := range []string{"mixtral", "gpt_oss", "deepseek_v3"} {
		r := &recordedOf(t, kind)[0]
		model, err := models.Build(r.folder(t), models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		tokens := r.Greedy[:20]
		want := newStepper(t, model, 64, optimem.Options{Mode: plan.Resident}).feed(t, tokens)
		for _, o := range []optimem.Options{
			{Mode: plan.Page, Memory: 480 << 10}, {Mode: plan.Auto, Memory: 600 << 10},
			{Mode: plan.Auto, Device: "emu:memory=64MiB", Memory: 600 << 10}, {Mode: plan.Chunk, Device: "emu:memory=64MiB", Memory: 600 << 10},
		} {
			got := newStepper(t, model, 64, o).feed(t, tokens)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v of %d bytes on %q: other bits than resident", kind, o.Mode, o.Memory, o.Device)
			}
		}
	}
}

// TestExpertsLent: through any number of slots, one for all layers or as many as there are experts, a text has the same
// bits. What is read is what a replay of its routing says, nobody is read who was not needed, and memory is what the
// plan says.
func TestExpertsLent(t *testing.T) {
	for kind, c := range map[string]struct{ budgets int }{"mixtral": {7}, "gpt_oss": {5}, "deepseek_v3": {5}, "qwen3_moe": {3}, "olmoe": {3}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			testLent(t, kind, c.budgets)
		})
	}
}

// shapes are those of the inputs of a pass of so many tokens.
func (s *stepper) shapes(n int) map[string]tensor.Shape {
	shapes := map[string]tensor.Shape{
		models.StepTokens: {n}, models.StepPositions: {n}, models.StepBlocks: {n, len(s.blocks)}, models.StepWanted: {n},
	}
	if s.lengths > 0 {
		shapes[models.StepLengths] = tensor.Shape{n}
	}
	return shapes
}

func testLent(t *testing.T, kind string, budgets int) {
	r := &recordedOf(t, kind)[0]
	model, err := models.Build(r.folder(t), models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tokens := r.Greedy[:20]
	text := func(s *stepper) (out []float32) { // a prompt, then token by token
		out = append(out, s.feed(t, tokens[:9])...)
		for _, x := range tokens[9:] {
			out = append(out, s.feed(t, []int64{x})...)
		}
		return out
	}
	resident := newStepper(t, model, 64, optimem.Options{Mode: plan.Resident})
	want := text(resident)
	all := resident.session.Metrics().PeakBytes
	_, err = newStepper(t, model, 64, optimem.Options{Memory: 1}).session.Plan(t.Context(), resident.shapes(9))
	var full *optimem.CapacityError
	if !errors.As(err, &full) {
		t.Fatal(err)
	}
	seen := make(map[int]bool)
	for k := range budgets {
		budget := full.MinBytes + (all-full.MinBytes)*int64(k)/int64(budgets)
		for _, mode := range []plan.Mode{plan.Auto, plan.Page} {
			trace := &slots.Trace{}
			s := newStepper(t, model, 64, optimem.Options{Mode: mode, Memory: budget, Routed: func(module string, rows int, experts []int32) {
				l := slices.Index(trace.Layers, module)
				if l < 0 {
					l, trace.Layers = len(trace.Layers), append(trace.Layers, module)
				}
				trace.Visits = append(trace.Visits, slots.Visit{Layer: l, Rows: rows, Experts: slices.Clone(experts)})
			}})
			p, err := s.session.Plan(t.Context(), s.shapes(9))
			if err != nil {
				t.Fatalf("%v of %d bytes: %v", mode, budget, err)
			}
			if got := text(s); !slices.Equal(got, want) {
				t.Errorf("%v of %d bytes: other bits than resident", mode, budget)
			}
			m := s.session.Metrics()
			if m.PeakBytes > budget || p.PeakBytes() > budget {
				t.Errorf("%v of %d bytes takes %d, planned %d", mode, budget, m.PeakBytes, p.PeakBytes())
			}
			if len(p.Experts) == 0 {
				t.Logf("%v of %d bytes lends nothing", mode, budget)
				continue
			}
			room, places := p.Room(trace)
			count := slots.Sum(slots.Replay(trace, room, places))
			least := slots.Sum(slots.Least(trace, room, places))
			if m.ExpertReads != count.Reads || m.ExpertHits != count.Needs-count.Reads || count.Needs == 0 || least.Reads > count.Reads {
				t.Errorf("%v of %d bytes: %d read, %d there; the replay says %+v, at least %+v", mode, budget, m.ExpertReads, m.ExpertHits, count, least)
			}
			t.Logf("%v of %d bytes: %d sets of %d slots: %+v, at least %+v", mode, budget, len(p.Fixed.Slots), p.Fixed.Slots[0].Slots, count, least)
			seen[p.Fixed.Slots[0].Slots] = true
		}
	}
	if len(seen) < 2 {
		t.Errorf("only %v slots were tried", seen)
	}
}

// TestHalfExperts runs experts of half precision: they give what the same numbers in single precision give, and are not widened
// before they are asked for.
func TestHalfExperts(t *testing.T) {
	for _, kind := range []string{"mixtral", "gpt_oss"} {
		r := &recordedOf(t, kind)[0]
		for _, dtype := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
			outs := make([]*tensor.Tensor, 2)
			for i := range outs {
				var list []tensor.Weight
				for _, w := range r.folder(t).Weights {
					data := make([]byte, w.Extent.Bytes)
					if err := w.Extent.Source.ReadAt(t.Context(), data, w.Extent.Offset); err != nil {
						t.Fatal(err)
					}
					narrow, back := narrowed(t, data, w.Layout.Shape, dtype)
					list = append(list, weight(w.Name, []*tensor.Tensor{narrow, back}[i]))
				}
				ckpt, err := loader.NewCheckpoint("half", list, nil)
				if err != nil {
					t.Fatal(err)
				}
				ckpt.Config = []byte(r.Config)
				outs[i] = runOnce(t, ckpt, r, "logits")
				if i > 0 {
					continue
				}
				model, err := models.Build(ckpt, models.Options{})
				if err != nil {
					t.Fatal(err)
				}
				g, err := model.Graph(map[string]tensor.Shape{"input_ids": {1, 3}})
				if err != nil {
					t.Fatal(err)
				}
				for _, op := range rewrite.Prune(rewrite.FoldCasts(g)).Ops {
					if op.Kind == "cast" && strings.Contains(op.Path, "experts") {
						t.Fatalf("%s: experts are widened as a whole", op.Path)
					}
				}
			}
			// A matrix unit sums products of bfloat16 in an order of its own.
			if far := farthest(t, outs[0], outs[1]); far > 1e-5 || far > 0 && dtype != tensor.BFloat16 {
				t.Errorf("%s, %v: other numbers than from the same weights in float32, by %g", kind, dtype, far)
			}
		}
	}
}

// farthest returns the largest difference of two tensors of floats.
func farthest(t *testing.T, a, b *tensor.Tensor) (far float64) {
	t.Helper()
	x, err := tensor.Slice[float32](a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := tensor.Slice[float32](b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range x {
		far = max(far, math.Abs(float64(x[i])-float64(y[i])))
	}
	return far
}

// TestNoToken: rows that are no token go through no expert, wherever they are in a pass.
func TestNoToken(t *testing.T) {
	r := named(t, "mixtral", "causal")
	model, err := models.Build(r.folder(t), models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	steps, err := model.Steps(models.StepOptions{Blocks: 2, Context: 16})
	if err != nil {
		t.Fatal(err)
	}
	g, err := steps.Graph(map[string]tensor.Shape{
		models.StepTokens: {3}, models.StepPositions: {3}, models.StepBlocks: {3, 1}, models.StepWanted: {1},
	})
	if err != nil {
		t.Fatal(err)
	}
	var ids graph.Operand
	for _, op := range g.Ops {
		if op.Kind == "experts" && op.Path == "model.layers.0.mlp.experts" {
			ids = op.In[1]
		}
	}
	g.Outputs = append(g.Outputs, graph.Output{Name: "ids", Operand: ids})
	pool := cpu.NewPool(1)
	defer pool.Close()
	storage := func(v graph.Value) ([]byte, error) {
		data := make([]byte, v.Bytes())
		if v.Role == graph.Cache {
			return data, nil
		}
		return data, v.Weight.Extent.Source.ReadAt(t.Context(), data, v.Weight.Extent.Offset)
	}
	out, err := cpu.Interpret(t.Context(), pool, graph.Standard(), g, storage, map[string]*tensor.Tensor{
		models.StepTokens: tensor.Of([]int64{5, 6, 7}, 3), models.StepPositions: tensor.Of([]int64{0, -1, 1}, 3),
		models.StepBlocks: tensor.Of([]int64{0, 0, 0}, 3, 1), models.StepWanted: tensor.Of([]int64{2}, 1),
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := tensor.Slice[int64](out["ids"].Contiguous())
	if err != nil || len(got) != 6 {
		t.Fatalf("%v, %v", got, err)
	}
	for i, id := range got {
		if none := i/2 == 1; (id == -1) != none {
			t.Errorf("row %d has the expert %d", i/2, id)
		}
	}
}
