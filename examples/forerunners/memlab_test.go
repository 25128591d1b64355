package forerunners

import (
	"context"
	"fmt"
	"log"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/memory"
	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
)

// report runs a model once, held whole, and prints its weights as MemReporter does: what each takes as the checkpoint has it,
// and with which other it shares bytes.
func report(model *models.Model, input optimem.Values) {
	ctx := context.Background()
	session, err := optimem.Resident(ctx, model, optimem.ResidentOptions{Device: "emu:memory=64MiB"})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	if _, err := session.Run(ctx, input); err != nil {
		log.Fatal(err)
	}
	r, err := session.Memory(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, device := range r.Devices {
		if device.HeldBytes == 0 || device.Name == "host" {
			continue
		}
		sum := device.StorageBytes()
		for _, rest := range device.Rest {
			sum += rest.Bytes
		}
		storages := slices.DeleteFunc(device.Storages, func(s memory.Storage) bool {
			return s.Kind != memory.Weight && s.Kind != memory.Packed
		})
		slices.SortFunc(storages, func(a, b memory.Storage) int { return strings.Compare(a.Name, b.Name) })
		for _, s := range storages {
			shared := ""
			if s.SharedWith != "" {
				shared = " (->" + s.SharedWith + ")"
			}
			fmt.Println(s.Name, s.Shape, s.UsedBytes, "bytes"+shared)
		}
		fmt.Println("all of it is accounted for:", sum == device.HeldBytes)
	}
}

// The first report of pytorch_memlab's README:
//
//	linear = torch.nn.Linear(1024, 1024).cuda()
//	reporter = MemReporter()
//	reporter.report()
func Example_memlabLinear() {
	model, done := network(of("linear", layers.Sequential(layers.Linear(1024, 1024)), 1024))
	defer done()
	report(model, optimem.Values{"input": ramp(512, 1024)})
	// Output:
	// 0.bias [1024] 4096 bytes
	// 0.weight [1024 1024] 4194304 bytes
	// all of it is accounted for: true
}

// The second: two layers that share a weight, which takes memory once.
//
//	linear2 = torch.nn.Linear(1024, 1024).cuda()
//	linear2.weight = linear.weight
//	container = torch.nn.Sequential(linear, linear2)
func Example_memlabShared() {
	a := of("shared", layers.Sequential(layers.Linear(1024, 1024), layers.Linear(1024, 1024)), 1024)
	a.Weights = map[string]string{"1.weight": "0.weight"}
	model, done := network(a)
	defer done()
	report(model, optimem.Values{"input": ramp(512, 1024)})
	// Output:
	// 0.bias [1024] 4096 bytes
	// 0.weight [1024 1024] 4194304 bytes
	// 1.bias [1024] 4096 bytes
	// all of it is accounted for: true
}

// The third: the weights of an LSTM, which memlab shows as parts of one flattened storage on a GPU.
//
//	lstm = torch.nn.LSTM(1024, 1024).cuda()
func Example_memlabLSTM() {
	model, done := network(of("lstm", layers.LSTM(1024, 1024, layers.BatchFirst), 4, 1024))
	defer done()
	report(model, optimem.Values{"input": ramp(2, 4, 1024)})
	// Output:
	// bias_hh_l0 [4096] 16384 bytes
	// bias_ih_l0 [4096] 16384 bytes
	// weight_hh_l0 [4096 1024] 16777216 bytes
	// weight_ih_l0 [4096 1024] 16777216 bytes
	// all of it is accounted for: true
}

// Memlab's Courtesy lends the memory of a model to others and takes it back:
//
//	ctsy = Courtesy()
//	for i in range(num_iteration):
//	    ctsy.yield_memory(); …; ctsy.restore(); run(model)
func Example_memlabCourtesy() {
	model, done := network(of("linear", layers.Sequential(layers.Linear(1024, 1024)), 1024))
	defer done()
	ctx := context.Background()
	session, err := optimem.Resident(ctx, model, optimem.ResidentOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	held := func() (bytes int64) {
		m := session.Metrics()
		return m.WeightBytes + m.RingBytes + m.ActivationBytes + m.WorkBytes
	}
	input := optimem.Values{"input": ramp(8, 1024)}
	first, err := session.Run(ctx, input)
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		fmt.Println("holds the weights:", held() >= 4<<20)
		if err := session.GiveBack(ctx); err != nil {
			log.Fatal(err)
		}
		fmt.Println("lent to others:", held(), "bytes held")
		again, err := session.Run(ctx, input)
		if err != nil {
			log.Fatal(err)
		}
		for name := range first {
			fmt.Println("same bits:", slices.Equal(first[name].Data, again[name].Data))
		}
	}
	// Output:
	// holds the weights: true
	// lent to others: 0 bytes held
	// same bits: true
	// holds the weights: true
	// lent to others: 0 bytes held
	// same bits: true
}
