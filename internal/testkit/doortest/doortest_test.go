package doortest

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// failures counts them in place of a test.
type failures int

func (f *failures) Errorf(string, ...any) { *f++ }

// A door without a guard has no feature but those that a guard has by doing nothing.
func TestADoorWithoutAGuardIsRejected(t *testing.T) {
	idle := map[string]bool{"no fields": true, "exemption": true, "shadow mode": true}
	for _, f := range features {
		s := &Setup{wait: make(chan struct{}), inside: make(chan struct{}, 8)}
		if f.set != nil {
			f.set(s)
		}
		srv := httptest.NewServer(s.Handler())
		var failed failures
		goOn := func() { close(s.wait) }
		f.check(&failed, s, Send(t, srv.URL), goOn)
		srv.Close()
		assert.Equal(t, idle[f.name], failed == 0, f.name)
	}
}

func TestCellsAreFound(t *testing.T) {
	const page = "text | with bars\n| feature | New | gin |\n|---|---|---|\n| a limit | yes | no (1) |\n"
	assert.Equal(t, "yes", cell(page, "a limit", "New"))
	assert.Equal(t, "no", cell(page, "a limit", "gin"))
	assert.Empty(t, cell(page, "a limit", "echo"))
	assert.Empty(t, cell(page, "another", "gin"))
}
