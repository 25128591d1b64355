//go:build linux && (amd64 || arm64) && !nocuda

package cublaslt

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPlaces: packages of Python go before what the loader finds, that before toolkits, in each the newest that the driver takes
// first, and nothing is looked for in folders that are not named in full.
func TestPlaces(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{
		"/venv/lib/python3.12/site-packages/nvidia/cublas/lib/libcublasLt.so.12",
		"/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13",
		"/venv/lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn.so.9",
		"/conda/lib/libcublasLt.so.11",
		"/env/bin/python3",
		"/env/lib/python3.9/site-packages/nvidia/cublas/lib/libcublasLt.so.12",
		"/home/ann/.local/lib/python3.10/site-packages/nvidia/cublas/lib/libcublasLt.so.12",
		"/usr/local/cuda-12.4/targets/sbsa-linux/lib/libcublasLt.so.12",
		"/usr/local/cuda/lib64/libcublasLt.so.12",
		"/usr/local/cuda/lib64/libcublasLt.so.10",
		"/tool/kit/lib64/libcublasLt.so.11",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		env    map[string]string
		driver int
		want   []string
	}{
		"nothing": {nil, 12080, []string{
			"libcublasLt.so.12", "libcublasLt.so.11", "/usr/local/cuda/lib64/libcublasLt.so.12",
			"/usr/local/cuda-12.4/targets/sbsa-linux/lib/libcublasLt.so.12",
		}},
		"an environment": {map[string]string{"VIRTUAL_ENV": "/venv"}, 13000, []string{
			"/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13",
			"/venv/lib/python3.12/site-packages/nvidia/cublas/lib/libcublasLt.so.12", "libcublasLt.so.13",
		}},
		"an older driver": {map[string]string{"VIRTUAL_ENV": "/venv"}, 12040, []string{
			"/venv/lib/python3.12/site-packages/nvidia/cublas/lib/libcublasLt.so.12", "libcublasLt.so.12",
		}},
		"a driver that is not known": {nil, 0, []string{"libcublasLt.so.13", "libcublasLt.so.12"}},
		"a driver older than all":    {map[string]string{"VIRTUAL_ENV": "/venv"}, 10020, []string{}},
		"conda and a home": {map[string]string{"CONDA_PREFIX": "/conda", "HOME": "/home/ann"}, 12000, []string{
			"/home/ann/.local/lib/python3.10/site-packages/nvidia/cublas/lib/libcublasLt.so.12", "/conda/lib/libcublasLt.so.11",
			"libcublasLt.so.12",
		}},
		"the first Python of a path": {map[string]string{"PATH": "bin:/none:/env/bin:/venv/bin"}, 12000, []string{
			"/env/lib/python3.9/site-packages/nvidia/cublas/lib/libcublasLt.so.12", "libcublasLt.so.12",
		}},
		"a toolkit": {map[string]string{"CUDA_HOME": "/tool/kit"}, 11080, []string{
			"libcublasLt.so.11", "/tool/kit/lib64/libcublasLt.so.11",
		}},
		"folders that begin nowhere": {map[string]string{
			"VIRTUAL_ENV": "venv", "CONDA_PREFIX": "conda", "HOME": "home/ann", "CUDA_HOME": "tool/kit", "CUDA_PATH": ".",
		}, 11080, []string{"libcublasLt.so.11"}},
	} {
		h := host{env: func(name string) string { return c.env[name] }, root: root}
		got := h.places(c.driver)
		for i := range got {
			got[i] = strings.TrimPrefix(got[i], root)
		}
		if len(got) < len(c.want) || !slices.Equal(got[:len(c.want)], c.want) || len(c.want) == 0 && len(got) > 0 {
			t.Errorf("%s: %q, want first %q", name, got, c.want)
		}
	}
}
