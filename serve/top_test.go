package serve

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/optimem/optimem/top"
)

// TestTopIsTold: who asks a server what goes on is told of the pool, its members, and every session beside it, with
// what that did; of a model that is closed no more.
func TestTopIsTold(t *testing.T) {
	server, err := top.Listen(filepath.Join(t.TempDir(), "top.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	r := open(t, directory(t, map[string]string{"digits.pt2": digits, "chat": chat}), Options{Top: server})
	body := `{"inputs":[{"name":"text_input","shape":[1],"datatype":"BYTES","data":["hello"]}],"parameters":{"max_tokens":4}}`
	if status, _, answer := ask(r.Handler(), "POST", "/v2/models/chat/infer", body); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	rows := func() map[string]top.Row {
		t.Helper()
		report := server.Report()
		all := make(map[string]top.Row, len(report.Rows))
		for _, row := range report.Rows {
			all[row.Kind+" "+row.Name] = row
		}
		return all
	}
	all := rows()
	row, there := all["session chat"]
	if !there || row.BudgetBytes == 0 || row.HeldBytes == 0 || row.Passes == 0 {
		t.Errorf("of the model that writes: %+v", all)
	}
	if !slices.ContainsFunc(server.Report().Rows, func(row top.Row) bool { return row.Kind == "pool" }) {
		t.Errorf("nothing of the pool: %+v", all)
	}
	if err := errors.Join(r.Unload("chat"), r.Close()); err != nil { // the latter waits for the former
		t.Fatal(err)
	}
	if _, there := rows()["session chat"]; there {
		t.Error("a model that was closed is told of")
	}
}
