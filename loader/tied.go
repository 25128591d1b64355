package loader

import "strings"

// metadataFormat is the key of a file's metadata under which libraries keep the name of a framework ("pt").
const metadataFormat = "format"

// addTied adds the tensors that safetensors.torch.save_model left out because they share all of their memory with one
// that it kept: the metadata have the name of each, with the name that was kept. Such a tensor is the kept one by
// another name. As metadata are any texts, an entry counts only where no tensor has the first name and one has the
// second; a name that was left out stands for no other, so that entries cannot lead in circles.
//
// save_model does not write how a tensor that was left out views the memory: one that was the transpose of the kept
// one, or a part of it, cannot be told from the whole.
func (o *opener) addTied(ckpt *Checkpoint, prefixes ...string) error {
	stored := len(ckpt.Weights)
	taken := make(map[string]bool, len(ckpt.Unreadable))
	for _, e := range ckpt.Unreadable {
		taken[e.Record] = true
	}
	for _, v := range ckpt.Values {
		for _, prefix := range prefixes {
			name, ok := strings.CutPrefix(v.Name, prefix)
			kept, known := ckpt.byName[v.Text]
			if !ok || !known || kept >= stored || name == metadataFormat || taken[name] {
				continue
			}
			if _, there := ckpt.byName[name]; there {
				continue
			}
			if err := o.meter.Charge(safetensorsTensorCost); err != nil {
				return err
			}
			w := ckpt.Weights[kept]
			w.Name = name
			if err := ckpt.addWeight(w); err != nil {
				return err
			}
		}
	}
	return nil
}
