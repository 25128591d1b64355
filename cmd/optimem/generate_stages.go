//go:build !noserve && !files

package main

import (
	"context"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/pipeline"
	"github.com/optimem/optimem/runtime"
)

// remote has the passes of an engine run over stages, nil where none are named.
func (w *writing) remote() (func(context.Context, generate.RemoteModel) (generate.Remote, error), error) {
	if len(w.Stages.Devices) > 0 {
		return w.overDevices()
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
		return p, nil
	}, nil
}

// overDevices has the passes of an engine run over devices of this machine, as many at once as keep all of them busy. Each has
// the memory that the flags say.
func (w *writing) overDevices() (func(context.Context, generate.RemoteModel) (generate.Remote, error), error) {
	s := &w.Stages
	for _, name := range []string{"stages", "device", "draft", "routing", "lora", "adapter", "link", "stage-token", "tls-ca"} {
		if f := w.Cmd.Flags().Lookup(name); f != nil && f.Changed {
			return nil, w.Usage("", "--%s does not go with --stage-device", name)
		}
	}
	if len(s.Devices) < 2 {
		return nil, w.Usage("for instance --stage-device cuda:0 --stage-device cuda:1", "--stage-device is given for two devices or more")
	}
	sessions := make([]runtime.Options, len(s.Devices))
	for i, name := range s.Devices {
		here := w.Run
		here.Device = name
		sessions[i] = here.Options(nil, 0)
	}
	at := s.At
	return func(ctx context.Context, m generate.RemoteModel) (generate.Remote, error) {
		return pipeline.OpenDevices(ctx, m.Model, m.Largest, sessions, pipeline.Options{
			At: at, Steps: &m.Steps, Typical: m.Least, Slower: true,
		})
	}, nil
}
