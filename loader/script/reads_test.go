package script

import "testing"

// TestReads: an attribute is read wherever an expression looks at it, and not where it is set.
func TestReads(t *testing.T) {
	p := parse(t, `class M(Module):
  a : Tensor
  def forward(self: __torch__.M, x: Tensor) -> Tensor:
    self.only_set = x
    (self.owner).also_set = x
    if bool(self.cond):
      for i in range(self.count):
        y = torch.add(self.first, 1)
    else:
      while bool(self.loop):
        y = torch.add(x, 1, alpha=self.named)
      with self.context:
        pass
    z = [self.inner, (self.left)[0], (x)[0:self.high]]
    d = {self.key: (self.entry, annotate(Tensor, self.noted))}
    self.copied_to = unchecked_cast(Tensor, self.copied)
    _0 = (self).method(x, )
    return self.result
def f(o: __torch__.M) -> Tensor:
  return o.outside
`)
	for _, name := range []string{
		"owner", "cond", "count", "first", "loop", "named", "context", "inner", "left", "high", "key", "entry", "noted", "copied",
		"method", "result", "outside",
	} {
		if !p.Reads(name) {
			t.Errorf("%s is not read", name)
		}
	}
	for _, name := range []string{"only_set", "also_set", "copied_to", "a", "nowhere"} {
		if p.Reads(name) {
			t.Errorf("%s is read", name)
		}
	}
}
