package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// TestAnswer: conversations are answered, many at once, piece by piece; what is none is refused.
func TestAnswer(t *testing.T) {
	writer, err := open(t.Context(), "../../generate/testdata/chat", 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Engine().Close()
	server := httptest.NewServer(answer(writer))
	defer server.Close()
	post := func(body string) (int, string) {
		response, err := http.Post(server.URL, "application/json", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Error(err)
		}
		return response.StatusCode, string(text)
	}
	var wait sync.WaitGroup
	for land, city := range map[string]string{"Peru": "Lima", "Italy": "Rome", "Japan": "Tokyo", "Cuba": "Havana"} {
		wait.Add(1)
		go func() {
			defer wait.Done()
			code, text := post(`{"messages": [{"role": "user", "content": "What is the capital of ` + land + `?"}]}`)
			if code != http.StatusOK || text != "The capital of "+land+" is "+city+"." {
				t.Errorf("%s: %d %q", land, code, text)
			}
		}()
	}
	wait.Wait()
	for _, bad := range []string{"", "{}", `{"messages": []}`, `{"messages": [{"role": "user", "content": "` + strings.Repeat("word ", 400) + `"}]}`} {
		if code, text := post(bad); code != http.StatusBadRequest {
			t.Errorf("%.40q: %d %q", bad, code, text)
		}
	}
}
