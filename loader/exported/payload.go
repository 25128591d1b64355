package exported

import (
	"io"

	"github.com/optimem/optimem/loader/internal/fault"
)

// A Payload is one entry of the lists of weights and constants that lie beside a program in its archive.
type Payload struct {
	// Name is the full path of the parameter, buffer or constant.
	Name string
	// Path is the record's name within its folder; entries that share it share their storage.
	Path string
	// Param tells parameters from buffers.
	Param bool
	// Pickled says that the record is a torch.save file or a pickled object and not the bytes of a storage.
	Pickled bool
	// Meta describes the tensor; nil for objects that are none. Its DType may be Invalid.
	Meta *TensorMeta
}

// DecodePayloads reads a list of weights or constants, in the order of the file.
func DecodePayloads(r io.Reader, o Options) ([]Payload, error) {
	const payloadBytes = 80
	d := newDecoder(r, o)
	d.anyDType = true
	var payloads []Payload
	err := d.Object(func(key string) error {
		if key != "config" {
			return nil
		}
		return d.Object(func(name string) error {
			if err := d.charge(1, 2*payloadBytes); err != nil {
				return err
			}
			p := Payload{Name: name}
			err := d.Object(func(key string) (err error) {
				switch key {
				case "path_name":
					p.Path, err = d.String()
				case "is_param":
					p.Param, err = d.Bool()
				case "use_pickle":
					p.Pickled, err = d.Bool()
				case "tensor_meta":
					if null, err := d.IsNull(); err != nil || null {
						return err
					}
					p.Meta, err = d.tensorMeta()
				}
				return err
			})
			switch {
			case err != nil:
				return err
			case p.Path == "":
				return d.Errorf(fault.ErrFormat, "an entry without a path_name")
			case p.Meta == nil && !p.Pickled:
				return d.Errorf(fault.ErrFormat, "raw bytes without a tensor_meta")
			}
			payloads = append(payloads, p)
			return nil
		})
	})
	if err == nil {
		err = d.End()
	}
	return payloads, err
}

// DecodeVersion reads only the schema version of a program. Where [Decode] fails it tells a damaged program from one
// of a newer schema, which states its version after its graph.
func DecodeVersion(r io.Reader, o Options) (Version, error) {
	d := newDecoder(r, o)
	var v Version
	err := d.Object(func(key string) (err error) {
		if key == "schema_version" {
			v, err = d.version()
		}
		return err
	})
	return v, err
}
