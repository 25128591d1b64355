package main

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// The blocks of kernels/hopper.h: 128 × 256 results by two warpgroups, each warp of which is on a scheduler of its own, 64 terms at a
// time. A product of a warpgroup is of 64 lines, 256 others and 16 terms, which it reads from shared memory.
const (
	hopperLeft, hopperRight, hopperGroups, hopperTerms = 128, 256, 2, 64
	groupLeft, groupTerms                              = 64, 16
	// hopperMultiplications are those of halves of a multiprocessor of an H100 in a cycle, by its maker's papers. What its second cache
	// gives they do not say: a block at full rate asks it for 48 bytes a cycle.
	hopperMultiplications = 4 * 512
	// endRounds is how often a warp goes round at the end.
	endRounds = 32
)

// hopperFamilies are those of wgmma: how many copies a thread that brings factors begins for 64 terms, and a guess of a round's
// instructions at the end, of products without an activation, and of convolutions with a batch norm and something added. Of what brings
// a scheduler has one warp, for products only one of them has.
var hopperFamilies = []struct {
	name                    string
	copies, endInstructions int
}{{"hopper_f16", 2, 60}, {"hopper_bf16", 2, 60}, {"hopper_conv_f16", 17, 100}, {"hopper_conv_bf16", 17, 100}}

// reachesHopper returns the part of wgmma's rate that blocks reach, and what bounds them. bring is the loop of a thread that has the
// factors brought.
func reachesHopper(l, bring *loop, others, endInstructions int) (percent float64, bound string) {
	products := float64(hopperGroups * l.products)
	tensor := products * groupLeft * hopperRight * groupTerms / hopperMultiplications
	read := products * (groupLeft + hopperRight) * groupTerms * 2
	copied := float64(hopperLeft+hopperRight) * hopperTerms * 2
	issue := float64(hopperGroups*l.longest + bring.longest)
	bound, most := "tensor", tensor
	if issue > most {
		bound, most = "issue", issue
	}
	if shared := (read + copied) / 128; shared > most {
		bound, most = "shared", shared
	}
	lots := float64(terms) / hopperTerms
	// One block has room on a multiprocessor: nothing hides its begin and its end.
	whole := lots*most + float64(others)/4 + float64(hopperGroups*endRounds*endInstructions) + firstBytes
	return 100 * lots * tensor / whole, bound
}

// countHopper adds the kernels of wgmma to the list.
func countHopper(dir string, list *strings.Builder, listed map[string]float64) error {
	const capability = 90
	var below []error
	for _, f := range hopperFamilies {
		kernel := "om_" + f.name + "_128"
		text, registers, err := disassembled(dir, f.name, kernel, capability)
		if err != nil {
			return err
		}
		loops, bring := loopsOf(text), bringing(text, f.copies)
		if len(loops) != 1 || bring == nil || registers > 65536/384/8*8 {
			return fmt.Errorf("%s has %d loops of products and %d registers", kernel, len(loops), registers)
		}
		l := loops[0]
		percent, bound := reachesHopper(&l, bring, len(text)-l.all-bring.all, f.endInstructions)
		fmt.Fprintf(list, "%d %s 0 %.0f %s %d %d %d %d\n", capability, kernel, percent, bound, l.longest, l.products,
			l.products*(groupLeft+hopperRight)*groupTerms*2/128, bring.copies)
		if most := listed[place(capability, kernel, 0)]; math.Round(percent) < most {
			below = append(below, fmt.Errorf("%s: %.0f percent, the list says %.0f", place(capability, kernel, 0),
				percent, most))
		}
	}
	return errors.Join(below...)
}

// bringing finds the loop that begins as many copies.
func bringing(text []instruction, copies int) *loop {
	var found *loop
	for end, i := range text {
		for begin := range end {
			if text[begin].at != i.target {
				continue
			}
			if l := longestWay(text[begin : end+1]); l.copies == copies && (found == nil || l.all < found.all) {
				found = &l
			}
		}
	}
	return found
}
