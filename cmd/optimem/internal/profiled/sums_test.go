package profiled

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
)

// TestProfileAddsUp: the program's ops, what they waited for and the rest are the run, in the table, in JSON and over
// the picture's width, also where the medians of the parts come to more than the median of the runs.
func TestProfileAddsUp(t *testing.T) {
	p := heavy(t, search.Options{Mode: plan.Page})
	for _, runs := range [][]float64{{0.05, 0.09}, {0.001, 0.002}} {
		measured := told(p)
		for i := range measured.facts {
			measured.facts[i].Seconds = runs[i]
		}
		d := New(p, measured, About{Mode: "page", Device: "cpu", Threads: 1})
		var out bytes.Buffer
		if err := d.WriteJSON(&out); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Seconds float64 `json:"seconds_median"`
			Other   float64 `json:"other_seconds"`
			Modules []jsonModule
		}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		ops, waited := got.Modules[0].Seconds, got.Modules[0].StallSeconds
		wantOther := max((runs[0]+runs[1])/2-ops-waited, 0)
		if math.Abs(got.Other-wantOther) > 1e-12 || math.Abs(ops+waited+got.Other-got.Seconds) > 1e-12 || waited == 0 {
			t.Errorf("%g s in ops, %g s waiting and %g s other of %g s, want %g s other", ops, waited, got.Other, got.Seconds, wantOther)
		}
		var text strings.Builder
		if err := d.WriteText(&text, AutoDepth); err != nil {
			t.Fatal(err)
		}
		waiting, other := strings.Contains(text.String(), "\n(waiting) "), strings.Contains(text.String(), "\n(other) ")
		if !waiting || other != (wantOther > 0) {
			t.Errorf("rows for what was waited for: %t, for the rest: %t, of which there are %g s", waiting, other, wantOther)
		}
		var page profilePage
		d.drawModules(&page, d.spans())
		end := 0.0
		for _, b := range page.Boxes {
			end = max(end, b.X+b.W)
			if b.Class == "other" && math.Abs(b.W/drawingWidth-wantOther/got.Seconds) > 1e-9 {
				t.Errorf("the rest is drawn over %g of %g, and is %g of %g s", b.W, drawingWidth, wantOther, got.Seconds)
			}
		}
		if math.Abs(end-drawingWidth) > 1e-6 {
			t.Errorf("the picture ends at %g of %g", end, drawingWidth)
		}
	}
}
