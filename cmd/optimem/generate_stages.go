//go:build !noserve && !files

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/pipeline"
	"github.com/optimem/optimem/runtime"
)

// remote has the passes of an engine run over stages, nil where none are named. With several sequences the devices of --device
// are stages, too.
func (w *writing) remote(sequences int) (generate.OpenRemote, error) {
	w.staged = nil
	if len(w.Stages.Devices) > 0 {
		return w.overDevices()
	}
	if list := deviceList(w.Device); w.Stages.List == "" && len(list) > 1 {
		if stages, err := w.staging(list, sequences); err != nil || stages {
			return w.over(list), err
		}
	}
	if w.Stages.List == "" {
		return nil, nil
	}
	opts, err := w.StageOptions()
	if err != nil {
		return nil, err
	}
	if w.draft != "" || w.routing != "" {
		return nil, w.Usage("", "--draft and --routing are for one machine, and --stages names others")
	}
	return func(ctx context.Context, m generate.RemoteModel) (generate.Remote, error) {
		opts.Steps, opts.Typical = &m.Steps, m.Least
		p, err := pipeline.Open(ctx, m.Model, m.Largest, opts)
		if err != nil {
			return nil, err
		}
		w.staged = stagedOf(p.Plan(), opts.Stages)
		return p, nil
	}, nil
}

// overDevices has the passes of an engine run over devices of this machine, as many at once as keep all of them busy. Each has
// the memory that the flags say.
func (w *writing) overDevices() (generate.OpenRemote, error) {
	s := &w.Stages
	if name := w.unstaged(); name != "" || w.Cmd.Flags().Changed("device") {
		return nil, w.Usage("", "--%s does not go with --stage-device", cmp.Or(name, "device"))
	}
	if len(s.Devices) < 2 {
		return nil, w.Usage("for instance --stage-device cuda:0 --stage-device cuda:1", "--stage-device is given for two devices or more")
	}
	return w.over(s.Devices), nil
}

// over has the passes of an engine run over these devices.
func (w *writing) over(devices []string) generate.OpenRemote {
	sessions := make([]runtime.Options, len(devices))
	for i, name := range devices {
		here := w.Run
		here.Device = name
		sessions[i] = here.Options(nil, 0)
	}
	at := w.Stages.At
	return func(ctx context.Context, m generate.RemoteModel) (generate.Remote, error) {
		d, err := pipeline.OpenDevices(ctx, m.Model, m.Largest, sessions, pipeline.Options{
			At: at, Steps: &m.Steps, Typical: m.Least, Slower: true,
		})
		if err != nil {
			return nil, err
		}
		w.staged = stagedOf(d.Plan(), devices)
		return d, nil
	}
}

// overDevices has the passes of an engine run over devices, each with a session of these options.
func overDevices(devices []string, opts runtime.Options) generate.OpenRemote {
	sessions := make([]runtime.Options, len(devices))
	for i, name := range devices {
		sessions[i] = opts
		sessions[i].Device = name
	}
	return func(ctx context.Context, m generate.RemoteModel) (generate.Remote, error) {
		d, err := pipeline.OpenDevices(ctx, m.Model, m.Largest, sessions,
			pipeline.Options{Steps: &m.Steps, Typical: m.Least, Slower: true})
		if err != nil {
			return nil, err
		}
		return d, nil
	}
}

// deviceList are the devices that --device names.
func deviceList(text string) []string {
	var list []string
	for part := range strings.SplitSeq(text, ",") {
		kind, _, _ := strings.Cut(part, ":")
		if kind == "cpu" || kind == "cuda" || kind == "emu" || len(list) == 0 {
			list = append(list, part)
			continue
		}
		list[len(list)-1] += "," + part // a setting of an emulated one
	}
	return list
}

// staging reports whether the devices of --device are to be stages: where several texts keep all of them busy and nothing is asked
// for that stages do not have. GPUs of one session compute one after the other; other devices cannot be in one.
func (w *writing) staging(devices []string, sequences int) (bool, error) {
	other := slices.ContainsFunc(devices, func(name string) bool { return !strings.HasPrefix(name, "cuda") })
	name := w.unstaged()
	switch {
	case other && name != "":
		return false, w.Usage("", "--%s does not go with several devices that are no GPUs", name)
	case other:
		return true, nil
	}
	return sequences > 1 && name == "" && w.branches <= 1 && len(w.images) == 0, nil
}

// unstaged is a flag that was given and that stages of this machine have no use for, "" where there is none.
func (w *writing) unstaged() string {
	for _, name := range []string{"stages", "draft", "routing", "lora", "adapter", "link", "stage-token", "tls-ca"} {
		if f := w.Cmd.Flags().Lookup(name); f != nil && f.Changed {
			return name
		}
	}
	return ""
}

// stagedOf is what is said of a model that is divided.
func stagedOf(p *pipeline.Plan, names []string) *staged {
	s := &staged{seconds: p.PassSeconds(), interval: p.IntervalSeconds()}
	for i := range p.Stages {
		f := &p.Stages[i].Forecast
		s.peaks = append(s.peaks, fmt.Sprintf("%s on %s", ascii.FormatSize(f.PeakBytes), names[i]))
		s.movedBytes += f.MovedBytes
	}
	return s
}
