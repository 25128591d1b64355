package models_test

import (
	"errors"
	"testing"

	"github.com/optimem/optimem/models"
)

// TestStepsOfPrograms: a model that is not known to predict tokens cannot be run step by step, and says so.
func TestStepsOfPrograms(t *testing.T) {
	m := &models.Model{}
	var unsupported *models.UnsupportedError
	if _, err := m.Steps(models.StepOptions{Blocks: 1}); !errors.As(err, &unsupported) || unsupported.Hint == "" {
		t.Fatalf("got %v", err)
	}
}
