package models_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// stepLogits are those of a text whose first half is read at once, and then token by token, and how many experts were
// read.
func stepLogits(t *testing.T, ckpt *loader.Checkpoint, tokens []int64, o optimem.Options) (logits []byte, lent int64, least int64) {
	t.Helper()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	steps, err := model.Steps(models.StepOptions{Blocks: 2, Context: 32})
	if err != nil {
		t.Fatal(err)
	}
	session, err := optimem.Start(t.Context(), steps, o)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	half := len(tokens) / 2
	for at := 0; at < len(tokens); {
		n := 1
		if at == 0 {
			n = half
		}
		positions, wanted, blocks := make([]int64, n), make([]int64, n), make([]int64, 0, 2*n)
		for i := range n {
			positions[i], wanted[i], blocks = int64(at+i), int64(i), append(blocks, 1, 0)
		}
		in := optimem.Values{
			models.StepTokens: tensor.Of(tokens[at:at+n], n), models.StepPositions: tensor.Of(positions, n),
			models.StepBlocks: tensor.Of(blocks, n, graph.Blocks(32)), models.StepWanted: tensor.Of(wanted, n),
		}
		if at == 0 {
			shapes := make(map[string]tensor.Shape)
			for name, x := range in {
				shapes[name] = x.Layout.Shape
			}
			p, err := session.Plan(t.Context(), shapes)
			if err != nil {
				t.Fatal(err)
			}
			least = p.MinBytes
		}
		out, err := session.Run(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		logits = append(logits, out[models.StepLogits].Data...)
		at += n
	}
	m := session.Metrics()
	return logits, m.ExpertHits + m.ExpertReads, least
}

// TestEncodedExpertsLent: experts of MXFP4 are lent as the blocks that they are, and give the same bits.
func TestEncodedExpertsLent(t *testing.T) {
	tokens := []int64{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8}
	ckpt := func() *loader.Checkpoint { return ossFolder(t, ossWeights(t, true), mxfp4) }
	want, none, _ := stepLogits(t, ckpt(), tokens, optimem.Options{Mode: plan.Resident})
	_, _, least := stepLogits(t, ckpt(), tokens, optimem.Options{Mode: plan.Page})
	if none != 0 {
		t.Error("experts are lent where all is in memory")
	}
	for _, budget := range []int64{least, least + 6<<10, least + 20<<10, least + 50<<10} {
		got, lent, _ := stepLogits(t, ckpt(), tokens, optimem.Options{Mode: plan.Page, Memory: budget})
		if !bytes.Equal(got, want) || lent == 0 {
			t.Errorf("%d bytes: same bits %v, %d experts lent", budget, bytes.Equal(got, want), lent)
		}
	}
}

// TestGGUFExpertsLent: experts of GGUF files, three slices each, are lent, and give the same bits.
func TestGGUFExpertsLent(t *testing.T) {
	all := readGGUFCases(t)
	tried := 0
	for i := range all.Cases {
		c := &all.Cases[i]
		if _, ok := c.Keys[fmt.Sprint(c.Keys["general.architecture"])+".expert_count"]; !ok {
			continue
		}
		if _, shared := c.Keys[fmt.Sprint(c.Keys["general.architecture"])+".attention.head_count_kv"].([]any); shared {
			continue // which keep states, too, and are stepped through elsewhere
		}
		tried++
		ckpt, err := loader.Open(c.file(t, all.Masks))
		if err != nil {
			t.Fatal(err)
		}
		defer ckpt.Close()
		tokens := []int64{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8}
		want, _, _ := stepLogits(t, ckpt, tokens, optimem.Options{Mode: plan.Resident})
		_, _, least := stepLogits(t, ckpt, tokens, optimem.Options{Mode: plan.Page})
		for _, budget := range []int64{least, least * 5 / 4} {
			got, lent, _ := stepLogits(t, ckpt, tokens, optimem.Options{Mode: plan.Page, Memory: budget})
			if !bytes.Equal(got, want) || lent == 0 {
				t.Errorf("%s in %d bytes: same bits %v, %d experts lent", c.Name, budget, bytes.Equal(got, want), lent)
			}
		}
	}
	if tried == 0 {
		t.Error("no file has experts")
	}
}
