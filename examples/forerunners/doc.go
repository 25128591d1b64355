// Package forerunners does with optimem what the examples of the projects that it learnt from do: Koila's batch that fits,
// pytorch_memlab's reports and its courtesy, pytorch-optimem's two modes. The examples of toma are those of package adapt.
//
// docs/forerunners.md puts both sides beside each other.
package forerunners
