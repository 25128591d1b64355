package pipeline

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// localBytes is about what passes between two stages of one process in a second: a guess.
const localBytes = 4e9

// Devices is a pipeline over the devices of this machine: each is a stage of this process. Several passes
// are under way, so that several devices compute at once, where a session over several GPUs ([runtime.Options.Device]) has one computing at a time.
type Devices struct {
	*Pipeline
	stages []*Stage
	stop   func() error
}

// OpenDevices divides a model over devices, one for each of the options of a session, and runs passes. Opts say how the model
// is divided: its stages, token and TLS are not for the caller to say.
func OpenDevices(
	ctx context.Context, model *models.Model, shapes map[string]tensor.Shape, devices []runtime.Options, opts Options,
) (_ *Devices, err error) {
	token := make([]byte, 32)
	if _, err := rand.Read(token); err != nil {
		return nil, err
	}
	serving, cancel := context.WithCancel(context.Background())
	var stages sync.WaitGroup
	d := &Devices{stop: func() error {
		cancel()
		stages.Wait()
		return nil
	}}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.stop())
		}
	}()
	opts.Stages, opts.Token, opts.TLS = nil, token, nil
	if opts.LinkBytes == 0 {
		opts.LinkBytes = localBytes
	}
	for _, session := range devices {
		stage, err := NewStage(ctx, model, StageOptions{Session: session, Token: token})
		if err != nil {
			return nil, err
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		opts.Stages, d.stages = append(opts.Stages, listener.Addr().String()), append(d.stages, stage)
		stages.Go(func() { _ = stage.Serve(serving, listener) }) // it ends when it is told to
	}
	if d.Pipeline, err = Open(ctx, model, shapes, opts); err != nil {
		return nil, err
	}
	return d, nil
}

// Metrics tells what the session of each device did, in their order.
func (d *Devices) Metrics() []runtime.Metrics {
	list := make([]runtime.Metrics, len(d.stages))
	for i, stage := range d.stages {
		list[i] = stage.Metrics()
	}
	return list
}

// Close ends the passes and the stages.
func (d *Devices) Close() error { return errors.Join(d.Pipeline.Close(), d.stop()) }
