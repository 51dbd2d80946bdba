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

func TestFeaturesOfAPageAreFound(t *testing.T) {
	listed, lacks := read("# HTTP\n\n## What each door has\n\nEvery door has a limit,\na cost, CORS.\n\n" +
		"| but for | in | since |\n|---|---|---|\n| a cost | `gin`, `echo` | of that |\n" +
		"\n## Next\n\n| CORS | `gin` | no |\n")
	assert.Equal(t, []string{"a limit", "a cost", "CORS"}, listed)
	assert.Equal(t, map[string]string{"a cost": "of that"}, lacks["gin"])
	assert.Equal(t, map[string]string{"a cost": "of that"}, lacks["echo"])
	assert.Empty(t, lacks["New"])
}
