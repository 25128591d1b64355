package torchscript

import (
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader/script"
	"github.com/optimem/optimem/tensor"
)

// detectorFuncs are functions of torchvision's detectors whose code asks data for sizes, or goes through what data counts one by
// one, by their names in torchvision. They are computed here for all at once. ok is unset where the code does: it needs no data.
var detectorFuncs map[string]func(m *machine, vars map[string]any) (v any, ok bool)

func init() { // they call functions of the program, which look for themselves here
	const heads = "torchvision.models.detection.roi_heads."
	detectorFuncs = map[string]func(m *machine, vars map[string]any) (v any, ok bool){
		"torchvision.ops.boxes.batched_nms":       (*machine).batchedNMS,
		heads + "paste_masks_in_image":            (*machine).pasteMasks,
		heads + "_onnx_paste_masks_in_image_loop": (*machine).pasteMasksTraced,
		heads + "heatmaps_to_keypoints":           (*machine).keypoints,
		heads + "_onnx_heatmaps_to_keypoints_loop": func(m *machine, vars map[string]any) (any, bool) {
			h := heatmaps{
				"maps": nil, "widths_ceil": nil, "heights_ceil": nil, "widths": nil, "heights": nil, "offset_x": nil,
				"offset_y": nil,
			}
			for name := range h {
				h[name] = vars[name]
			}
			return m.peaks(h), true
		},
	}
}

// ofDetector calls one of these functions in the place of fn.
func (m *machine) ofDetector(fn *script.Function, vars map[string]any) (v any, ok bool) {
	name, is := strings.CutPrefix(fn.Name, "__torch__.torchvision.")
	if !is {
		return nil, false
	}
	f := detectorFuncs["torchvision."+unmangled(name)]
	if f == nil {
		return nil, false
	}
	m.pos = fn.Pos()
	return f(m, vars)
}

// unmangled returns a name as it was before two of one name were in a program.
func unmangled(name string) string {
	parts := strings.Split(name, ".")
	kept := parts[:0]
	for _, p := range parts {
		if !strings.HasPrefix(p, "___torch_mangle_") {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, ".")
}

// fewBoxes is how many numbers boxes may have that batched_nms puts side by side in one plane.
const fewBoxes = 4000

// batchedNMS goes one of two ways by the number of boxes.
func (m *machine) batchedNMS(vars map[string]any) (any, bool) {
	boxes, ok := vars["boxes"].(layers.Tensor)
	if !ok {
		return nil, false
	}
	var many any
	switch n := m.elementCount(boxes).(type) {
	case int:
		many = n > fewBoxes
	default:
		many = m.counts("aten::gt", []any{n, fewBoxes})
	}
	if many == any(false) {
		return nil, false
	}
	return m.op("optimem::batched_nms", []any{boxes, vars["scores"], vars["idxs"], vars["iou_threshold"], fewBoxes / 4},
		nil), true
}

// pasteMasks is paste_masks_in_image, of which the program itself makes masks and boxes larger.
func (m *machine) pasteMasks(vars map[string]any) (any, bool) {
	masks, ok := vars["masks"].(layers.Tensor)
	size, isTuple := vars["img_shape"].(*tuple)
	if !ok || !isTuple || len(size.elems) != 2 {
		return nil, false
	}
	if d, _ := m.rows(masks); d != 0 {
		return nil, false
	}
	wider := m.detectorFunc("expand_masks")
	larger := m.detectorFunc("expand_boxes")
	if wider == nil || larger == nil {
		return nil, false
	}
	both, ok := m.call(wider, []any{masks, vars["padding"]}, nil, nil).(*tuple)
	if !ok || len(both.elems) != 2 {
		return nil, false
	}
	boxes := m.call(larger, []any{vars["boxes"], both.elems[1]}, nil, nil)
	boxes = m.function("aten::to", []any{boxes, m.dtypeNumber(tensor.Int64)}, nil)
	pasted := m.pasted(both.elems[0], boxes, size.elems[0], size.elems[1])
	return m.op("aten::unsqueeze", []any{pasted, 1}, nil), true
}

// detectorFunc returns a function of the program in the module of roi heads.
func (m *machine) detectorFunc(name string) *script.Function {
	return m.program.Functions["__torch__.torchvision.models.detection.roi_heads."+name]
}

// pasteMasksTraced is what traces call, with masks and boxes that are larger already.
func (m *machine) pasteMasksTraced(vars map[string]any) (any, bool) {
	masks, ok := vars["masks"].(layers.Tensor)
	if !ok {
		return nil, false
	}
	if d, _ := m.rows(masks); d != 0 {
		return nil, false
	}
	return m.pasted(masks, vars["boxes"], vars["im_h"], vars["im_w"]), true
}

// pasted returns pictures with each mask [N 1 H W] interpolated to its box, which is of integers, and nothing around it: a product
// of what each row and each column of a picture takes of those of the mask.
func (m *machine) pasted(masks, boxes, height, width any) any {
	t, ok := masks.(layers.Tensor)
	if !ok || len(t.Shape()) != 4 || !isFloat(t.DType()) {
		m.fail("masks are %s", m.text(masks))
	}
	side := func(k int) any { return m.op("aten::select", []any{boxes, 1, k}, nil) }
	down := m.taken(side(1), side(3), m.wholeNumber(height), t.Shape()[2], t.DType())
	across := m.taken(side(0), side(2), m.wholeNumber(width), t.Shape()[3], t.DType())
	plane := m.op("aten::select", []any{masks, 1, 0}, nil)
	rows := m.op("aten::matmul", []any{down, plane}, nil)
	return m.op("aten::matmul", []any{rows, m.op("aten::transpose", []any{across, 1, 2}, nil)}, nil)
}

// wholeNumber returns a number that may be a tensor of known contents.
func (m *machine) wholeNumber(v any) int {
	if t, ok := v.(layers.Tensor); ok {
		n, known := m.item(t)
		if !known {
			m.unsupported("the size of a picture", onData)
		}
		v = n
	}
	n, ok := v.(int)
	if !ok {
		m.fail("the size of a picture is %s", kindOf(v))
	}
	return n
}

// taken returns how much of each of n elements, interpolated linearly to the places low to high, is at each of size places:
// [N size n]. Outside of them it is nothing.
func (m *machine) taken(low, high any, size, n int, d tensor.DType) any {
	op := func(name string, args ...any) any { return m.op("aten::"+name, args, nil) }
	number := m.dtypeNumber(d)
	arange := func(n int) any {
		return m.op("aten::arange", []any{n}, map[string]any{"dtype": m.dtypeNumber(tensor.Int64)})
	}
	low = op("unsqueeze", low, 1)
	length := op("clamp", op("add", op("sub", op("unsqueeze", high, 1), low), 1), 1)
	place := op("sub", op("unsqueeze", arange(size), 0), low)
	inside := op("logical_and", op("ge", place, 0), op("lt", place, length))
	scale := op("mul", op("reciprocal", op("to.dtype", length, number)), float64(n))
	from := op("sub", op("mul", op("add", op("to.dtype", place, number), 0.5), scale), 0.5)
	from = op("unsqueeze", op("clamp", from, 0, n-1), 2)
	elements := op("unsqueeze", op("to.dtype", op("unsqueeze", arange(n), 0), number), 0)
	near := op("relu", op("rsub", op("abs", op("sub", from, elements)), 1))
	return op("mul", near, op("to.dtype", op("unsqueeze", inside, 2), number))
}

// heatmaps are the arguments of the loop over heatmaps, by torchvision's names of them.
type heatmaps map[string]any

// keypoints is heatmaps_to_keypoints.
func (m *machine) keypoints(vars map[string]any) (any, bool) {
	maps, ok := vars["maps"].(layers.Tensor)
	if !ok {
		return nil, false
	}
	if d, _ := m.rows(maps); d != 0 {
		return nil, false
	}
	op := func(name string, args ...any) any { return m.op("aten::"+name, args, nil) }
	side := func(k int) any { return op("select", vars["rois"], 1, k) }
	widths := op("clamp", op("sub", side(2), side(0)), 1)
	heights := op("clamp", op("sub", side(3), side(1)), 1)
	found := m.peaks(heatmaps{
		"maps": maps, "widths": widths, "heights": heights, "widths_ceil": op("ceil", widths),
		"heights_ceil": op("ceil", heights),
		"offset_x":     side(0), "offset_y": side(1),
	})
	found.elems[0] = op("permute", found.elems[0], &list{elems: []any{0, 2, 1}})
	return found, true
}

// peaks returns where keypoints are, [N 3 K], and how much is there, [N K].
func (m *machine) peaks(h heatmaps) *tuple {
	op := func(name string, args ...any) any { return m.op("aten::"+name, args, nil) }
	places, ok := m.op("optimem::heatmap_peaks", []any{h["maps"], h["heights_ceil"], h["widths_ceil"]}, nil).(*tuple)
	if !ok || len(places.elems) != 3 {
		m.fail("BUG: heatmap_peaks has three results")
	}
	number := m.dtypeNumber(tensor.Float32)
	along := func(place any, size, ceil, offset string) any {
		one := op("unsqueeze", op("div", h[size], h[ceil]), 1)
		at := op("mul", op("add", op("to.dtype", place, number), 0.5), one)
		return op("add", at, op("unsqueeze", h[offset], 1))
	}
	x := along(places.elems[1], "widths", "widths_ceil", "offset_x")
	y := along(places.elems[0], "heights", "heights_ceil", "offset_y")
	all := op("stack", &list{elems: []any{x, y, op("ones_like", x)}}, 1)
	return &tuple{elems: []any{all, places.elems[2]}}
}
