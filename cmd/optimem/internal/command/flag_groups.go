package command

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagGroup is the annotation of a flag that says under which heading its help is.
const FlagGroup = "optimem_group"

// The headings, in their order. What has none comes last, under a heading of its own.
const (
	InputGroup    = "Inputs"
	WritingGroup  = "Text"
	SamplingGroup = "Sampling"
	OutputGroup   = "Outputs"
	ModelGroup    = "Model"
	MemoryGroup   = "Mode and memory"
	DeviceGroup   = "Device"
	MeasureGroup  = "Measuring"
	ListenGroup   = "Listening"
	QueueGroup    = "Requests"
	WorkGroup     = "Queue of work"
	StagesGroup   = "Several machines"
)

var flagGroups = []string{WorkGroup, ListenGroup, QueueGroup, InputGroup, WritingGroup, SamplingGroup, OutputGroup, ModelGroup, MemoryGroup, DeviceGroup, StagesGroup, MeasureGroup}

// Grouped puts flags of a command under a heading.
func Grouped(flags *pflag.FlagSet, heading string, names ...string) {
	for _, name := range names {
		if err := flags.SetAnnotation(name, FlagGroup, []string{heading}); err != nil {
			panic("BUG: " + err.Error())
		}
	}
}

// A helpGroup is a heading with flags.
type helpGroup struct {
	Heading string
	Flags   *pflag.FlagSet
}

// groupsOf returns the flags of a command under their headings. Where no flag has one, all are under "Flags".
func groupsOf(flags *pflag.FlagSet) []helpGroup {
	rest := helpGroup{"Flags", pflag.NewFlagSet("", pflag.ContinueOnError)}
	sets := make(map[string]*pflag.FlagSet)
	add := func(set *pflag.FlagSet, f *pflag.Flag) {
		set.SortFlags = false
		set.AddFlag(f)
	}
	flags.VisitAll(func(f *pflag.Flag) {
		heading := f.Annotations[FlagGroup]
		if len(heading) == 0 {
			add(rest.Flags, f)
			return
		}
		if sets[heading[0]] == nil {
			sets[heading[0]] = pflag.NewFlagSet("", pflag.ContinueOnError)
		}
		add(sets[heading[0]], f)
	})
	var groups []helpGroup
	for _, heading := range flagGroups {
		if set := sets[heading]; set != nil && set.HasAvailableFlags() {
			groups = append(groups, helpGroup{heading, set})
		}
	}
	if !rest.Flags.HasAvailableFlags() {
		return groups
	}
	if len(groups) > 0 {
		rest.Heading = "Others"
	}
	return append(groups, rest)
}

func init() { cobra.AddTemplateFunc("groupsOf", groupsOf) }
