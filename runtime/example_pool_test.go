package runtime_test

import (
	"context"
	"fmt"
	"log"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
)

// Three models share 512 KiB, which is less than their weights take. Those that are called often keep theirs.
func ExamplePool() {
	ctx := context.Background()
	pool, err := optimem.NewPool(optimem.PoolOptions{Memory: 512 << 10})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	for _, name := range []string{"often", "now and then", "seldom"} {
		ckpt, err := loader.Open("../examples/digits/digits.pt2")
		if err != nil {
			log.Fatal(err)
		}
		defer ckpt.Close()
		model, err := models.Build(ckpt, models.Options{})
		if err != nil {
			log.Fatal(err)
		}
		member, err := pool.Open(ctx, name, model, optimem.Options{})
		if err != nil {
			log.Fatal(err)
		}
		defer member.Close()
	}

	in := threes(1)
	for i := range 50 {
		name := "often"
		switch {
		case i%25 == 24:
			name = "seldom"
		case i%10 == 9:
			name = "now and then"
		}
		out, err := pool.Run(ctx, name, in)
		if err != nil {
			log.Fatal(err)
		}
		if i == 0 {
			fmt.Println("a", best(out["linear_1"])[0])
		}
	}

	m := pool.Metrics()
	fmt.Println("within the budget:", m.PeakBytes <= m.BudgetBytes)
	kept := m.Members[0].KeptBytes
	for _, x := range m.Members {
		fmt.Printf("%-12s %d calls, keeps most: %v\n", x.Name, x.Calls, x.KeptBytes == kept)
	}
	// Output:
	// a 3
	// within the budget: true
	// often        44 calls, keeps most: true
	// now and then 4 calls, keeps most: false
	// seldom       2 calls, keeps most: false
}
