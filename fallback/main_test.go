package fallback_test

import (
	"log/slog"
	"os"
	"testing"
)

// The log of the breakers is no part of the tests' output.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}
