package openai

import (
	"encoding/json"
	"net/http"
)

// A modelObject is a model as clients see it.
type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func object(m Model) modelObject {
	o := modelObject{ID: m.ID, Object: "model", OwnedBy: m.OwnedBy}
	if !m.Created.IsZero() {
		o.Created = m.Created.Unix()
	}
	if o.OwnedBy == "" {
		o.OwnedBy = "optimem"
	}
	return o
}

// list answers GET /v1/models.
func (h *Handler) list(w http.ResponseWriter, r *http.Request) error {
	models, err := h.models.List(r.Context())
	if err != nil {
		return err
	}
	data := make([]modelObject, len(models))
	for i, m := range models {
		data[i] = object(m)
	}
	answer(w, http.StatusOK, map[string]any{"object": "list", "data": data})
	return nil
}

// model answers GET /v1/models/ID.
func (h *Handler) model(w http.ResponseWriter, r *http.Request) error {
	models, err := h.models.List(r.Context())
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	for _, m := range models {
		if m.ID == id {
			answer(w, http.StatusOK, object(m))
			return nil
		}
	}
	return &NotFoundError{id}
}

// answer writes an object as an answer.
func answer(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
}
