//go:build !files

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/pflag"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/heard"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// hear looks at what is asked of a sound: for a model that writes what was spoken the prompt is the file of one.
func (g *generating) hear() error {
	if d := g.text.Defaults(); len(g.args) > 0 && (d.Speech != nil || d.Pictures) {
		if err := g.soundArgument(); err != nil {
			return err
		}
	}
	if g.sound == "" && (g.language != "" || g.task != "") {
		return g.Usage("", "--language and --task are for sounds")
	}
	return nil
}

// soundArgument takes PROMPT for the file of a sound.
func (g *generating) soundArgument() error {
	if _, err := os.Stat(g.args[0]); err != nil {
		if g.text != nil && g.text.Defaults().Pictures {
			return g.Usage("give a picture", "the model writes of a picture, and %.80q is no file", g.args[0])
		}
		return g.Usage("give a WAV file, or with --sound the features of one", "the model reads a sound, and %.80q is no file", g.args[0])
	}
	g.sound, g.args = g.args[0], nil
	return nil
}

// listened opens the sound, has it read, and says what of it is left out.
func (g *generating) listened(read func(f *os.File) (generate.Heard, error)) (err error) {
	f, err := os.Open(g.sound)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, f.Close()) }()
	h, err := read(f)
	if err == nil && h.Read < h.Seconds {
		g.Say("note", fmt.Sprintf("the sound has %.1f s, and the model reads the first %.1f: what comes after is left out", h.Seconds, h.Read))
	}
	return soundError(g.sound, err)
}

// source reads a picture; or a sound: a WAV file, or features in a file of NumPy's.
func (g *generating) source(ctx context.Context) (source *generate.Source, err error) {
	if g.text.Defaults().Pictures {
		values, err := g.pixels(ctx, g.sound)
		return &generate.Source{Features: values}, err
	}
	return source, g.listened(func(f *os.File) (h generate.Heard, err error) {
		if !heard.IsFeatures(f) {
			source, h, err = g.text.Sound(bufio.NewReader(f))
			return h, err
		}
		features, err := heard.Features(f)
		var kind *heard.KindError
		if errors.As(err, &kind) {
			return h, g.Usage("features are float32 [bins, times], as WhisperFeatureExtractor gives them", "%s %v", g.sound, kind)
		}
		source = &generate.Source{Features: features}
		return h, err
	})
}

// soundError gives an error about a sound its exit code and hint.
func soundError(path string, err error) error {
	var wrong *generate.SoundError
	var config *generate.ConfigError
	switch {
	case errors.As(err, &wrong) && wrong.Unsupported:
		return &command.Failure{Err: fmt.Errorf("%s: %w", path, err), Code: command.ExitUnsupported, Hints: []string{
			"ffmpeg -i FILE -ar 16000 -ac 1 speech.wav makes a file that is read",
		}}
	case errors.As(err, &wrong):
		return &command.Failure{Err: fmt.Errorf("%s: %w", path, err), Code: command.ExitUnsafe}
	case errors.As(err, &config):
		return textError(err)
	}
	return err
}

// spell writes what was spoken with a model that says a letter for each moment of a sound: it runs once, as a whole.
func (g *generating) spell(ctx context.Context, letters *generate.Letters) (err error) {
	if err := g.checkSpell(); err != nil {
		return err
	}
	var input *tensor.Tensor
	var h generate.Heard
	if err := g.listened(func(f *os.File) (generate.Heard, error) {
		input, h, err = letters.Sound(bufio.NewReader(f))
		return h, err
	}); err != nil {
		return err
	}
	m, err := g.OpenModel(ctx)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, m.Close()) }()
	shapes := map[string]tensor.Shape{letters.Input: input.Layout.Shape}
	m.In = &running.RunInputs{Values: runtime.Values{letters.Input: input}, Shapes: shapes}
	if err := g.Begin(ctx, m, nil, shapes); err != nil {
		return err
	}
	out, facts, err := m.Pass(ctx)
	if err != nil {
		return err
	}
	text, err := letters.Text(out[letters.Output])
	if err != nil {
		return err
	}
	came := heard.Facts{Text: text, Sound: h.Seconds, Read: h.Read, Seconds: facts.Seconds, Peak: facts.PeakDeviceBytes, Moved: facts.MovedBytes}
	if g.AsJSON {
		return came.Print(g.Stdout)
	}
	if _, err := fmt.Fprintln(g.Stdout, text); err == nil && !g.Quiet {
		g.Say("done", came.String())
	}
	return err
}

// checkSpell refuses flags of how tokens are written, and takes the sound that PROMPT names.
func (g *generating) checkSpell() error {
	var refused error
	g.Cmd.Flags().Visit(func(f *pflag.Flag) {
		writes := slices.ContainsFunc(f.Annotations[command.FlagGroup], func(group string) bool {
			return group == command.WritingGroup || group == command.SamplingGroup || group == command.StagesGroup
		})
		if (writes || f.Name == "logprobs" || f.Name == "routing") && f.Name != "sound" && refused == nil {
			refused = g.Usage("", "--%s is for models that write token by token: this one says letters of a sound (CTC)", f.Name)
		}
	})
	switch {
	case refused != nil || g.sound != "":
		return refused
	case len(g.args) == 0:
		return g.Usage("optimem generate MODEL speech.wav", "the model reads a sound, and none is given")
	}
	return g.soundArgument()
}
